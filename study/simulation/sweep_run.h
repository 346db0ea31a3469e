// Many simulations on several threads, each run kept in a results database as
// soon as it ends. Sweeps and reproductions of the paper's results are made of
// it. A sweep that was stopped resumes where it was.
//
// Run() is called once, from one thread; Stop() from any.
#ifndef GAVEL_STUDY_SIMULATION_SWEEP_RUN_H_
#define GAVEL_STUDY_SIMULATION_SWEEP_RUN_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "study/simulation/run_labels.h"
#include "study/simulation/simulation_inputs.h"
#include "study/simulation/simulation_store.h"
#include "study/simulation/sweep_spec.h"

namespace gavel::study {

struct SweepOptions {
  int threads = 1;
  // Runs that ended in an error or timeout before are run again; else they
  // count as done, as all others in the database do.
  bool retry = false;
};

struct EndedRun {
  std::string label;  // its differences from the sweep's other runs
  StoredRun run;      // without jobs, usage and leases
};

// How far a sweep is. A search counts as its most runs until it has ended.
struct SweepProgress {
  size_t runs = 0;     // to do in all, without those that were there before
  size_t done = 0;     // of these
  size_t skipped = 0;  // there before
  double fraction = 0;
  std::vector<std::string> active;  // "max_min_fairness_perf, 2.5 jobs/h  45 %"
  // Of runs that have ended since the last call, in that order.
  std::vector<EndedRun> ended;
};

struct SearchAnswer {
  SimulationSpec spec;  // without its rate
  double rate_per_h = 0;
  bool at_upper_end = false;
  double capacity_per_h = 0;  // SimulationInputs
};

struct SweepOutcome {
  bool stopped = false;  // with something left to do
  // Of the sweep's runs those that are known, without jobs, in its order.
  std::vector<StoredRun> runs;
  std::vector<SearchAnswer> searches;
};

class Sweep {
 public:
  // Borrows all but `spec`.
  Sweep(SweepSpec spec, const SweepOptions& options, SimulationStore& store,
        SimulationInputCache& inputs, MakeSimulation make);

  // `show` is called a few times a second by this thread, and at the end. The
  // database's error ends it; a run's error is one of its results.
  absl::StatusOr<SweepOutcome> Run(
      const std::function<void(const SweepProgress&)>& show);
  void Stop() { stop_ = true; }

 private:
  struct Active {
    std::string label;
    double fraction = 0;
  };

  // Leaves in tasks_ what is not known yet.
  absl::Status Prepare();
  // Each thread takes one task after the other.
  void Work();
  void Search(SimulationSpec spec);
  // The result, from the database if it is there; nothing when stopped.
  std::optional<StoredRun> Obtain(const SimulationSpec& spec);
  std::optional<StoredRun> Simulate(const SimulationSpec& spec,
                                    const std::string& key);
  Watched RunWatched(const SimulationSpec& spec, Active* active);
  std::string LabelOf(const SimulationSpec& spec) const;
  bool IsSettled(const StoredRun& run) const;
  void Fail(const absl::Status& status);  // with mutex_ held
  SweepProgress Look();
  absl::StatusOr<SweepOutcome> Outcome();

  const SweepSpec spec_;
  const RunLabels labels_;
  const SweepOptions options_;
  SimulationStore& store_;
  SimulationInputCache& inputs_;
  const MakeSimulation make_;
  std::vector<SimulationSpec> tasks_;  // not changed while threads work
  std::atomic<bool> stop_ = false;
  std::atomic<size_t> next_ = 0;

  // Of the standard library: the thread sanitizer does not see into Debian's
  // absl::Mutex.
  std::mutex mutex_;  // guards all below
  std::condition_variable idle_;
  absl::Status error_;
  std::map<std::string, StoredRun> known_;
  std::set<const Active*> active_;
  std::vector<EndedRun> ended_;
  std::vector<SearchAnswer> answers_;
  size_t total_ = 0;
  size_t done_ = 0;
  size_t skipped_ = 0;
  int working_ = 0;
};

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SWEEP_RUN_H_
