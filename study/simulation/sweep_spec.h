// What `gavel sweep` is to run, as parsed from TOML. Given text, not files.
// Values, thread-safe.
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
#ifndef GAVEL_STUDY_SIMULATION_SWEEP_SPEC_H_
#define GAVEL_STUDY_SIMULATION_SWEEP_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_spec.h"

namespace gavel::study {

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

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SWEEP_SPEC_H_
