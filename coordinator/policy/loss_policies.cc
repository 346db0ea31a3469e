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
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

namespace {

// A curve has the form f(q(k)) + d, with q(k) the sum of coefficients times
// these powers of k.
constexpr unsigned kTermsMax = 3;
using Terms = Eigen::Vector3d;  // of 1, k, k^2

unsigned TermsOf(CurveFamily family) {
  return family == CurveFamily::kSublinear ? 3 : 2;
}

// One point in units of the fit: steps and loss from 0 to 1.
struct Point {
  double steps = 0;
  double loss = 0;
  double weight = 1;
};

struct Candidate {
  Terms q = Terms::Zero();
  double d = 0;
  double error = std::numeric_limits<double>::infinity();
};

double Value(CurveFamily family, const Terms& q, double steps) {
  const double inner = q[0] + steps * (q[1] + steps * q[2]);
  return family == CurveFamily::kExponential ? std::exp(-inner) : 1 / inner;
}

// The coefficients that solve the normal equations with the terms in `mask`
// alone; the others are 0.
Terms SolveTerms(Eigen::Matrix3d matrix, Terms right, unsigned mask) {
  for (Eigen::Index i = 0; i < kTermsMax; ++i) {
    if ((mask >> i & 1) != 0) continue;
    matrix.row(i).setZero();
    matrix.col(i).setZero();
    matrix(i, i) = 1;
    right(i) = 0;
  }
  return matrix.ldlt().solve(right);
}

double ErrorOf(std::span<const Point> points, CurveFamily family,
               const Terms& q, double d) {
  double error = 0;
  double weights = 0;
  for (const Point& point : points) {
    const double off = Value(family, q, point.steps) + d - point.loss;
    error += point.weight * off * off;
    weights += point.weight;
  }
  error /= weights;
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// The best coefficients for the asymptote `d`. They are linear in the inverse
// (or the logarithm) of the loss above `d`; weights turn errors there into
// errors of the loss. There are at most seven sets of terms, so all are tried.
Candidate FitAt(std::span<const Point> points, CurveFamily family, double d) {
  const bool exponential = family == CurveFamily::kExponential;
  // Element (i, j) of the normal equations is the sum of weight * k^(i + j).
  std::array<double, 2 * kTermsMax - 1> moments = {};
  Terms right = Terms::Zero();
  for (const Point& point : points) {
    const double above = point.loss - d;
    const double slope = exponential ? above : above * above;
    const double weight = point.weight * slope * slope;
    const double target = exponential ? -std::log(above) : 1 / above;
    double power = weight;
    for (double& moment : moments) {
      moment += power;
      power *= point.steps;
    }
    const double first = weight * target;
    right += first * Terms(1, point.steps, point.steps * point.steps);
  }
  Eigen::Matrix3d matrix;
  matrix << moments[0], moments[1], moments[2],  //
      moments[1], moments[2], moments[3],        //
      moments[2], moments[3], moments[4];
  // The terms of non-negative least squares are among those of some mask.
  Candidate best;
  best.d = d;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned mask = (1U << TermsOf(family)) - 1; mask > 0; --mask) {
    const Terms q = SolveTerms(matrix, right, mask);
    if (q[1] < 0 || q[2] < 0 || (q[0] < 0 && !exponential)) continue;
    const double objective = q.dot(matrix * q) - 2 * q.dot(right);
    if (!(objective < least)) continue;
    least = objective;
    best.q = q;
  }
  if (std::isfinite(least)) best.error = ErrorOf(points, family, best.q, d);
  return best;
}

// Searches the distance from the least loss down to the asymptote: a grid of
// its logarithm, then golden sections around the best of the grid.
Candidate FitBest(std::span<const Point> points, CurveFamily family,
                  double distance_max) {
  constexpr double kDistanceMin = 1e-3;
  constexpr int kGrid = 16;
  constexpr int kSections = 20;
  constexpr double kGolden = 0.6180339887498949;
  const double low = std::log(std::min(kDistanceMin, distance_max / 2));
  const double step = (std::log(distance_max) - low) / (kGrid - 1);
  const auto at = [&](double logarithm) {
    return FitAt(points, family, -std::exp(logarithm));
  };
  Candidate best;
  int nearest = 0;
  for (int i = 0; i < kGrid; ++i) {
    const Candidate candidate = at(low + i * step);
    if (!(candidate.error < best.error)) continue;
    best = candidate;
    nearest = i;
  }
  double from = low + std::max(0, nearest - 1) * step;
  double to = low + std::min(kGrid - 1, nearest + 1) * step;
  Candidate left = at(to - kGolden * (to - from));
  Candidate right = at(from + kGolden * (to - from));
  for (int i = 0; i < kSections; ++i) {
    if (left.error <= right.error) {
      to = from + kGolden * (to - from);
      right = left;
      left = at(to - kGolden * (to - from));
    } else {
      from = to - kGolden * (to - from);
      left = right;
      right = at(from + kGolden * (to - from));
    }
  }
  for (const Candidate& candidate : {left, right}) {
    if (candidate.error < best.error) best = candidate;
  }
  return best;
}

}  // namespace

double LossCurve::At(double steps) const {
  return Value(family, {c, b, a}, steps) + d;
}

std::optional<LossCurve> FitCurve(std::span<const PolicyLoss> points,
                                  CurveFamily family, double decay) {
  if (points.size() < kLossPointsMin) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(points, {}, &PolicyLoss::loss);
  const double range = most.loss - least.loss;
  const double last = points.back().steps;
  if (!(range > 0) || !(last > 0) ||
      !(points.back().loss < points.front().loss)) {
    return std::nullopt;
  }
  std::vector<Point> scaled;
  double weight = 1;
  for (size_t i = points.size(); i-- > 0; weight *= decay) {
    scaled.push_back({points[i].steps / last,
                      (points[i].loss - least.loss) / range, weight});
  }
  const double distance_max = least.loss > 0 ? least.loss / range : 1;
  const Candidate best = FitBest(scaled, family, distance_max);
  // A curve that does not fall predicts nothing.
  if (!std::isfinite(best.error) || (best.q[1] <= 0 && best.q[2] <= 0)) {
    return std::nullopt;
  }
  LossCurve curve{.family = family,
                  .a = best.q[2] / (last * last),
                  .b = best.q[1] / last,
                  .c = best.q[0],
                  .d = least.loss + best.d * range,
                  .error = best.error};
  if (family == CurveFamily::kExponential) {
    curve.c -= std::log(range);
  } else {
    curve.a /= range;
    curve.b /= range;
    curve.c /= range;
  }
  return curve;
}

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
