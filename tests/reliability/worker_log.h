// Checks logs that workers write themselves, each line on disk before the
// worker goes on: whether they can be true of a cluster that loses nothing.
// Knows nothing of the coordinator. Pure, thread-safe.
//
// A log belongs to one job, with all its incarnations, in the order of writing:
//
//   NANOSECONDS PID start EPOCH STEP SUM    restored this (0 0 0: nothing)
//   NANOSECONDS PID take LOCK [LOCK]        has the accelerator's locks; one
//                                           of them beside another job
//   NANOSECONDS PID commit EPOCH STEP       a checkpoint is complete
//   NANOSECONDS PID give UUID               about to release them
//   NANOSECONDS PID shared UUID             another process had the lock
//
// NANOSECONDS come from one clock for all processes of the machine.
#ifndef GAVEL_TESTS_RELIABILITY_WORKER_LOG_H_
#define GAVEL_TESTS_RELIABILITY_WORKER_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gavel::testing {

struct Findings {
  uint64_t incarnations = 0;
  uint64_t commits = 0;
  uint64_t takes = 0;
  uint64_t takes_beside = 0;  // of those, with one lock
  uint64_t highest_step = 0;  // of any commit
  // Committed steps that a later incarnation did not have, and restored states
  // that are not the sum of their steps.
  uint64_t lost_steps = 0;
  // Times that two processes held the same lock.
  uint64_t shared = 0;
  std::vector<std::string> details;  // of the last two, a sentence each
};

// `logs`: the text by job. A last line that is cut off is ignored.
Findings CheckWorkerLogs(const std::map<std::string, std::string>& logs);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_WORKER_LOG_H_
