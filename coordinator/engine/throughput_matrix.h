// Throughputs of jobs by accelerator type, each with where it comes from. The
// engine owns one and asks it for the rows of a policy problem. Not
// thread-safe. Gavel section 6; given before measured before guessed is never
// silent: `gavel why` says which.
//
// Given figures are priors: they count like kPrior_s of measuring of their own,
// so that measurements correct them the more, the more there are, and those
// count for less as they age (half as much after kHalfLife_s). Estimates are
// not: they hold until something was measured there. Blended with it they would
// come back to the estimator, as evidence for themselves.
#ifndef GAVEL_COORDINATOR_ENGINE_THROUGHPUT_MATRIX_H_
#define GAVEL_COORDINATOR_ENGINE_THROUGHPUT_MATRIX_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// The median of figures. Pure function, thread-safe.

// The median of at least one value; for an even number, the mean of the middle
// two.
inline double Median(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

// Which accelerators are slower than others of their type: a failing fan, a
// throttled clock, another user's process. Told by jobs that ran alone on
// several of them, whatever their own speed. The engine owns one. Not
// thread-safe.
class AcceleratorSpeeds {
 public:
  // So much slower than the others makes a straggler, and so many jobs must say
  // so: one alone may have changed itself.
  static constexpr double kSlowMax = 0.85;
  static constexpr size_t kJobsMin = 2;

  // `job` made so many steps/s alone on one accelerator of that type, over
  // window_s > 0. Ignored unless finite and > 0.
  void Measure(JobId job, std::string_view type, AcceleratorId accelerator,
               double steps_per_s, double window_s);
  // Its figures of accelerators stay, for the last kJobsKept jobs of each.
  void RemoveJob(JobId job);
  // Drops all figures of the accelerator. Call this when its agent restarts.
  void Forget(AcceleratorId accelerator);

  // (0, kSlowMax]: a straggler's part of its type's speed, the median over the
  // jobs of their steps/s there by the median of those on others; else 1.
  double Of(AcceleratorId accelerator) const;
  bool any() const { return !slow_.empty(); }
  // All stragglers, as Of.
  const std::map<AcceleratorId, double>& slow() const { return slow_; }

  // All state, for snapshots.
  struct Rate {
    double steps_per_s = 0;  // mean over about the last minute there
    double weight_s = 0;
  };
  template <class S>
  static auto State(S& s) {
    return std::tie(s.rates_, s.ratios_, s.slow_);
  }

 private:
  static constexpr size_t kJobsKept = 16;
  using Rates = std::map<AcceleratorId, Rate>;
  // The latest value of each job; the latest of all comes last.
  using Ratios = std::vector<std::pair<JobId, double>>;

  void Compare(JobId job, const Rates& rates, AcceleratorId accelerator);

  std::map<std::pair<JobId, std::string>, Rates> rates_;
  std::map<AcceleratorId, Ratios> ratios_;
  std::map<AcceleratorId, double> slow_;
};

// kGuessed: there is no figure of this job on this type; the value is derived
// from its own other types and the ratios of other jobs. kGiven: by the user.
// kMeasured: reported by the job's workers; then it counts more than the given
// figure.
enum class ThroughputSource : uint8_t { kGuessed, kGiven, kMeasured };

struct Throughput {
  double steps_per_s = 0;  // >= 0; 0: cannot run there
  ThroughputSource source = ThroughputSource::kGuessed;
};

class ThroughputMatrix {
 public:
  static constexpr double kPrior_s = 1;
  static constexpr double kHalfLife_s = 3600;
  // A given figure, or one of before, that is off by more is worth telling.
  static constexpr double kWorthTelling = 0.2;

  // `given`: steps/s by type name, as in JobSpec::throughputs, with
  // `scale_factor` workers; so are all figures that name no other number.
  void AddJob(JobId job, const std::map<std::string, double>& given,
              int scale_factor = 1);
  // On types that the job has no figure of yet.
  void AddGiven(JobId job, const std::map<std::string, double>& given);
  void RemoveJob(JobId job);
  // A measurement over `window_s` > 0 seconds of running. Weighted mean over
  // about the last minute of running. Ignored unless finite and > 0.
  // Returns true when the figure has moved by more than 5 % since the last
  // time that this returned true: the policy should be solved again. `now`: of
  // any clock that does not fall.
  bool Measure(JobId job, std::string_view type, double steps_per_s,
               double window_s, Time now = 0);

  // Sets an estimate for types without a figure of its own, steps/s > 0 by
  // type. It is a better guess, forgotten where the job is measured, and
  // replaces earlier estimates.
  void Estimate(JobId job, std::map<std::string, double> steps_per_s);

  // Known figure, else the estimate, else the guess: for each type that the job
  // knows, its figure there times the median ratio, over jobs that know both
  // types, of the asked type to the known one; the mean of these. Without any
  // ratio, the job's own mean; without any figure, 1 (all types alike). Zeros
  // ("cannot run there") count in no guess, and a guess is never 0.
  Throughput Get(JobId job, std::string_view type) const;
  // Changes whenever some figure of a job that is there was measured, excluded
  // or readmitted: until then, whether a job can run on a type stays the same.
  uint64_t version() const { return version_; }
  // True when the type has neither a given nor a measured figure: it should
  // get a bounded trial turn there.
  bool NeedsTrial(JobId job, std::string_view type) const;

  // The job is not to run on these, whatever is known of it there: 0. In place
  // of earlier ones. Not part of State.
  void SetBarred(JobId job, std::set<std::string, std::less<>> types);
  bool IsBarred(JobId job, std::string_view type) const;

  // ---- elastic jobs: with another number of workers than they asked for

  // As Measure.
  bool MeasureSize(JobId job, std::string_view type, int workers,
                   double steps_per_s, double window_s, Time now = 0);
  // As Get. A size that was not measured is guessed by ratio from the nearest
  // known number of workers, of two the smaller: throughput grows with the
  // number of workers to the power kScalingExponent.
  Throughput AtSize(JobId job, std::string_view type, int workers) const;
  // It can't run with so many there, or more: 0, until Readmit.
  void ExcludeSize(JobId job, std::string_view type, int workers);
  // The median over the 168 models, types and sizes (2 to 8 workers,
  // consolidated) of the Gavel paper's throughput file is 0.79, half of them
  // lie between 0.56 and 0.92.
  static constexpr double kScalingExponent = 0.8;

  // ---- two jobs beside each other on one accelerator

  // As Measure, for `job` while it ran beside `other`. `prior`: the estimate
  // before this measurement; 0: there was none.
  bool MeasureTogether(JobId job, JobId other, std::string_view type,
                       double steps_per_s, double window_s, double prior = 0,
                       Time now = 0);
  // The measured throughput of `job` beside `other`; 0 when they ran out of
  // memory there; nullopt: not known.
  std::optional<double> Together(JobId job, JobId other,
                                 std::string_view type) const;
  bool has_pairs() const { return !pairs_.empty(); }
  // The jobs for which Together has a value, beside any other job, that differs
  // from the earlier estimate: other jobs of their kind can't stand for them.
  std::set<JobId> UnlikeTheirKind() const;

  // ---- out of memory: 0 there, whatever was given or measured

  void Exclude(JobId job, std::string_view type);
  void ExcludePair(JobId job, JobId other, std::string_view type);
  // Takes the job's exclusions back, alone and in pairs; false: it had none.
  bool Readmit(JobId job);
  bool IsExcluded(JobId job, std::string_view type) const;
  bool HasExclusions(JobId job) const;

  // How measurements differ from earlier figures: a given figure that they
  // contradict by more than kWorthTelling, and a speed that has moved by more
  // than that from its mean over about the last kHalfLife_s. -1: nothing to
  // report, or not enough measured (kTellingMin_s).
  struct Contradiction {
    double measured = -1;
    double given = -1;
    double before = -1;
  };
  Contradiction Contradicted(JobId job, std::string_view type) const;
  static constexpr double kTellingMin_s = 10;

  // All state, for snapshots.
  struct Figure {
    double given = -1;      // -1: none
    double measured = -1;   // -1: none
    double announced = -1;  // when Measure last returned true, or before it all
    double measured_weight_s = 0;
    bool out_of_memory = false;
    double seen_s = 0;  // measured in all, as it has aged
    double usual = -1;  // mean of all that, -1: none
    Time measured_at = 0;
    double Value() const {
      if (out_of_memory) return 0;
      if (measured < 0) return given;
      // "Can't run there" was wrong then.
      if (!(given > 0)) return measured;
      return (kPrior_s * given + seen_s * measured) / (kPrior_s + seen_s);
    }
  };
  // The figures of both jobs of a pair, in the order of the pair.
  using PairFigure = std::pair<Figure, Figure>;
  template <class M>
  static auto State(M& matrix) {
    return std::tie(matrix.figures_, matrix.pairs_, matrix.sizes_,
                    matrix.scale_factors_, matrix.version_);
  }

 private:
  using Figures = absl::btree_map<std::string, Figure, std::less<>>;
  using PairFigures = absl::btree_map<std::string, PairFigure, std::less<>>;

  double Estimated(JobId job, std::string_view type) const;  // 0: not known
  double Guess(const Figures& figures, std::string_view type) const;
  // Median of type / other; 0 when no job knows both.
  double Ratio(std::string_view type, std::string_view other) const;

  // Null: there is none.
  const Figure* FindFigure(JobId job, std::string_view type) const;
  const PairFigure* FindPair(JobId job, JobId other,
                             std::string_view type) const;

  absl::flat_hash_map<JobId, Figures> figures_;
  std::map<ShareUnit, PairFigures> pairs_;
  std::map<std::pair<JobId, int>, Figures> sizes_;  // by number of workers
  absl::flat_hash_map<JobId, int> scale_factors_;   // of figures_
  std::map<JobId, std::map<std::string, double, std::less<>>> estimates_;
  absl::flat_hash_map<JobId, std::set<std::string, std::less<>>> barred_;
  uint64_t version_ = 1;
  // Ratios by (type, other), filled on demand and dropped at each change: the
  // rows of one problem share them.
  mutable std::map<std::pair<std::string, std::string>, double> ratios_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_THROUGHPUT_MATRIX_H_
