// Many simulations: the file that says what `gavel sweep` is to run, the runs
// on several threads, and the table of their results. Each run is kept in a
// results database as soon as it ends, so a sweep that was stopped resumes
// where it was. Sweeps and reproductions of the paper's results are made of it.
#ifndef GAVEL_STUDY_SWEEP_H_
#define GAVEL_STUDY_SWEEP_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "study/simulation_run.h"
#include "study/simulation_spec.h"
#include "study/simulation_store.h"

namespace gavel::study {

// ---- what `gavel sweep` is to run, as parsed from TOML. Given text, not
// files. Values, thread-safe.
//
//   throughputs = "throughputs.json"      # paths: relative to this file
//   policies = ["max_min_fairness", "max_min_fairness_perf"]
//   seeds = [0, 1, 2]
//   clusters = ["v100:36,p100:36,k80:36"]
//   rates = [1.0, 2.0, 3.0]               # jobs/h; or
//   rates = {from = 0.5, to = 6, count = 12}   # as jobs, seeds, ...
//   window = "4000:5000"
//   multi_gpu = false
//   record = "usage"                      # "none", "rounds": leases, too
//   [limits]
//   jct_h = 250      # a run whose average JCT is sure to exceed it, while its
//                    # queue grows, is given up: cannot_drain
//   wall_s = 3600    # on this machine: timeout
//   [search]         # in place of rates: the highest that can be sustained
//   rate_min = 0.5
//   rate_max = 8
//   precision = 0.1
//
// All fields of SimulationSpec are keys, and take a value or a list of them:
// one run for each combination. The plurals policies, seeds, clusters,
// mechanisms, queues, traces, rates, round_durations stand for their fields.

struct SweepSearch {
  double rate_min = 0.1;  // > 0
  double rate_max = 10;
  double precision = 0.1;  // rates are rate_min and multiples of this above
  double growth_max = kGrowthMax;
};

enum class SweepRecord : uint8_t { kNone, kUsage, kRounds };

struct SweepSpec {
  // With a search: without rates, one for each search.
  std::vector<SimulationSpec> runs;
  std::optional<SweepSearch> search;
  double jct_limit_s = 250 * 3600.0;  // RunControl
  double wall_limit_s = 0;
  SweepRecord record = SweepRecord::kUsage;
};

inline constexpr size_t kSweepBytesMax = 1024 * 1024;
inline constexpr size_t kSweepRunsMax = 100'000;

// `directory`: what paths are relative to. INVALID_ARGUMENT as
// "SOURCE:LINE:COLUMN: what; remedy"; each run has passed CheckSpec.
absl::StatusOr<SweepSpec> ParseSweep(std::string_view toml,
                                     std::string_view source,
                                     const std::string& directory);

// Finds the highest rate of arrivals that can be sustained, by bisection over
// rate_min, rate_min + precision, and so on. Not thread-safe.
class RateSearch {
 public:
  explicit RateSearch(const SweepSearch& search);

  // The rate to try; nothing when the answer is known.
  std::optional<double> Next() const;
  void Answer(bool sustainable);

  // 0: not even rate_min. Final when Next() is nothing.
  double highest() const { return low_ < 0 ? 0 : RateOf(low_); }
  // All of the range can be sustained; the true answer may lie above.
  bool at_upper_end() const { return low_ == last_; }
  // How many rates are tried at most.
  int tries_max() const;

 private:
  double RateOf(int64_t index) const;
  int64_t Candidate() const;

  SweepSearch search_;
  int64_t last_;      // index of the highest rate
  int64_t low_ = -1;  // sustained
  int64_t high_;      // not sustained, or beyond the last
};

// ---- the runs

struct SweepOptions {
  int threads = 1;
  // Runs that ended in an error or timeout before are run again; else they
  // count as done, as all others in the database do.
  bool retry = false;
};

struct EndedRun {
  std::string label;  // its differences from the sweep's other runs
  StoredRun run;      // without jobs, apps, usage and leases
};

// How far a sweep is. A search counts as its most runs until it has ended.
struct SweepProgress {
  size_t runs = 0;     // to do in all, without those that were there before
  size_t done = 0;     // of these
  size_t skipped = 0;  // there before
  double fraction = 0;
  std::vector<std::string> active;  // "max_min_fairness_perf, 2.5 jobs/h  45 %"
  // The runs that have ended since the last call, in that order.
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
  // The known ones of the sweep's runs, without jobs, in its order.
  std::vector<StoredRun> runs;
  std::vector<SearchAnswer> searches;
};

// Run() is called once, from one thread; Stop() from any.
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

  // Leaves in tasks_ the runs that are not in the database.
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

  // This is a std::mutex because the thread sanitizer does not see into
  // Debian's absl::Mutex.
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

// ---- the output

// A table of the runs, seeds pooled, or of the rates that a search found.
std::string RenderOutcome(const SweepOutcome& outcome, size_t width);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SWEEP_H_
