// One simulation as its user describes it, for `gavel simulate`, `sweep` and
// `reproduce`, the key columns of the results database, and names for runs
// without what all of them have in common. Pure. Values, thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_SPEC_H_
#define GAVEL_STUDY_SIMULATION_SPEC_H_

#include <concepts>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/engine/engine.h"
#include "core/text.h"

namespace gavel::study {

// A figure that there is not.
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct SimulationSpec {
  // The scheduler.
  std::string policy = "max_min_fairness_perf";
  std::string cluster = "v100:36,p100:36,k80:36";  // ParseCluster
  std::string mechanism = "gavel";                 // FindMechanism
  std::string queue = "global";                    // FindQueue
  double round_duration_s = 360;
  double reset_interval_s = 0;  // EngineOptions
  double memory_rounds = EngineOptions().memory_rounds;
  bool placement_sensitive = false;
  bool introspection = false;  // EngineOptions
  bool ideal = false;
  // The throughputs of pairs are estimated (Profiling).
  bool estimator = false;
  double profiling_percentage = 20;  // (0, 100]
  int reference_models = 26;         // of each scale factor
  double profiling_cell_s = 60;
  // Costs and failures.
  std::string overheads = "none";  // ParseOverheads, or a file
  std::string prices = "none";     // PriceSeries::Constant, or a file
  double failures_per_hour = 0;    // of each accelerator
  double checkpoint_interval_s = 600;
  double lying_apps = 0;      // Lies::part
  double lie = 2;             // Lies::factor
  double sensitive_apps = 0;  // SpreadLoss::part
  double spread_speed = 0.5;  // SpreadLoss::keeps
  // The jobs.
  std::string trace;        // file; empty: generated
  std::string throughputs;  // file
  // Jobs of a trace that the throughput file has no row for: "error", or
  // "equal": equally fast on all types. Not one of the fields below.
  std::string unknown_types = "error";
  // Columns of a CSV trace that are left out, as ParseTrace. Likewise.
  std::string ignore_columns;
  uint64_t jobs = 0;      // of a generated trace; 0: as the window needs
  double rate_per_h = 0;  // mean arrivals; 0: all jobs at time 0
  bool multi_gpu = false;
  bool multi_priority = false;
  bool slos = false;
  double fixed_duration_s = 0;  // 0: drawn
  int app_jobs_max = 0;         // GeneratorOptions, as the next three
  double interactive = 0;
  double interactive_shortest_s = 600;
  double interactive_longest_s = 7200;
  int scale_factor_max = 8;
  uint64_t seed = 0;
  // The measurement.
  uint64_t window_begin = 0;
  uint64_t window_end = 0;  // 0: to the last job
  bool steady_state = false;
  double time_limit_s = 0;  // simulated; 0: none
  friend bool operator==(const SimulationSpec&,
                         const SimulationSpec&) = default;
};

// Calls visit(name, field) for each field: std::string, double, bool, int or
// uint64_t. The names are columns, JSON keys and TOML keys.
template <class Spec, class Visitor>
void VisitFields(Spec& spec, const Visitor& visit) {
  visit("policy", spec.policy);
  visit("cluster", spec.cluster);
  visit("mechanism", spec.mechanism);
  visit("queue", spec.queue);
  visit("round_duration_s", spec.round_duration_s);
  visit("reset_interval_s", spec.reset_interval_s);
  visit("memory_rounds", spec.memory_rounds);
  visit("placement_sensitive", spec.placement_sensitive);
  visit("introspection", spec.introspection);
  visit("ideal", spec.ideal);
  visit("estimator", spec.estimator);
  visit("profiling_percentage", spec.profiling_percentage);
  visit("reference_models", spec.reference_models);
  visit("profiling_cell_s", spec.profiling_cell_s);
  visit("overheads", spec.overheads);
  visit("prices", spec.prices);
  visit("failures_per_hour", spec.failures_per_hour);
  visit("checkpoint_interval_s", spec.checkpoint_interval_s);
  visit("lying_apps", spec.lying_apps);
  visit("lie", spec.lie);
  visit("sensitive_apps", spec.sensitive_apps);
  visit("spread_speed", spec.spread_speed);
  visit("trace", spec.trace);
  visit("throughputs", spec.throughputs);
  visit("jobs", spec.jobs);
  visit("rate_per_h", spec.rate_per_h);
  visit("multi_gpu", spec.multi_gpu);
  visit("multi_priority", spec.multi_priority);
  visit("slos", spec.slos);
  visit("fixed_duration_s", spec.fixed_duration_s);
  visit("app_jobs_max", spec.app_jobs_max);
  visit("interactive", spec.interactive);
  visit("interactive_shortest_s", spec.interactive_shortest_s);
  visit("interactive_longest_s", spec.interactive_longest_s);
  visit("scale_factor_max", spec.scale_factor_max);
  visit("seed", spec.seed);
  visit("window_begin", spec.window_begin);
  visit("window_end", spec.window_end);
  visit("steady_state", spec.steady_state);
  visit("time_limit_s", spec.time_limit_s);
}

// "4000:5000", "4000:" or ":5000".
absl::Status ParseWindow(const std::string& text, SimulationSpec* spec);

// Finds errors without reading a file: a policy, mechanism or queue that does
// not exist, no jobs, an empty window, numbers out of range. The remedies name
// the options of `gavel simulate`.
absl::Status CheckSpec(const SimulationSpec& spec);

// How many jobs a generated trace has: `jobs`, or enough for others to keep
// arriving until those of the window have ended.
uint64_t GeneratedJobs(const SimulationSpec& spec);

// Whether `value` of the field `name` names a file, and not the thing itself.
bool NamesFile(std::string_view name, std::string_view value);

// The nearest value of 12 decimal digits: 0.6 for 0.6000000000000001.
double RoundDecimal(double value);

// A field as text: the shortest that reads back, "true" and "false".
std::string FieldText(double value);
template <class T>
std::string FieldText(const T& value) {
  if constexpr (std::same_as<T, bool>) return value ? "true" : "false";
  return StrCat(value);
}

// ---- names for runs

class RunLabels {
 public:
  explicit RunLabels(const std::vector<SimulationSpec>& specs);

  // The scheduler: "max_min_fairness_perf, move_aware". It names the policy
  // always, and the rest where it varies.
  std::string Scheduler(const SimulationSpec& spec) const;
  // The jobs and the cluster, without rate, seed and number of jobs:
  // "v100:4,p100:4, multi gpu". May be empty.
  std::string Workload(const SimulationSpec& spec) const;
  // The two, and load and seed where they vary: "fifo, 2.5 jobs/h, seed 1".
  std::string Run(const SimulationSpec& spec) const;
  // Names of all fields that vary, and their texts (files without folders).
  const std::vector<std::string>& varying() const { return names_; }
  std::vector<std::string> Texts(const SimulationSpec& spec) const;

 private:
  bool Varies(std::string_view name) const { return varying_.count(name) > 0; }
  std::string Join(const SimulationSpec& spec, bool scheduler) const;

  std::vector<std::string> names_;
  std::set<std::string, std::less<>> varying_;
};

// The specs of runs, or of any other structs with a field `spec`.
template <class Run>
std::vector<SimulationSpec> SpecsOf(const std::vector<Run>& runs) {
  std::vector<SimulationSpec> specs;
  for (const Run& run : runs) specs.push_back(run.spec);
  return specs;
}

// The load of a run: its rate, or the trace's name, or "n jobs at once".
std::string LoadLabel(const SimulationSpec& spec);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SPEC_H_
