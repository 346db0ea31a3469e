// Everything that a running coordinator writes into its journal: the event loop
// gives rows to the JournalWriter, the CommitThread commits them, and the
// SnapshotThread makes snapshots.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_WRITER_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_WRITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/history.h"
#include "coordinator/server/journal.h"
#include "core/units.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// Commits journal rows on a thread of its own, so that events without a row (a
// lease's renewal) never wait for an fsync. Rows that arrive during a commit
// form the next one. Between commits it writes snapshots, prunes, and verifies
// older rows, one short transaction at a time. The coordinator's event loop
// owns one.
//
// Thread-safe. `notify` is called on the commit thread, after each commit and
// after a failure; it must not block, nor call back.
class CommitThread {
 public:
  // Append waits while this many rows are queued: the disk does not keep up.
  static constexpr size_t kQueuedRowsMax = 64 * 1024;

  // The journal has already been read. The destructor first commits the queued
  // rows; a snapshot that is not yet written is lost.
  CommitThread(std::unique_ptr<Journal> journal, std::function<void()> notify);

  // In the order of seq; `history` is committed with it. Dropped after a
  // failure.
  void Append(JournalRow row, std::vector<HistoryRow> history = {});
  // The engine after a durable row. Written in parts; later rows do not wait.
  void Snapshot(JournalSnapshot snapshot);

  struct State {
    uint64_t persisted_seq = 0;  // all rows up to this one are on disk
    ChainEnd end;                // and where they end
    absl::Status status;         // once not OK, nothing is committed any more
    absl::Status maintenance;    // of the last snapshot that had no room
    absl::Status damage;         // of rows that a snapshot stands for
    // The last two as text for an operator.
    std::vector<std::string> Troubles() const;
  };
  State state() const;
  absl::Status CheckLock() const { return journal_->CheckLock(); }

 private:
  // A row and its history, or a snapshot; neither at the start.
  struct Item {
    std::optional<JournalRow> row = {};
    std::vector<HistoryRow> history = {};
    std::optional<JournalSnapshot> snapshot = {};
  };
  Time Work(std::vector<Item> items);
  void Finish(const absl::Status& status, uint64_t last_seq);
  bool Maintain();
  bool Verify();

  const std::unique_ptr<Journal> journal_;  // the thread's, once it runs
  const std::function<void()> notify_;
  bool wal_reserved_ = false;  // the thread's
  // As in WorkerThread, of the standard library.
  mutable std::mutex mutex_;  // guards the state
  State state_;
  WorkerThread<Item> thread_;
};

// Makes the journal's snapshots off the event loop. It replays durable rows
// into its own engine and history projector; a snapshot is these two as bytes.
// The journal writer owns one.
//
// Belongs to the event loop.
class SnapshotThread {
 public:
  // It gives up when this many rows wait: it does not keep up.
  static constexpr size_t kRowsMax = 256 * 1024;

  // Called on the thread with each snapshot; it must not block.
  using Take = std::function<void(JournalSnapshot)>;

  // `engine` and `projector` as they are after the last row of the journal. At
  // its end a snapshot that is not yet made is forgotten.
  SnapshotThread(Engine engine, HistoryProjector projector, Take take);

  struct Row {
    uint64_t seq = 0;
    uint64_t term = 0;
    Time time = 0;
    std::shared_ptr<const Event> event;
  };
  // In the order of seq.
  void Append(Row row);
  // It has given up; there are no snapshots until the next start.
  bool lost() const { return lost_; }
  // All rows up to `end` are on disk; `snapshot`: one is to be made of them. It
  // is passed over while another one is under way.
  void Persisted(const ChainEnd& end, bool snapshot);

 private:
  struct Item {
    std::vector<Row> rows;
    std::optional<ChainEnd> snapshot;  // to be made after them
  };
  void Work(std::vector<Item> items, const std::stop_token& stop);

  const Take take_;
  Engine engine_;  // the thread's, and the next
  HistoryProjector projector_;
  std::deque<Row> rows_;  // not on disk
  bool lost_ = false;
  std::atomic<size_t> rows_posted_ = 0;  // and not yet taken by the thread
  std::atomic<bool> wanted_ = false;     // a snapshot; the same
  WorkerThread<Item> thread_;
};

// The engine and the projector as they are written into a journal's snapshot.
absl::StatusOr<std::string> PackSnapshot(const Engine& engine,
                                         const HistoryProjector& projector);
// Into an engine made anew from `options`. DATA_LOSS: both are of no use.
// FAILED_PRECONDITION: a newer version made it.
absl::Status UnpackSnapshot(std::string_view bytes,
                            const EngineOptions& options, Engine* engine,
                            HistoryProjector* projector);

struct SnapshotOptions {
  // Taken when so many rows, or bytes of them, have come since the last one.
  uint64_t rows = 10'000;
  uint64_t bytes = 16 * 1024 * 1024;
};

// Recovers both from a journal; borrows all. `rows` counts the replayed rows.
RecoverInto RecoverBoth(const EngineOptions& options, Engine* engine,
                        HistoryProjector* projector, uint64_t* rows);

// Persistence of the coordinator: recovers the engine at the start, passes rows
// and their history to the commit thread, and takes snapshots, so that the next
// start is short. The event loop owns one. Not thread-safe; the engine is
// borrowed for each call.
class JournalWriter {
 public:
  struct Recovered {
    JournalPosition position;
    uint64_t term = 0;  // that begins
    Time time = 0;
    uint64_t rows_replayed = 0;
  };
  using Note = std::function<void(const std::string&)>;

  explicit JournalWriter(SnapshotOptions options) : options_(options) {}

  // Recovers `engine` from the journal, begins a term, and starts the commit
  // thread. `note` gets a line for each damaged snapshot that was skipped, and
  // one when rows were lost. `term_min`: see Journal::BeginTerm.
  absl::StatusOr<Recovered> Start(std::unique_ptr<Journal> journal,
                                  const EngineOptions& engine_options,
                                  Engine* engine, const Note& note,
                                  std::function<void()> notify,
                                  uint64_t term_min = 0);

  // Appends a row of the engine's last step.
  void Append(action::Persist&& row, const Engine& engine);
  // Tells the snapshot thread which rows are on disk, and when a snapshot is
  // due.
  void MaybeSnapshot(const Engine& engine);
  CommitThread::State state() const { return commits_->state(); }
  // Problems for an operator.
  std::vector<std::string> Troubles() const;
  absl::Status CheckLock() const { return commits_->CheckLock(); }

 private:
  SnapshotOptions options_;
  HistoryProjector projector_;
  uint64_t rows_ = 0;  // since the last snapshot
  uint64_t bytes_ = 0;
  uint64_t told_seq_ = 0;  // that the thread of snapshots was told of
  std::unique_ptr<CommitThread> commits_;
  std::unique_ptr<SnapshotThread> snapshots_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_WRITER_H_
