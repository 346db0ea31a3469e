// The coordinator's disk. Each writer commits its rows in groups, one group at
// a time. A crash leaves the group in progress completely on disk or not at all
// (SQLite promises this, and tests/server tests it with real files), and loses
// the rows that wait. There may be two writers, as when the lock of the first
// is gone. Like the real journal, it refuses a writer if another one has
// written rows behind the last row that this writer knows. Used by
// VirtualCluster. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "coordinator/engine/event.h"
#include "tests/simulation/world/event_queue.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

class VirtualJournal {
 public:
  // kNothingWritten is like a full disk. kUnknown is like a failed fsync: the
  // group may be on disk or not.
  enum class Failure : uint8_t { kNoFailure, kNothingWritten, kUnknown };

  VirtualJournal(EventQueue& queue, std::mt19937_64& random, WorldTruth& truth)
      : queue_(queue), random_(random), truth_(truth) {}

  // Adds a writer for a coordinator that has read all rows, and returns the
  // writer's number. Calls `committed` with the last seq of each group, or
  // `failed` once, after which the journal takes no rows of this writer.
  uint64_t Open(std::function<void(uint64_t seq)> committed,
                std::function<void()> failed);
  void Append(uint64_t writer, action::Persist row);
  // The coordinator of this writer died.
  void Crash(uint64_t writer);
  void FailNextCommit(Failure failure) { failure_ = failure; }
  void set_commit_s(double commit_s) { commit_s_ = commit_s; }

  const std::vector<action::Persist>& rows() const { return rows_; }

 private:
  struct Writer {
    std::function<void(uint64_t)> committed;
    std::function<void()> failed;
    size_t rows_known = 0;
    std::vector<action::Persist> group;  // the commit in progress
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
  std::map<uint64_t, Writer> writers_;  // of a dead one, tasks do nothing
  Failure failure_ = Failure::kNoFailure;
  std::vector<action::Persist> rows_;  // on disk
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_JOURNAL_H_
