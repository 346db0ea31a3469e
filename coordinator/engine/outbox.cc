#include "coordinator/engine/outbox.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <string>
#include <variant>

#include "coordinator/engine/event.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// A peer can have been away for so many starts of the coordinator.
constexpr size_t kTermsKept = 1024;

// Calls `check` with what shows the journal position that an event's sender
// knows: the message itself, or the event that was made of it.
template <class Check>
void WithSender(const Event& event, const Check& check) {
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.highest_seen; }) check(e);
        if constexpr (requires { e.hello; }) check(e.hello);
        if constexpr (requires { e.request; }) check(e.request);
        if constexpr (requires { e.heartbeat; }) check(e.heartbeat);
        if constexpr (requires { e.exit; }) check(e.exit);
        if constexpr (requires { e.message; }) check(e.message);
        if constexpr (requires { e.progress.highest_seen; }) check(e.progress);
      },
      event);
}

template <class T>
std::string SenderOf(const T& message) {
  if constexpr (requires { message.server; }) {
    return StrCat("agent ", message.server);
  } else {
    return StrCat("job ", message.worker.job.value());
  }
}

}  // namespace

void Outbox::Emit(Action&& action) {
  if (replaying_) return;
  // Without a journal there is no disk to wait for.
  if (!journal_) {
    actions_.push_back(std::move(action));
  } else {
    unpersisted_.Push(seq_, std::move(action));
  }
}

void Outbox::EmitNow(Action&& action) {
  if (replaying_) return;
  // Nobody hears of a term before it is on disk.
  if (persisted_ < term_seq_ && journal_) {
    unpersisted_.Push(term_seq_, std::move(action));
  } else {
    actions_.push_back(std::move(action));
  }
}

void Outbox::EmitAtOnce(Action&& action) {
  assert(!replaying_);
  actions_.push_back(std::move(action));
}

void Outbox::Flush() {
  while (!unpersisted_.empty() && unpersisted_.front().first <= persisted_) {
    actions_.push_back(unpersisted_.Pop().second);
  }
}

Actions Outbox::Take() {
  Actions out = std::move(actions_);
  actions_.clear();
  if (!halted_) return out;
  // Nothing leaves a halted engine but the reason.
  std::erase_if(out, [](const Action& action) {
    return !std::holds_alternative<action::Halt>(action);
  });
  return out;
}

void Outbox::Reuse(Actions done) {
  if (!actions_.empty()) return;
  done.clear();
  actions_ = std::move(done);
}

void Outbox::BeginTerm(uint64_t term) {
  term_ = term;
  term_seq_ = seq_;
}

void Outbox::Persist(Time now, std::shared_ptr<const Event> event) {
  assert(journal_ && event != nullptr);
  std::string row = EncodeEvent(*event);
  actions_.push_back(
      action::Persist{seq_, term_, now, std::move(row), std::move(event)});
}

void Outbox::Persisted(uint64_t seq) {
  persisted_ = std::max(persisted_, seq);
  Flush();
}

void Outbox::BeginReplay(uint64_t seq, uint64_t term) {
  replaying_ = true;
  seq_ = seq;
  term_ = term;
  persisted_ = seq;
}

void Outbox::EndReplay() {
  replaying_ = false;
  actions_.clear();
  unpersisted_.clear();
}

void Outbox::NoteTerm(Time now, uint64_t term, bool after_loss) {
  term_ = term;
  // Every row of the terms before a loss counts as known. One of these terms
  // may have begun on the copy before the loss was accepted.
  if (after_loss) term_starts_.clear();
  term_starts_[term_] =
      after_loss ? std::numeric_limits<uint64_t>::max() : seq_;
  if (term_starts_.size() > kTermsKept) {
    term_starts_.erase(term_starts_.begin());
  }
  term_began_at_ = now;
}

// A term ends where the next one begins: who saw more of it, saw rows that are
// not there any more.
bool Outbox::Knows(const JournalPosition& seen) const {
  if (seen.term >= term_) return seen <= position();
  const auto next = term_starts_.upper_bound(seen.term);
  return next == term_starts_.end() || seen.seq < next->second;
}

void Outbox::Fence(const Event& event) {
  WithSender(event, [this](const auto& sender) {
    const JournalPosition& seen = sender.highest_seen;
    if (Knows(seen)) return;
    const auto next = term_starts_.upper_bound(seen.term);
    halted_ = true;
    actions_.push_back(action::Halt{StrCat(
        SenderOf(sender), " has seen term ", seen.term, " seq ", seen.seq,
        " of the journal, this coordinator is at term ", term_, " seq ", seq_,
        next == term_starts_.end() ? ""
                                   : StrCat(" and term ", next->first,
                                            " begins at seq ", next->second),
        ": another coordinator has taken over, or the end of this journal was "
        "lost. Find the newer journal and start the coordinator on it, or, "
        "where there is none, start it with --accept-loss; nothing more is "
        "granted from here")});
  });
}

}  // namespace gavel::engine
