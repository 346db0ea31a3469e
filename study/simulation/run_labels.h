// Names for runs, without what all of them have in common. Pure. A value,
// thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_RUN_LABELS_H_
#define GAVEL_STUDY_SIMULATION_RUN_LABELS_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "study/simulation/simulation_spec.h"

namespace gavel::study {

class RunLabels {
 public:
  explicit RunLabels(const std::vector<SimulationSpec>& specs);

  // What schedules: "max_min_fairness_perf, move_aware". The policy always, the
  // rest where it varies.
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

// Of runs, or of what else has a `spec`.
template <class Run>
std::vector<SimulationSpec> SpecsOf(const std::vector<Run>& runs) {
  std::vector<SimulationSpec> specs;
  for (const Run& run : runs) specs.push_back(run.spec);
  return specs;
}

// The load of a run: its rate, or the trace's name, or "n jobs at once".
std::string LoadLabel(const SimulationSpec& spec);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_RUN_LABELS_H_
