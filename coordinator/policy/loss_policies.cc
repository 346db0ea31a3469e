// Policies that predict training from the losses that jobs report. Both give
// one accelerator after the other to the job that gains most from it, and
// decide anew for each round.
//
// `optimus` (Peng et al., EuroSys'18) minimises the mean completion time. A
// curve through a job's losses (section 3.1) says after how many steps it has
// converged. The throughputs of elastic jobs by their number of workers are its
// speed model (section 3.2). Each job first gets the fewest workers that it
// runs with; then each further worker goes where it shortens a job's remaining
// time most (section 4.1). The first workers go to the job with the least
// accelerator time left, which gains most for each accelerator-second; that is
// our reading for a cluster without room for all.
//
// `slaq` (Zhang et al., SoCC'17) maximises the quality of all models: the
// accelerators go where the loss is predicted to fall most in the next round
// for each accelerator. Losses are normalised by the largest change of the
// job's loss so far. The curve is that of two families which fits best, with
// recent losses weighing more.
//
// A job with fewer than four losses, or whose loss does not fall, has no curve.
// For `optimus` it ends after steps_total; for `slaq` its loss falls evenly up
// to there. `optimus` takes the same for a job that trains beyond the step at
// which it should have converged.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/loss_curve.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

// The rows of one job among `rows`, which ascend by job.
template <class Row>
std::span<const Row> RowsOfJob(const std::vector<Row>& rows, size_t job) {
  const auto found = std::ranges::equal_range(rows, job, {}, &Row::job);
  return {found.begin(), found.end()};
}

// A job on a type, with a number of workers.
struct Gang {
  size_t job = 0;
  size_t type = 0;
  int workers = 0;
};

// The throughputs of jobs by their number of workers. Only elastic jobs have
// more than one number.
class Speeds {
 public:
  Speeds(const PolicyProblem& problem, const Assigner& assigner)
      : problem_(problem), assigner_(assigner) {}

  bool IsElastic(size_t job) const { return SizesOf(job) != nullptr; }
  int Least(size_t job) const {
    const PolicySizes* sizes = SizesOf(job);
    return sizes != nullptr ? sizes->least : assigner_.Job(job).scale_factor;
  }
  int Most(size_t job) const {
    const PolicySizes* sizes = SizesOf(job);
    if (sizes == nullptr) return assigner_.Job(job).scale_factor;
    const size_t count = sizes->steps_per_s.size() / assigner_.types();
    return sizes->least + static_cast<int>(count) - 1;
  }
  // Steps/s; `workers` from Least() to Most().
  double At(const Gang& gang) const {
    const PolicySizes* sizes = SizesOf(gang.job);
    if (sizes == nullptr) return assigner_.Throughput(gang.job, gang.type);
    const auto row = static_cast<size_t>(gang.workers - sizes->least);
    return sizes->steps_per_s[row * assigner_.types() + gang.type];
  }
  // The fewest workers where they fit into `room`: where the job runs, else
  // where it is fastest. Nothing if they fit nowhere.
  std::optional<Gang> First(size_t job, const std::vector<int>& room) const {
    std::optional<Gang> best;
    for (size_t type = 0; type < room.size(); ++type) {
      const Gang gang{job, type, Least(job)};
      if (room[type] < gang.workers || !(At(gang) > 0)) continue;
      if (assigner_.Job(job).running_on == static_cast<int>(type)) return gang;
      if (!best || At(gang) > At(*best)) best = gang;
    }
    return best;
  }

 private:
  const PolicySizes* SizesOf(size_t job) const {
    const auto found = RowsOfJob(problem_.sizes, job);
    return found.empty() ? nullptr : &found.front();
  }

  const PolicyProblem& problem_;
  const Assigner& assigner_;
};

// Gives each job its first workers, in the order of first(job, steps_per_s)
// for each worker, then further workers by more(job, steps_per_s before,
// after).
template <class First, class More>
PolicyResult GiveByWorth(const PolicyProblem& problem, Assigner& assigner,
                         const First& first, const More& more) {
  const Speeds speeds(problem, assigner);
  std::vector<int> room = assigner.rooms();
  std::vector<std::pair<double, size_t>> order;
  for (const size_t job : assigner.queue()) {  // by arrival
    const std::optional<Gang> gang = speeds.First(job, room);
    if (!gang) continue;
    order.emplace_back(first(job, speeds.At(*gang)) / gang->workers, job);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           &std::pair<double, size_t>::first);
  std::vector<Gang> gangs;
  // The worth of one more worker, and the gang that would have it, counted
  // down: of equal ones the first has it.
  std::priority_queue<std::pair<double, size_t>> next;
  const auto offer = [&](size_t index) {
    Gang gang = gangs[index];
    if (gang.workers == speeds.Most(gang.job)) return;
    const double before = speeds.At(gang);
    ++gang.workers;
    const double worth = more(gang.job, before, speeds.At(gang));
    if (worth > 0) next.emplace(worth, ~index);
  };
  for (const auto& [worth, job] : order) {
    const std::optional<Gang> gang = speeds.First(job, room);
    if (!gang) continue;
    room[gang->type] -= gang->workers;
    gangs.push_back(*gang);
  }
  for (size_t index = 0; index < gangs.size(); ++index) offer(index);
  while (!next.empty()) {
    const size_t index = ~next.top().second;
    next.pop();
    Gang& gang = gangs[index];
    if (room[gang.type] == 0) continue;
    --room[gang.type];
    ++gang.workers;
    offer(index);
  }
  for (const Gang& gang : gangs) {
    assigner.Assign(gang.job, gang.type, {},
                    speeds.IsElastic(gang.job) ? gang.workers : 0);
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

// Returns the step at which the job has converged: there its loss above the
// asymptote is one hundredth of that at step 0.
double StepsToConverge(const LossCurve& curve) {
  constexpr double kConverged = 0.01;
  return (1 / kConverged - 1) * curve.c / curve.b;
}

double PredictedStepsLeft(const PolicyProblem& problem,
                          const Assigner& assigner, size_t job) {
  const double otherwise = StepsLeft(assigner, job);
  const auto losses = RowsOfJob(problem.losses, job);
  const auto curve = FitCurve(losses, CurveFamily::kReciprocal);
  if (!curve) return otherwise;
  const PolicyJob& of = assigner.Job(job);
  const double left = StepsToConverge(*curve) - of.steps_done;
  if (!(left > 0)) return otherwise;
  return of.steps_remaining > 0 ? std::min(left, of.steps_remaining) : left;
}

// The loss of a job as a part of its largest change so far.
class QualityCurve {
 public:
  QualityCurve(const PolicyProblem& problem, const Assigner& assigner,
               size_t job) {
    constexpr double kDecay = 0.9;
    const PolicyJob& of = assigner.Job(job);
    done_ = of.steps_done;
    total_ = of.steps_done + StepsLeft(assigner, job);
    const auto losses = RowsOfJob(problem.losses, job);
    for (const CurveFamily family :
         {CurveFamily::kSublinear, CurveFamily::kExponential}) {
      const auto curve = FitCurve(losses, family, kDecay);
      if (curve && (!curve_ || curve->error < curve_->error)) curve_ = curve;
    }
    if (!curve_) return;
    const auto [least, most] =
        std::ranges::minmax(losses, {}, &PolicyLoss::loss);
    range_ = most.loss - least.loss;
  }

  // By how much the loss falls in the next `steps`.
  double Decrease(double steps) const {
    if (!curve_) return std::min(steps, total_ - done_) / total_;
    return (curve_->At(done_) - curve_->At(done_ + steps)) / range_;
  }

 private:
  double done_ = 0;
  double total_ = 1;
  std::optional<LossCurve> curve_;
  double range_ = 1;  // > 0
};

}  // namespace

PolicyResult SolveOptimus(const PolicyProblem& problem) {
  Assigner assigner(problem);
  std::vector<double> left(problem.jobs.size(), 0);
  for (const size_t job : assigner.queue()) {
    left[job] = PredictedStepsLeft(problem, assigner, job);
  }
  return GiveByWorth(
      problem, assigner,
      [&](size_t job, double steps_per_s) { return steps_per_s / left[job]; },
      [&](size_t job, double before, double after) {
        return left[job] / before - left[job] / after;
      });
}

PolicyResult SolveSlaq(const PolicyProblem& problem) {
  Assigner assigner(problem);
  std::vector<std::optional<QualityCurve>> curves(problem.jobs.size());
  for (const size_t job : assigner.queue()) {
    curves[job].emplace(problem, assigner, job);
  }
  // Without rounds it is the next second that counts.
  const double round_s = problem.round_s > 0 ? problem.round_s : 1;
  const auto decrease = [&](size_t job, double steps_per_s) {
    return curves[job]->Decrease(steps_per_s * round_s);
  };
  return GiveByWorth(problem, assigner, decrease,
                     [&](size_t job, double before, double after) {
                       return decrease(job, after) - decrease(job, before);
                     });
}

}  // namespace gavel::policy
