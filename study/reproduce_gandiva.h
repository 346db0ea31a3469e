// The results of Gandiva, beside its published figures: Xiao et al., Gandiva:
// Introspective Cluster Scheduling for Deep Learning, OSDI 2018 ("the paper").
// Its figures are of live runs; ours are of simulations, by the engine that the
// coordinator runs. Its jobs are not published, so ours are drawn, and each
// experiment's note says how they differ.
//
// Deterministic. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_GANDIVA_H_
#define GAVEL_STUDY_REPRODUCE_GANDIVA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "simulator/trace_simulation.h"
#include "study/reproduce_run.h"

namespace gavel::study {

// By section of the paper. `quick`: smaller, as Experiments().
std::vector<Experiment> GandivaExperiments(bool quick);

// ---- their traces

// The jobs of `gandiva-migration`, as a trace in TOML: of one type, of which no
// two fit on one accelerator, so that they run alone; 1, 2 or 4 accelerators.
std::string MigrationTrace(bool quick);

// A hyperparameter search (section 6.2) of 64 trials, by a method of `gavel
// tune` that knows no good trial from a bad one until it has trained. The
// accuracy of a trial approaches one of its own, at a pace of its own, both
// drawn by the seed.
struct SearchCase {
  std::string_view method;  // tune::Method: "random", "successive_halving"
  std::string_view policy;
  int accelerators = 4;  // of one server
  uint64_t seed = 0;
  double trial_s = 7200;  // all steps of a trial, alone
};
// The seconds until a good trial has trained all its steps: one whose accuracy
// is then at least the third of the first 64. kNever: the search found none.
// INVALID_ARGUMENT: the throughputs lack Gavel's job types on the v100.
absl::StatusOr<double> TimeToGoodTrial(const SearchCase& search,
                                       const ThroughputTable& throughputs);

// A workload on which introspection is tried (section 4.2): more jobs than
// accelerators, over five hours, of random types, which keep random parts of
// their speeds beside each other, within these bounds. The policy is one of
// four, by the seed.
struct TrialWorkload {
  ThroughputTable table;
  Trace trace;
  SimulationOptions options;  // without introspection
};
TrialWorkload RandomTrialWorkload(uint64_t seed, double kept_min,
                                  double kept_max);

// The workload without and with introspection.
struct TrialOutcome {
  double gain = 0;  // of the work done, in seconds of each job alone
  uint64_t pauses_without = 0;
  uint64_t pauses_with = 0;
};
absl::StatusOr<TrialOutcome> TryIntrospection(const TrialWorkload& workload);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_GANDIVA_H_
