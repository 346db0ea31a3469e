#include "tests/simulation/world/virtual_journal.h"

#include <utility>

namespace gavel {

uint64_t VirtualJournal::Open(std::function<void(uint64_t)> committed,
                              std::function<void()> failed) {
  Writer& writer = writers_[++opened_];
  writer.committed = std::move(committed);
  writer.failed = std::move(failed);
  writer.rows_known = rows_.size();
  failure_ = Failure::kNoFailure;
  return opened_;
}

void VirtualJournal::Append(uint64_t id, action::Persist row) {
  const auto found = writers_.find(id);
  if (found == writers_.end()) return;
  found->second.waiting.push_back(std::move(row));
  if (found->second.group.empty()) Commit(id, found->second);
}

void VirtualJournal::Commit(uint64_t id, Writer& writer) {
  writer.group = std::exchange(writer.waiting, {});
  queue_.After(commit_s_, [this, id] { Finish(id); });
}

void VirtualJournal::Finish(uint64_t id) {
  auto found = writers_.find(id);
  if (found == writers_.end()) return;
  Writer& writer = found->second;
  const bool fenced = IsFenced(writer);
  if (fenced || failure_ != Failure::kNoFailure) {
    if (fenced || failure_ == Failure::kNothingWritten) writer.group.clear();
    if (!fenced) failure_ = Failure::kNoFailure;
    const std::function<void()> failed = std::move(writer.failed);
    Crash(id);
    return failed();
  }
  const uint64_t seq = writer.group.back().seq;
  Write(writer);
  // It may bring the writer's end about.
  const std::function<void(uint64_t)> committed = writer.committed;
  committed(seq);
  found = writers_.find(id);
  if (found == writers_.end()) return;
  if (found->second.group.empty() && !found->second.waiting.empty()) {
    Commit(id, found->second);
  }
}

void VirtualJournal::Crash(uint64_t id) {
  const bool written = random_() % 2 == 0;
  const auto found = writers_.find(id);
  if (found == writers_.end()) return;
  if (written && !IsFenced(found->second)) Write(found->second);
  writers_.erase(found);
}

bool VirtualJournal::IsFenced(const Writer& writer) const {
  return writer.rows_known != rows_.size();
}

void VirtualJournal::Write(Writer& writer) {
  for (action::Persist& row : writer.group) {
    truth_.Journaled(queue_.now(), row.seq, row.term);
    rows_.push_back(std::move(row));
  }
  writer.group.clear();
  writer.rows_known = rows_.size();
}

}  // namespace gavel
