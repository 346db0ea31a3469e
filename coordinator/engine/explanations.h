// Explains to people why a job is in its present state. Not thread-safe;
// stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
#define GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/units.h"

// The places of waiting jobs in line, by accelerator type. Computed once for
// all jobs from the rows of a round; code that explains jobs to people keeps
// one. Pure; immutable once made, so that any thread may read it.

namespace gavel {

class WaitingLine {
 public:
  WaitingLine() = default;
  // `rows` are those of Engine::AddToLine, `types` those of the cluster, and
  // rounds have this length. O(rows log rows).
  WaitingLine(const RoundTable& rows, std::vector<std::string> types,
              double round_duration_s);

  // Completes a Priority: sets the type on which the job is nearest to its
  // turn, and its place in line there (1: next). A job that is in no line has
  // no share, and gets the reason NotInAllocation.
  void Tell(JobId job, Reason* reason) const;

 private:
  struct Place {
    size_t type = 0;
    int number = 1;
  };
  std::vector<std::string> types_;
  std::vector<std::pair<JobId, Place>> places_;  // ascending
};

}  // namespace gavel

namespace gavel::engine {

struct State;

// The time that an active job has received in all and, for each type, the
// figures of the job alone (not of its pairs) that its priority is computed
// from.
event::Received ReceivedOf(const State& s, JobId job, Time now);
// The reason for the job's state, with its place in line if it waits for its
// priority.
Reason Why(const State& s, JobId job, Time now);
// The same without the place in line.
Reason WhyUnranked(const State& s, JobId job, Time now);

// "it failed 2 times in a row without a new checkpoint (last: exit code 3), and
// is held after 5"; empty: it has not failed since its last checkpoint.
std::string FailuresText(const Job& job);

// Returns why the rank gave up its lease of `left` at a boundary: "paused:
// preempted by job 12, its share is exhausted (...)". The answer follows from
// the decisions up to now, and anybody may read it.
std::string WhyPaused(const State& s, const Job& job, int rank,
                      AcceleratorId left, Time now);
// Returns why a worker that had `from` last began on `to`: "moved from s1/a to
// s2/b: job 12 has s1/a".
std::string WhyMoved(const State& s, const Job& job, AcceleratorId from,
                     AcceleratorId to, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
