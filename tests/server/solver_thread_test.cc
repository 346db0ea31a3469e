#include "coordinator/server/solver_thread.h"

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"

namespace gavel::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a test and its policy share: who was solved, and when it may go on.
struct Script {
  std::mutex mutex;
  std::vector<double> solved;  // weights of the problems' first jobs
  std::promise<void> first_begun;
  std::promise<void> first_may_end;
};

// Stays with its first problem until it is let go.
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

class SolverThreadTest : public ::testing::Test {
 protected:
  static action::SolvePolicy Problem(uint64_t epoch, double weight) {
    PolicyProblem problem;
    PolicyJob& job = problem.jobs.emplace_back();
    job.id = JobId(1);
    job.weight = weight;
    return {epoch, std::make_shared<PolicyProblem>(std::move(problem))};
  }

  event::AllocationReady WaitForAnswer(SolverThread& thread) {
    while (true) {
      if (auto answer = thread.TakeAnswer()) return *std::move(answer);
      std::unique_lock lock(mutex_);
      const auto told = [this] { return notices_ > 0; };
      if (!changed_.wait_for(lock, std::chrono::seconds(20), told)) {
        ADD_FAILURE() << "no answer";
        return {};
      }
      --notices_;
    }
  }
  std::function<void()> Notify() {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++notices_;
      changed_.notify_all();
    };
  }

  Script script_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int notices_ = 0;
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

TEST_F(SolverThreadTest, AnErrorOfThePolicyIsAnAnswer) {
  SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
  thread.Solve(Problem(3, -1));
  const event::AllocationReady answer = WaitForAnswer(thread);
  EXPECT_EQ(answer.epoch, 3u);
  EXPECT_EQ(answer.result.outcome, SolveOutcome::kFailed);
  EXPECT_THAT(answer.result.detail, HasSubstr("job 1: weight -1"));
}

TEST_F(SolverThreadTest, AnExceptionOfTheSolverIsAnAnswer) {
  SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
  thread.Solve(Problem(4, -2));
  const event::AllocationReady answer = WaitForAnswer(thread);
  EXPECT_EQ(answer.result.outcome, SolveOutcome::kFailed);
  EXPECT_THAT(answer.result.detail, HasSubstr("singular matrix"));
}

// A stop, as by SIGTERM, does not wait for a solve, however long it takes; and
// that one tells nobody any more.
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
  const auto start = std::chrono::steady_clock::now();
  {
    SolverThread thread(std::make_unique<Leaves>(may_end, ended), Notify());
    thread.Solve(Problem(1, 1));
    may_end->first_begun.get_future().wait();
    EXPECT_FALSE(thread.Stop());
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10);
  may_end->first_may_end.set_value();
  ended.get_future().wait();
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(notices_, 0);
}

TEST_F(SolverThreadTest, EndsWithoutSolvingWhatWaits) {
  {
    SolverThread thread(std::make_unique<ScriptedPolicy>(script_), Notify());
    thread.Solve(Problem(1, 1));
    script_.first_begun.get_future().wait();
    thread.Solve(Problem(2, 2));
    script_.first_may_end.set_value();
    // Whether 2 was begun before the end is a matter of luck; hanging is not.
  }
  const std::lock_guard lock(script_.mutex);
  EXPECT_LE(script_.solved.size(), 2u);
}

}  // namespace
}  // namespace gavel::testing
