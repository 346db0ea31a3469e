// Searches for tests, and a world in which trials train in any order.
#ifndef GAVEL_TESTS_TUNE_SEARCHES_H_
#define GAVEL_TESTS_TUNE_SEARCHES_H_

#include <functional>
#include <random>

#include "coordinator/tune/optimiser.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::tune {

// A search over lr with these further keys; a mistake in them fails the test.
inline SearchSpec SearchOf(const std::string& keys) {
  const absl::StatusOr<SearchSpec> spec = ParseSearchSpec(
      StrCat("name = 's'\nmetric = 'loss'\n", keys,
             "\n[[parameter]]\nname = 'lr'\nkind = 'log_uniform'\n"
             "min = 1e-4\nmax = 1\npoints = 4\n"),
      "search.toml");
  EXPECT_OK(spec);
  return spec.value_or(SearchSpec());
}

// The metric of a trial at some steps; nothing: it fails.
using Metric = std::function<std::optional<double>(const Segment&)>;

// Carries a search out; `seed` chooses which of the running segments ends next.
class World {
 public:
  World(SearchSpec spec, Metric metric, unsigned seed = 0)
      : spec_(std::move(spec)), metric_(std::move(metric)), random_(seed) {}

  // Begins what the plan wants and ends one segment. False: over.
  bool Step() {
    const Plan plan = Decide(spec_, begun_, answers_);
    if (plan.question) {
      answers_.push_back(answer(*plan.question));
      return true;
    }
    if (plan.over) return false;
    std::vector<size_t> running;
    for (size_t i = 0; i < begun_.size(); ++i) {
      if (begun_[i].outcome == Outcome::kRunning) running.push_back(i);
    }
    for (const Segment& segment : plan.next) {
      if (running.size() >= static_cast<size_t>(spec_.trials_at_once)) break;
      running.push_back(begun_.size());
      begun_.push_back({segment});
    }
    EXPECT_FALSE(running.empty()) << "nothing runs, and it is not over";
    if (running.empty()) return false;
    SegmentRecord& one = begun_[running[random_() % running.size()]];
    const std::optional<double> value = metric_(one.segment);
    one.outcome = value ? Outcome::kDone : Outcome::kFailed;
    one.value = value.value_or(0);
    return true;
  }
  void RunToEnd() {
    while (Step()) {
    }
  }

  const std::vector<SegmentRecord>& begun() const { return begun_; }
  // The segments that were begun, by trial and steps.
  std::map<std::pair<int, uint64_t>, Segment> Segments() const {
    std::map<std::pair<int, uint64_t>, Segment> segments;
    for (const SegmentRecord& one : begun_) {
      segments[{one.segment.trial, one.segment.to_steps}] = one.segment;
    }
    return segments;
  }
  // Trials that trained to each number of steps.
  std::map<uint64_t, int> Rungs() const {
    std::map<uint64_t, int> rungs;
    for (const SegmentRecord& one : begun_) ++rungs[one.segment.to_steps];
    return rungs;
  }

  // The program of Method::kProgram.
  std::function<Answer(const Question&)> answer = [](const Question& asked) {
    return Answer{asked.trial, asked.steps, false, {"0.1"}};
  };

 private:
  const SearchSpec spec_;
  const Metric metric_;
  std::mt19937 random_;
  std::vector<SegmentRecord> begun_;
  std::vector<Answer> answers_;
};

// A trial is the better, the lower its number.
inline std::optional<double> ByNumber(const Segment& segment) {
  return segment.trial + 1.0 / static_cast<double>(segment.to_steps);
}

// As good as chance would have it, by trial and steps; each ninth fails.
inline std::optional<double> ByChance(const Segment& segment) {
  const double value =
      Draw(7, static_cast<uint64_t>(segment.trial), segment.to_steps, 1);
  if (value < 1.0 / 9) return std::nullopt;
  return value;
}

}  // namespace gavel::tune

#endif  // GAVEL_TESTS_TUNE_SEARCHES_H_
