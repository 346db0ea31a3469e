// The coordinator's disk. Rows are committed in groups, one group of a writer
// at a time; what a crash finds under way is on disk as a whole or not at all
// (SQLite's promise, tested with real files in tests/server), what waits is
// lost. It may have two writers, as when the lock of the first is gone: like
// the real one it refuses the one behind whose last row another has written.
// Used by VirtualCluster. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "coordinator/engine/action.h"
#include "tests/simulation/world/event_queue.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

class VirtualJournal {
 public:
  // Like a disk that is full, and like an fsync that fails: then nobody knows.
  enum class Failure : uint8_t { kNoFailure, kNothingWritten, kUnknown };

  VirtualJournal(EventQueue& queue, std::mt19937_64& random, WorldTruth& truth)
      : queue_(queue), random_(random), truth_(truth) {}

  // Of a coordinator that has read all rows: told of each group, with its last
  // seq, or that the journal failed and takes nothing of it any more. Returns
  // its number as a writer.
  uint64_t Open(std::function<void(uint64_t seq)> committed,
                std::function<void()> failed);
  void Append(uint64_t writer, action::Persist row);
  // That coordinator died.
  void Crash(uint64_t writer);
  void FailNextCommit(Failure failure) { failure_ = failure; }
  void set_commit_s(double commit_s) { commit_s_ = commit_s; }

  const std::vector<action::Persist>& rows() const { return rows_; }

 private:
  struct Writer {
    std::function<void(uint64_t)> committed;
    std::function<void()> failed;
    size_t rows_known = 0;
    std::vector<action::Persist> group;  // under way
    std::vector<action::Persist> waiting;
  };

  void Commit(uint64_t id, Writer& writer);
  void Finish(uint64_t id);
  void Write(Writer& writer);
  bool IsFenced(const Writer& writer) const;

  EventQueue& queue_;
  std::mt19937_64& random_;
  WorldTruth& truth_;
  double commit_s_ = 0.002;
  uint64_t opened_ = 0;
  std::map<uint64_t, Writer> writers_;  // tasks of one that is gone do nothing
  Failure failure_ = Failure::kNoFailure;
  std::vector<action::Persist> rows_;  // on disk
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_
