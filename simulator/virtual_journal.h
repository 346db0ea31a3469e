// The coordinator's disk. Rows are committed in groups, one group at a time;
// what a crash finds under way is on disk as a whole or not at all (SQLite's
// promise, tested with real files in tests/server), what waits is lost. Used by
// VirtualCluster. Not thread-safe.
#ifndef GAVEL_SIMULATOR_VIRTUAL_JOURNAL_H_
#define GAVEL_SIMULATOR_VIRTUAL_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "coordinator/engine/action.h"
#include "simulator/event_queue.h"

namespace gavel {

class VirtualJournal {
 public:
  // Like a disk that is full, and like an fsync that fails: then nobody knows.
  enum class Failure : uint8_t { kNoFailure, kNothingWritten, kUnknown };

  VirtualJournal(EventQueue& queue, std::mt19937_64& random)
      : queue_(queue), random_(random) {}

  // Of the coordinator that has opened it: told of each group, with its last
  // seq, or that the journal failed and takes nothing any more.
  void Open(std::function<void(uint64_t seq)> committed,
            std::function<void()> failed);
  void Append(action::Persist row);
  // The coordinator died.
  void Crash();
  void FailNextCommit(Failure failure) { failure_ = failure; }
  void set_commit_s(double commit_s) { commit_s_ = commit_s; }

  const std::vector<action::Persist>& rows() const { return rows_; }

 private:
  void Commit();
  void Finish();
  void Write();

  EventQueue& queue_;
  std::mt19937_64& random_;
  std::function<void(uint64_t)> committed_;
  std::function<void()> failed_;
  double commit_s_ = 0.002;
  uint64_t opened_ = 0;  // tasks of an earlier opening do nothing
  Failure failure_ = Failure::kNoFailure;
  std::vector<action::Persist> rows_;   // on disk
  std::vector<action::Persist> group_;  // under way
  std::vector<action::Persist> waiting_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_VIRTUAL_JOURNAL_H_
