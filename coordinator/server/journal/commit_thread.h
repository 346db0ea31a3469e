// Commits journal rows on a thread of its own, so that events without a row (a
// lease's renewal) never wait for an fsync. Rows that arrive during a commit
// form the next one. Between commits it writes snapshots, prunes, and verifies
// older rows, one short transaction at a time. The coordinator's event loop
// owns one.
//
// Thread-safe. `notify` is called on the commit thread, after each commit and
// after a failure; it must not block, nor call back.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_COMMIT_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_COMMIT_THREAD_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/server/journal/journal.h"

namespace gavel {

class CommitThread {
 public:
  // Append waits while this many rows are queued: the disk does not keep up.
  static constexpr size_t kQueuedRowsMax = 64 * 1024;

  // The journal has been read. At its end what is queued is committed first; a
  // snapshot that is not yet written is lost.
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
  struct Work {
    std::optional<JournalSnapshot> snapshot;
    std::vector<JournalRow> rows;
    std::vector<HistoryRow> history;
  };
  void Run(const std::stop_token& stop);
  // Waits for something to do, but not when `at_once`. False: the end.
  bool TakeWork(const std::stop_token& stop, bool at_once, Work* work);
  void Finish(const absl::Status& status, uint64_t last_seq);
  bool Maintain();
  bool Verify();

  const std::unique_ptr<Journal> journal_;  // the thread's, once it runs
  const std::function<void()> notify_;
  // Of the standard library: the thread sanitizer does not see into Debian's
  // absl::Mutex.
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  Work queue_;
  State state_;
  std::jthread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_COMMIT_THREAD_H_
