#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>

#include "coordinator/server/engine_runner.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// A test and its policy share this: the problems that were solved, and when the
// policy may continue.
struct Script {
  std::mutex mutex;
  std::vector<double> solved;  // weights of the problems' first jobs
  std::promise<void> first_begun;
  std::promise<void> first_may_end;
};

// Does not finish its first problem before first_may_end is set.
class ScriptedPolicy : public Policy {
 public:
  explicit ScriptedPolicy(Script& script) : script_(script) {}
  std::string_view name() const override { return "scripted"; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    const double weight = problem.jobs.front().weight;
    if (weight == -1) return absl::InvalidArgumentError("job 1: weight -1");
    if (weight == -2) throw std::runtime_error("singular matrix");
    bool first = false;
    {
      const std::lock_guard lock(script_.mutex);
      first = script_.solved.empty();
      script_.solved.push_back(weight);
    }
    if (first) {
      script_.first_begun.set_value();
      script_.first_may_end.get_future().wait();
    }
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.objective = weight;
    return result;
  }

 private:
  Script& script_;
};

class SolverThreadTest : public Test {
 protected:
  static action::SolvePolicy Problem(uint64_t epoch, double weight) {
    PolicyProblem problem;
    PolicyJob& job = problem.jobs.emplace_back();
    job.id = JobId(1);
    job.weight = weight;
    return {epoch, std::make_shared<PolicyProblem>(std::move(problem))};
  }

  static event::AllocationReady WaitForAnswer(SolverThread& thread) {
    std::optional<event::AllocationReady> answer;
    EXPECT_TRUE(Eventually([&] {
      answer = thread.TakeAnswer();
      return answer.has_value();
    }));
    return answer.value_or(event::AllocationReady{});
  }
  std::function<void()> Notify() {
    return [this] { ++notices_; };
  }

  Script script_;
  std::atomic<int> notices_{0};
};

TEST_F(SolverThreadTest, AnswersWithTheEpochOfTheProblem) {
  script_.first_may_end.set_value();
  SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
  thread.Solve(Problem(7, 2.5));
  const event::AllocationReady answer = WaitForAnswer(thread);
  EXPECT_EQ(answer.epoch, 7u);
  EXPECT_EQ(answer.result.objective, 2.5);
  EXPECT_FALSE(thread.TakeAnswer().has_value());
}

TEST_F(SolverThreadTest, OfThoseThatWaitOnlyTheNewestIsSolved) {
  SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
  thread.Solve(Problem(1, 1));
  script_.first_begun.get_future().wait();
  for (uint64_t epoch = 2; epoch <= 9; ++epoch) {
    thread.Solve(Problem(epoch, static_cast<double>(epoch)));
  }
  script_.first_may_end.set_value();
  uint64_t epoch = 0;
  while (epoch < 9 && !HasFailure()) epoch = WaitForAnswer(thread).epoch;
  const std::lock_guard lock(script_.mutex);
  EXPECT_THAT(script_.solved, ElementsAre(1, 9));
}

TEST_F(SolverThreadTest, AnErrorOrExceptionOfThePolicyIsAnAnswer) {
  SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
  for (const auto& [weight, detail] :
       {std::pair(-1, "job 1: weight -1"), std::pair(-2, "singular matrix")}) {
    thread.Solve(Problem(3, weight));
    const event::AllocationReady answer = WaitForAnswer(thread);
    EXPECT_EQ(answer.epoch, 3u);
    EXPECT_EQ(answer.result.outcome, SolveOutcome::kFailed);
    EXPECT_THAT(answer.result.detail, HasSubstr(detail));
  }
}

// A stop, as after SIGTERM, does not wait for a solve, however long it takes.
// When that solve ends, it notifies nobody.
TEST_F(SolverThreadTest, AStopDoesNotWaitForASolve) {
  auto may_end = std::make_shared<Script>();  // outlives the thread
  std::promise<void> ended;
  class Leaves : public ScriptedPolicy {
   public:
    Leaves(std::shared_ptr<Script> script, std::promise<void>& ended)
        : ScriptedPolicy(*script), script_(std::move(script)), ended_(ended) {}
    ~Leaves() override { ended_.set_value(); }

   private:
    std::shared_ptr<Script> script_;
    std::promise<void>& ended_;
  };
  const double start = Seconds();
  {
    SolverThread thread(std::make_unique<Leaves>(may_end, ended), Notify());
    thread.Solve(Problem(1, 1));
    may_end->first_begun.get_future().wait();
    EXPECT_FALSE(thread.Stop());
  }
  EXPECT_LT(Seconds() - start, 10);
  may_end->first_may_end.set_value();
  ended.get_future().wait();
  EXPECT_EQ(notices_, 0);
}

}  // namespace
}  // namespace gavel::testing
