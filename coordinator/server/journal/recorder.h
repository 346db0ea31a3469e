// Persistence of the coordinator: recovers the engine at the start, passes rows
// and their history to the commit thread, and takes snapshots, so that the next
// start is short. The event loop owns one. Not thread-safe; the engine is
// borrowed for each call.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_RECORDER_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/journal/commit_thread.h"
#include "coordinator/server/journal/history_projector.h"
#include "coordinator/server/journal/journal.h"
#include "coordinator/server/journal/snapshot_thread.h"

namespace gavel {

struct SnapshotOptions {
  // Taken when so many rows, or bytes of them, have come since the last one.
  uint64_t rows = 10'000;
  uint64_t bytes = 16 * 1024 * 1024;
};

// Recovers both from a journal; borrows all. `rows` counts the replayed rows.
RecoverInto RecoverBoth(const EngineOptions& options, Engine* engine,
                        HistoryProjector* projector, uint64_t* rows);

class Recorder {
 public:
  struct Recovered {
    JournalPosition position;
    uint64_t term = 0;  // that begins
    Time time = 0;
    uint64_t rows_replayed = 0;
  };
  using Note = std::function<void(const std::string&)>;

  explicit Recorder(SnapshotOptions options) : options_(options) {}

  // Recovers `engine` from the journal, begins a term, and starts the commit
  // thread. `note` gets a line for each damaged snapshot that was skipped, and
  // one when rows were lost. `term_min`: as of Journal::BeginTerm.
  absl::StatusOr<Recovered> Start(std::unique_ptr<Journal> journal,
                                  const EngineOptions& engine_options,
                                  Engine* engine, const Note& note,
                                  std::function<void()> notify,
                                  uint64_t term_min = 0);

  // The row is of the engine's last step.
  void Append(action::Persist&& row, const Engine& engine);
  // Tells the thread that makes snapshots what is on disk, and when one is due.
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

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_RECORDER_H_
