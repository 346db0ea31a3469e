#include "coordinator/server/journal/snapshot_thread.h"

#include <utility>

#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

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

}  // namespace gavel
