#include "coordinator/server/journal_writer.h"

#include <iterator>
#include <utility>

#include "coordinator/engine/event_codec.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

CommitThread::CommitThread(std::unique_ptr<Journal> journal,
                           std::function<void()> notify)
    : journal_(std::move(journal)), notify_(std::move(notify)) {
  state_.persisted_seq = journal_->position().seq;
  state_.end = journal_->end();
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void CommitThread::Append(JournalRow row, std::vector<HistoryRow> history) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return queue_.rows.size() < kQueuedRowsMax || !state_.status.ok();
  });
  if (!state_.status.ok()) return;
  queue_.rows.push_back(std::move(row));
  queue_.history.insert(queue_.history.end(),
                        std::make_move_iterator(history.begin()),
                        std::make_move_iterator(history.end()));
  lock.unlock();
  changed_.notify_all();
}

void CommitThread::Snapshot(JournalSnapshot snapshot) {
  {
    const std::lock_guard lock(mutex_);
    if (!state_.status.ok()) return;
    queue_.snapshot = std::move(snapshot);
  }
  changed_.notify_all();
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

void CommitThread::Run(const std::stop_token& stop) {
  // After a failure Append says so.
  journal_->ReserveWal().IgnoreError();
  bool more = true;  // an earlier coordinator may have left something
  Work work;
  while (TakeWork(stop, more, &work)) {
    if (work.snapshot) journal_->StartSnapshot(*std::move(work.snapshot));
    if (!work.rows.empty()) {
      Finish(journal_->Append(work.rows, work.history), work.rows.back().seq);
      notify_();
    }
    more = Maintain();
  }
}

bool CommitThread::TakeWork(const std::stop_token& stop, bool at_once,
                            Work* work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] {
    return at_once || !queue_.rows.empty() || queue_.snapshot;
  });
  if (stop.stop_requested() && queue_.rows.empty()) return false;
  *work = std::exchange(queue_, {});
  lock.unlock();
  changed_.notify_all();  // there is room
  return true;
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
  } else {
    queue_ = {};
    changed_.notify_all();
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
      thread_([this](const std::stop_token& stop) { Work(stop); }) {}

// Not told: there is nothing to do before the row is on disk.
void SnapshotThread::Append(Row row) {
  const std::lock_guard lock(mutex_);
  lost_ |= rows_.size() >= kRowsMax;
  if (lost_) {
    rows_.clear();
    wanted_.reset();
  } else {
    rows_.push_back(std::move(row));
  }
}

bool SnapshotThread::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void SnapshotThread::Persisted(const ChainEnd& end, bool snapshot) {
  {
    const std::lock_guard lock(mutex_);
    persisted_ = end.position.seq;
    if (snapshot && !wanted_ && !lost_) wanted_ = end;
  }
  changed_.notify_all();
}

void SnapshotThread::Work(const std::stop_token& stop) {
  std::deque<Row> rows;
  std::optional<ChainEnd> snapshot;
  while (TakeSome(stop, &rows, &snapshot)) {
    for (const Row& row : rows) {
      engine_.Replay(row.seq, row.term, row.time, *row.event);
      projector_.Observe(row.seq, row.time, *row.event, engine_);
    }
    if (!snapshot) continue;
    absl::StatusOr<std::string> bytes = PackSnapshot(engine_, projector_);
    if (bytes.ok()) take_({*snapshot, *std::move(bytes)});
  }
}

// No row beyond the one that a snapshot is wanted of, until it is made.
bool SnapshotThread::TakeSome(const std::stop_token& stop,
                              std::deque<Row>* rows,
                              std::optional<ChainEnd>* snapshot) {
  std::unique_lock lock(mutex_);
  const auto last = [this] {
    return wanted_ ? wanted_->position.seq : persisted_;
  };
  changed_.wait(lock, stop, [&] {
    return wanted_ || (!rows_.empty() && rows_.front().seq <= last());
  });
  if (stop.stop_requested()) return false;
  rows->clear();
  while (!rows_.empty() && rows_.front().seq <= last()) {
    rows->push_back(std::move(rows_.front()));
    rows_.pop_front();
  }
  *snapshot = std::exchange(wanted_, std::nullopt);
  return true;
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
