#include "coordinator/server/journal_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/engine/event.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

CommitThread::CommitThread(std::unique_ptr<Journal> journal,
                           std::function<void()> notify)
    : journal_(std::move(journal)),
      notify_(std::move(notify)),
      thread_(AtEnd::kFinish, [this](auto items, const std::stop_token&) {
        return Work(std::move(items));
      }) {
  state_.persisted_seq = journal_->position().seq;
  state_.end = journal_->end();
  thread_.Post({});  // an earlier coordinator may have left something
}

void CommitThread::Append(JournalRow row, std::vector<HistoryRow> history) {
  thread_.Post({std::move(row), std::move(history)}, kQueuedRowsMax);
}

void CommitThread::Snapshot(JournalSnapshot snapshot) {
  thread_.Post({.snapshot = std::move(snapshot)});
}

std::vector<std::string> CommitThread::State::Troubles() const {
  std::vector<std::string> troubles;
  if (!maintenance.ok()) {
    troubles.push_back(
        StrCat(maintenance.message(),
               "; no snapshot was written, the next start takes longer"));
  }
  if (!damage.ok()) troubles.emplace_back(damage.message());
  return troubles;
}

CommitThread::State CommitThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Time CommitThread::Work(std::vector<Item> items) {
  if (!state().status.ok()) return kNever;
  // After a failure Append says so.
  if (!std::exchange(wal_reserved_, true)) journal_->ReserveWal().IgnoreError();
  std::vector<JournalRow> rows;
  std::vector<HistoryRow> history;
  for (Item& item : items) {
    if (item.snapshot) journal_->StartSnapshot(*std::move(item.snapshot));
    if (item.row) rows.push_back(*std::move(item.row));
    std::ranges::move(item.history, std::back_inserter(history));
  }
  if (!rows.empty()) {
    Finish(journal_->Append(rows, history), rows.back().seq);
    notify_();
  }
  return Maintain() ? 0 : kNever;
}

// True: there is more to do.
bool CommitThread::Maintain() {
  const absl::StatusOr<bool> more = journal_->Maintain();
  if (more.ok()) return *more || Verify();
  {
    const std::lock_guard lock(mutex_);
    if (absl::IsResourceExhausted(more.status())) {
      state_.maintenance = more.status();
    } else if (state_.status.ok()) {
      state_.status = more.status();
    }
  }
  notify_();
  return false;
}

// True: there is more to do.
bool CommitThread::Verify() {
  const absl::StatusOr<bool> more = journal_->VerifySome();
  if (more.ok()) return *more;
  {
    const std::lock_guard lock(mutex_);
    state_.damage = more.status();
  }
  notify_();
  return false;
}

void CommitThread::Finish(const absl::Status& status, uint64_t last_seq) {
  const std::lock_guard lock(mutex_);
  state_.status = status;
  if (status.ok()) {
    state_.persisted_seq = last_seq;
    state_.end = journal_->end();
  }
}

absl::StatusOr<std::string> PackSnapshot(const Engine& engine,
                                         const HistoryProjector& projector) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes, engine.Snapshot());
  Packer packer(kJournalLimits);
  packer.Array(2);
  packer.Put(bytes);
  packer.Put(projector.Save());
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status UnpackSnapshot(std::string_view bytes,
                            const EngineOptions& options, Engine* engine,
                            HistoryProjector* projector) {
  *engine = Engine(options);
  *projector = HistoryProjector();
  Unpacker unpacker(bytes, kJournalLimits);
  std::string engine_bytes;
  std::string projector_bytes;
  unpacker.Get(engine_bytes);
  unpacker.Get(projector_bytes);
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat("the snapshot is damaged: ",
                                      ToStd(unpacker.status().message())));
  }
  if (unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot has parts that this version of gavel does not know; use "
        "the version that wrote it, or a newer one");
  }
  GAVEL_RETURN_IF_ERROR(engine->Restore(engine_bytes));
  return projector->Load(projector_bytes);
}

SnapshotThread::SnapshotThread(Engine engine, HistoryProjector projector,
                               Take take)
    : take_(std::move(take)),
      engine_(std::move(engine)),
      projector_(std::move(projector)),
      thread_(AtEnd::kDrop, [this](auto items, const std::stop_token& stop) {
        Work(std::move(items), stop);
        return kNever;
      }) {}

void SnapshotThread::Append(Row row) {
  lost_ |= rows_.size() + rows_posted_ >= kRowsMax;
  if (lost_) {
    rows_.clear();
    thread_.Drop();
  } else {
    rows_.push_back(std::move(row));
  }
}

void SnapshotThread::Persisted(const ChainEnd& end, bool snapshot) {
  if (lost_) return;
  Item item;
  while (!rows_.empty() && rows_.front().seq <= end.position.seq) {
    item.rows.push_back(std::move(rows_.front()));
    rows_.pop_front();
  }
  if (snapshot && !wanted_.exchange(true)) item.snapshot = end;
  rows_posted_ += item.rows.size();
  thread_.Post(std::move(item));
}

void SnapshotThread::Work(std::vector<Item> items,
                          const std::stop_token& stop) {
  for (const Item& item : items) rows_posted_ -= item.rows.size();
  for (const Item& item : items) {
    if (stop.stop_requested()) return;
    if (item.snapshot) wanted_ = false;
    for (const Row& row : item.rows) {
      engine_.Replay(row.seq, row.term, row.time, *row.event);
      projector_.Observe(row.seq, row.time, *row.event, engine_);
    }
    if (!item.snapshot) continue;
    absl::StatusOr<std::string> bytes = PackSnapshot(engine_, projector_);
    if (bytes.ok()) take_({*item.snapshot, *std::move(bytes)});
  }
}

RecoverInto RecoverBoth(const EngineOptions& options, Engine* engine,
                        HistoryProjector* projector, uint64_t* rows) {
  RecoverInto into;
  into.begin = [=](const JournalSnapshot* snapshot) {
    *rows = 0;
    if (snapshot != nullptr) {
      return UnpackSnapshot(snapshot->bytes, options, engine, projector);
    }
    *engine = Engine(options);
    *projector = HistoryProjector();
    return absl::OkStatus();
  };
  into.take = [=](const JournalRow& row) {
    GAVEL_ASSIGN_OR_RETURN(const Event event, DecodeEvent(row.row));
    engine->Replay(row.seq, row.term, row.time, event);
    projector->Observe(row.seq, row.time, event, *engine);  // is in the tables
    ++*rows;
    return absl::OkStatus();
  };
  return into;
}

absl::StatusOr<JournalWriter::Recovered> JournalWriter::Start(
    std::unique_ptr<Journal> journal, const EngineOptions& engine_options,
    Engine* engine, const Note& note, std::function<void()> notify,
    uint64_t term_min) {
  RecoverInto into = RecoverBoth(engine_options, engine, &projector_, &rows_);
  into.note = note;
  GAVEL_RETURN_IF_ERROR(journal->Recover(into));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t term, journal->BeginTerm(term_min));
  const JournalPosition last = journal->position();
  if (term > last.term + 1 && term_min == 0) {
    note(StrCat("term ", term - 1,
                " was begun here and is not in it: that coordinator ended "
                "before it wrote anything, or the end of the journal was lost. "
                "Agents and workers that saw more of it will say so, and stop "
                "this one"));
  }
  const Recovered recovered{last, term, journal->last_time(), rows_};
  commits_ =
      std::make_unique<CommitThread>(std::move(journal), std::move(notify));
  Engine follower(engine_options);
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes, engine->Snapshot());
  GAVEL_RETURN_IF_ERROR(follower.Restore(bytes));
  snapshots_ = std::make_unique<SnapshotThread>(
      std::move(follower), projector_, [this](JournalSnapshot snapshot) {
        commits_->Snapshot(std::move(snapshot));
      });
  return recovered;
}

void JournalWriter::Append(action::Persist&& row, const Engine& engine) {
  ++rows_;
  bytes_ += row.row.size();
  std::vector<HistoryRow> history =
      projector_.Observe(row.seq, row.time, *row.event, engine);
  snapshots_->Append({row.seq, row.term, row.time, std::move(row.event)});
  row.event.reset();
  commits_->Append(std::move(row), std::move(history));
}

void JournalWriter::MaybeSnapshot(const Engine& engine) {
  const ChainEnd end = commits_->state().end;
  const bool due =
      !engine.halted() && (rows_ >= options_.rows || bytes_ >= options_.bytes);
  if (!due && end.position.seq == told_seq_) return;
  told_seq_ = end.position.seq;
  snapshots_->Persisted(end, due);
  if (due) rows_ = bytes_ = 0;
}

std::vector<std::string> JournalWriter::Troubles() const {
  std::vector<std::string> troubles = commits_->state().Troubles();
  if (snapshots_->lost()) {
    troubles.emplace_back(
        "no snapshots are made any more, for the thread that makes them does "
        "not keep up; start the coordinator again when it has less to do");
  }
  return troubles;
}

}  // namespace gavel
