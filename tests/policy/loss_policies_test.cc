// Loss curves, and the policies that predict training from them: Optimus
// (EuroSys'18) and SLAQ (SoCC'17). Suites and comments name their sections.
#include <cmath>
#include <random>

#include "coordinator/policy/policies.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

// The losses of job `job` at steps `every`, 2 `every`, ...
template <class Loss>
std::vector<PolicyLoss> LossesOf(size_t job, int count, double every,
                                 const Loss& loss) {
  std::vector<PolicyLoss> points;
  for (int i = 1; i <= count; ++i) {
    points.push_back({job, i * every, loss(i * every)});
  }
  return points;
}

double Reciprocal(double steps) { return 1 / (0.02 * steps + 0.4) + 0.3; }
double Exponential(double steps) { return 2 * std::exp(-0.001 * steps) + 1; }
double Sublinear(double steps) {
  return 1 / (1e-6 * steps * steps + 1e-3 * steps + 0.5) + 0.1;
}

// Adds the losses of a job whose steps_done are those of the last point.
void Train(PolicyProblem& problem, const std::vector<PolicyLoss>& points) {
  problem.losses.insert(problem.losses.end(), points.begin(), points.end());
  problem.jobs[points.front().job].steps_done = points.back().steps;
}

// ---- curves

// Optimus, section 3.1: the curve through the first steps tells the rest.
TEST(LossCurve, TellsTheRestOfTheTrainingFromItsBegin) {
  const struct {
    CurveFamily family;
    double (*loss)(double);
  } cases[] = {{CurveFamily::kReciprocal, Reciprocal},
               {CurveFamily::kSublinear, Sublinear},
               {CurveFamily::kExponential, Exponential}};
  for (const auto& [family, loss] : cases) {
    const auto curve = FitCurve(LossesOf(0, 20, 100, loss), family);
    ASSERT_TRUE(curve.has_value());
    EXPECT_LT(curve->error, 1e-6);
    for (const double steps : {100, 1000, 2000, 4000, 8000}) {
      EXPECT_NEAR(curve->At(steps), loss(steps), 0.02 * loss(steps))
          << static_cast<int>(family) << " at " << steps;
    }
  }
}

TEST(LossCurve, NoiseLeavesTheTrend) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> noise(-0.02, 0.02);
  const auto points = LossesOf(0, 32, 50, [&](double steps) {
    return Reciprocal(steps) * (1 + noise(random));
  });
  const auto curve = FitCurve(points, CurveFamily::kReciprocal);
  ASSERT_TRUE(curve.has_value());
  EXPECT_NEAR(curve->At(3200), Reciprocal(3200), 0.1 * Reciprocal(3200));
}

// SLAQ, section 3.2: recent losses weigh more.
TEST(LossCurve, DecayFollowsTheRecentLosses) {
  const auto points = LossesOf(0, 30, 10, [](double steps) {
    return steps <= 150 ? 5 - steps / 100 : Exponential(10 * steps);
  });
  const double next = Exponential(3200);
  const auto error = [&](double decay) {
    const auto curve = FitCurve(points, CurveFamily::kExponential, decay);
    return curve ? std::abs(curve->At(320) - next) : 1e9;
  };
  EXPECT_LT(error(0.6), error(1));
}

TEST(LossCurve, ThereIsNoneWithoutAFallingLoss) {
  const auto fit = [](std::vector<double> losses) {
    std::vector<PolicyLoss> points;
    for (const double loss : losses) {
      points.push_back(
          {0, 10.0 * static_cast<double>(points.size() + 1), loss});
    }
    return FitCurve(points, CurveFamily::kReciprocal).has_value();
  };
  EXPECT_TRUE(fit({4, 3, 2.5, 2.2}));
  EXPECT_TRUE(fit({-1, -2, -2.5, -2.7}));
  EXPECT_FALSE(fit({}));
  EXPECT_FALSE(fit({4, 3, 2}));
  EXPECT_FALSE(fit({2, 2, 2, 2}));
  EXPECT_FALSE(fit({1, 2, 3, 4}));
  EXPECT_FALSE(fit({2, 1, 3, 2}));
}

// Whatever a program reports, the curve is one that can be evaluated.
TEST(LossCurve, AnyLossesGiveANumberOrNothing) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> exponent(-12, 12);
    std::vector<PolicyLoss> points;
    double steps = 0;
    for (size_t i = 0; i < 4 + random() % 29; ++i) {
      steps += std::pow(10, exponent(random));
      const double loss = std::pow(10, exponent(random));
      points.push_back({0, steps, random() % 4 == 0 ? -loss : loss});
    }
    for (const CurveFamily family :
         {CurveFamily::kReciprocal, CurveFamily::kSublinear,
          CurveFamily::kExponential}) {
      const auto curve = FitCurve(points, family, 0.9);
      if (!curve) continue;
      const double now = curve->At(steps);
      const double later = curve->At(2 * steps);
      ASSERT_TRUE(std::isfinite(now) && std::isfinite(later));
      EXPECT_LE(later, now);
      EXPECT_GE(later, curve->d);
    }
  }
}

// ---- Optimus

// Two jobs of as many steps to go; the first one has nearly converged.
PolicyProblem TwoOfOneLength() {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.round_s = 60;
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 100'000;
  return problem;
}

// Optimus, section 3.1: the steps left are those until convergence.
TEST(Optimus, AJobThatConvergesSoonGoesFirst) {
  PolicyProblem problem = TwoOfOneLength();
  Train(problem, LossesOf(1, 10, 10, Reciprocal));
  // It has converged at step 1980, and the other job goes on to its last step.
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Optimus, WithoutACurveTheStepsLeftCount) {
  PolicyProblem problem = TwoOfOneLength();
  problem.jobs[1].steps_remaining = 50'000;
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{2, 0}, 0}}));
  // A curve that says more than steps_total does not count beyond that.
  Train(problem, LossesOf(0, 10, 10, [](double steps) {
          return 1 / (1e-8 * steps + 0.4);
        }));
  problem.jobs[0].steps_remaining = 60'000;
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{2, 0}, 0}}));
  problem.jobs[0].steps_remaining = 40'000;
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Optimus, AJobThatTrainsBeyondItsConvergenceHasItsStepsLeft) {
  PolicyProblem problem = TwoOfOneLength();
  problem.jobs[1].steps_remaining = 50'000;
  // It should have converged at step 1980, and is at 3000.
  Train(problem, LossesOf(0, 30, 100, Reciprocal));
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Optimus, AGangNeedsItsAcceleratorTimeToBeWorthIt) {
  PolicyProblem problem = MakeProblem({4}, {{3}, {1}});
  problem.jobs[0].scale_factor = 4;
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 1000;
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{2, 0}, 0}}));
  problem.throughputs[0] = 5;
  EXPECT_EQ(AssignedBy("optimus", problem), (Assigned{{{1, 0}, 0}}));
}

// An elastic job of 1 to `most` workers, which is f(w) = w^exponent as fast.
void MakeElastic(PolicyProblem& problem, size_t job, int most,
                 double exponent) {
  PolicySizes sizes{job, 1, {}};
  for (int workers = 1; workers <= most; ++workers) {
    sizes.steps_per_s.push_back(std::pow(workers, exponent));
  }
  problem.sizes.push_back(std::move(sizes));
}

std::map<JobId, int> Workers(std::string_view policy,
                             const PolicyProblem& problem) {
  std::map<JobId, int> workers;
  for (const TypeAssignment& entry : Solved(policy, problem).assignment) {
    workers[entry.unit.job] = entry.workers;
  }
  return workers;
}

// Optimus, section 4.1: each job has one worker before another has two, and
// then the next worker goes where it shortens the remaining time most.
TEST(Optimus, AWorkerGoesWhereItShortensTheRemainingTimeMost) {
  PolicyProblem problem = MakeProblem({6}, {{1}, {1}, {1}});
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 1000;
  problem.jobs[1].steps_remaining = 4000;
  MakeElastic(problem, 0, 8, 1);
  MakeElastic(problem, 1, 8, 1);
  // Seconds saved by one more worker: 500, 167 for job 1; 2000, 667, 333 for
  // job 2. Job 3 is not elastic.
  EXPECT_THAT(Workers("optimus", problem),
              ElementsAre(std::pair(JobId(1), 2), std::pair(JobId(2), 3),
                          std::pair(JobId(3), 0)));
}

// Optimus, section 3.2: the speed model says that more workers do not pay.
TEST(Optimus, WorkersThatGainNothingAreLeftIdle) {
  PolicyProblem problem = MakeProblem({6}, {{1}, {1}});
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 1000;
  MakeElastic(problem, 0, 6, 0);
  MakeElastic(problem, 1, 2, 1);
  EXPECT_THAT(Workers("optimus", problem),
              ElementsAre(std::pair(JobId(1), 1), std::pair(JobId(2), 2)));
}

// ---- SLAQ

// SLAQ, section 3.3: the job whose loss falls fastest now has the accelerator,
// and the one that has nearly converged waits.
TEST(Slaq, TheSteepestLossGoesFirst) {
  PolicyProblem problem = TwoOfOneLength();
  Train(problem, LossesOf(0, 30, 100, Reciprocal));
  Train(problem, LossesOf(1, 10, 10, Reciprocal));
  EXPECT_EQ(AssignedBy("slaq", problem), (Assigned{{{2, 0}, 0}}));
  std::swap(problem.throughputs[0], problem.throughputs[1]);
  problem.throughputs = {1, 0.001};
  EXPECT_EQ(AssignedBy("slaq", problem), (Assigned{{{1, 0}, 0}}));
}

// SLAQ, section 3.1: losses of different models do not compare, so they are
// normalised.
TEST(Slaq, TheUnitOfALossDoesNotMatter) {
  for (const double unit : {1e-6, 1.0, 1e6}) {
    PolicyProblem problem = TwoOfOneLength();
    Train(problem, LossesOf(0, 30, 100, [&](double steps) {
            return unit * Reciprocal(steps);
          }));
    Train(problem, LossesOf(1, 10, 10, Reciprocal));
    EXPECT_EQ(AssignedBy("slaq", problem), (Assigned{{{2, 0}, 0}})) << unit;
  }
}

TEST(Slaq, WithoutACurveTheLossFallsEvenlyUpToTheLastStep) {
  PolicyProblem problem = TwoOfOneLength();
  problem.jobs[1].steps_remaining = 50'000;
  EXPECT_EQ(AssignedBy("slaq", problem), (Assigned{{{2, 0}, 0}}));
  // 3000 steps of a curve that has converged: the next ones bring little.
  Train(problem, LossesOf(1, 30, 1000, Reciprocal));
  EXPECT_EQ(AssignedBy("slaq", problem), (Assigned{{{1, 0}, 0}}));
}

// SLAQ, section 3.3: the worth of a worker is what the loss falls by more.
TEST(Slaq, FurtherWorkersGoToTheSteeperLoss) {
  PolicyProblem problem = TwoOfOneLength();
  problem.capacity = {6};
  Train(problem, LossesOf(0, 30, 100, Reciprocal));
  Train(problem, LossesOf(1, 10, 10, Reciprocal));
  MakeElastic(problem, 0, 8, 0.9);
  MakeElastic(problem, 1, 8, 0.9);
  EXPECT_THAT(Workers("slaq", problem),
              ElementsAre(std::pair(JobId(1), 1), std::pair(JobId(2), 5)));
}

// ---- both

TEST(LossPolicies, AJobStaysOnTheTypeWhereItRuns) {
  for (const char* policy : {"optimus", "slaq"}) {
    PolicyProblem problem = MakeProblem({1, 1}, {{1, 5}});
    problem.jobs[0].running_on = 0;
    EXPECT_EQ(AssignedBy(policy, problem), (Assigned{{{1, 0}, 0}}));
  }
}

TEST(LossPolicies, ProblemsThatAreMalformedAreRefused) {
  const auto refusal = [](const std::function<void(PolicyProblem&)>& spoil) {
    PolicyProblem problem = TwoOfOneLength();
    problem.losses = {{0, 10, 2}, {0, 20, 1}, {1, 10, 3}};
    problem.sizes = {{0, 1, {1, 2}}};
    spoil(problem);
    return CheckProblem(problem);
  };
  EXPECT_OK(refusal([](PolicyProblem&) {}));
  EXPECT_THAT(refusal([](PolicyProblem& p) { p.losses[1].steps = 10; }),
              IsInvalid("a loss of 1 at step 10 of the job at 0 of 2"));
  EXPECT_THAT(refusal([](PolicyProblem& p) { p.losses[2].job = 2; }),
              IsInvalid("of the job at 2 of 2"));
  EXPECT_THAT(
      refusal([](PolicyProblem& p) { p.losses[2].loss = std::nan(""); }),
      IsInvalid("a loss of nan"));
  EXPECT_THAT(refusal([](PolicyProblem& p) { p.sizes[0].least = 0; }),
              IsInvalid("sizes of the job at 0 of 2 from 0 workers"));
  EXPECT_THAT(refusal([](PolicyProblem& p) { p.sizes[0].steps_per_s[1] = -1; }),
              IsInvalid("sizes of the job at 0"));
}

// Jobs that are left out take their losses, sizes and places with them.
TEST(LossPolicies, AJobOfExtremeFiguresLeavesTheOthersTheirRows) {
  PolicyProblem problem = MakeProblem({1}, {{1e300}, {1}, {1}});
  problem.round_s = 60;
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 50'000;
  problem.hosts = {{AcceleratorId(1), 0, 1}};
  problem.places = {{0, 0, 1}, {2, 0, 1}};
  problem.sizes = {{0, 1, {1}}, {2, 1, {1}}};
  Train(problem, LossesOf(0, 4, 1, Reciprocal));
  Train(problem, LossesOf(2, 10, 10, Reciprocal));
  for (const auto& [policy, first] : {std::pair("optimus", 3), {"slaq", 3}}) {
    const PolicyResult result =
        GuardedSolve(*MakePolicy(policy).value(), problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    EXPECT_THAT(result.too_extreme, ElementsAre(JobId(1)));
    ASSERT_THAT(result.assignment, SizeIs(1));
    EXPECT_EQ(result.assignment[0].unit.job, JobId(first));
  }
}

}  // namespace
}  // namespace gavel::testing
