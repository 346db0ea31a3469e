#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "Eigen/LU"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"

namespace gavel::policy {
namespace {

// Bounds a sum of logarithms of throughputs from above by a linear program:
// each logarithm is below all of its tangents. MaximizeNashProduct
// uses it where its own solver does not prove enough. Not thread-safe.
//
// max sum_m log(T_m(X) / scale_m) over the jobs that count.
class LogProgram {
 public:
  // `scale`: [k], > 0; 0 for jobs that do not count. `problem` outlives it.
  LogProgram(const ShareProblem& problem, std::vector<double> scale);

  // Adds the tangents of log(T_m(X) / scale_m) where these ratios are: [k],
  // > 0 for the jobs that count.
  void AddTangents(std::span<const double> ratios);

  struct Answer {
    std::vector<double> shares;  // feasible; empty when the solver has none
    double bound = 0;            // no X has a larger sum
  };
  Answer Solve() const;

 private:
  const ShareProblem& problem_;
  std::vector<double> scale_;
  std::vector<std::vector<double>> points_;  // [k] where there are tangents
};

// Logarithms count in thousandths, so that the solver's absolute tolerance does
// not hide what tangents are short of.
constexpr double kUnit = 1e-3;

LogProgram::LogProgram(const ShareProblem& problem, std::vector<double> scale)
    : problem_(problem), scale_(std::move(scale)), points_(problem.size()) {}

void LogProgram::AddTangents(std::span<const double> ratios) {
  for (size_t m = 0; m < points_.size(); ++m) {
    if (scale_[m] > 0) points_[m].push_back(ratios[m]);
  }
}

LogProgram::Answer LogProgram::Solve() const {
  ShareProgram program(problem_);
  const std::vector<double> largest = LargestThroughputs(problem_);
  for (size_t m = 0; m < points_.size(); ++m) {
    if (scale_[m] <= 0) continue;
    // Between the lowest tangent at 0 and the logarithm of the most there is.
    double lowest = 0;
    for (const double at : points_[m]) {
      lowest = std::min(lowest, std::log(at) - 1);
    }
    const int log = program.lp.AddColumn(
        1, lowest / kUnit, std::log(largest[m] / scale_[m]) / kUnit);
    const LpEntry entry = {log, 1};
    for (const double at : points_[m]) {
      // log t <= log at + t / at - 1.
      program.AddThroughputRow(m, -1 / (at * scale_[m]) / kUnit, {&entry, 1},
                               -kInfinity, (std::log(at) - 1) / kUnit);
    }
  }
  const LpSolution solution = HighsSolver(program.lp).Solve(Restart::kDual);
  return {program.Shares(solution),
          kUnit * DualBound(program.lp, solution.row_duals)};
}

constexpr int kStepsMax = 200;
// Stops here, per job: the precision of the shares is its root at worst.
constexpr double kGapPerJob = 1e-13;
// Above this linear programs help out.
constexpr double kGapPerJobPolished = 1e-11;
// A larger gap is not called optimal.
constexpr double kGapPerJobMax = 1e-9;
// Iterations without a smaller gap that are enough to see that rounding rules.
constexpr int kIdleMax = 8;
constexpr double kTiny = 1e-300;
// Linear programs that may be needed for the rest.
constexpr int kPolishMax = 12;
// Part of the way to the nearest bound that a step may go.
constexpr double kStepMax = 0.99;
// Rows of limits that differ by less than this are the same.
constexpr double kDependent = 1e-14;
// A share below this counts as 0 if its price says that the job does not want
// it.
constexpr double kUnwantedMax = 1e-9;

// One inequality, usage + slack = 1 with slack >= 0 at price >= 0. The slack is
// a variable of its own: as a difference it would lose its last digits.
struct Inequality {
  double slack = 0;
  double price = 0;
  double missing = 0;  // 1 - usage - slack, rounding
  double slack_step = 0;
  double price_step = 0;

  // The right-hand side of the row of the price step: usage step - slack /
  // price * price step = Side().
  double Side(double sigma) const { return missing - sigma / price + slack; }
  void StepSlack(double sigma) {
    slack_step = sigma / price - slack - slack / price * price_step;
  }
  void Move(double length) {
    slack += length * slack_step;
    price += length * price_step;
  }
};

// One cell of a job that counts.
struct Variable {
  size_t cell = 0;
  double rate = 0;    // T / largest
  double share = 0;   // > 0
  double excess = 0;  // its reduced price, >= 0
  double share_step = 0;
  double excess_step = 0;
};

struct Job {
  size_t index = 0;  // m
  size_t begin = 0;  // its variables
  size_t end = 0;
  Inequality time;
  double throughput = 0;  // t = sum of rate share
  Eigen::PartialPivLU<Eigen::MatrixXd> block;
};

// minimise -sum log t subject to the inequalities; see the header. The barrier
// parameter sigma is the target of each share excess and slack price.
class InteriorPoint {
 public:
  InteriorPoint(const ShareProblem& problem, std::optional<size_t> without)
      : problem_(problem), limits_(problem.limits.size()) {
    const std::vector<double> even = EvenShares(problem);
    const std::vector<double> largest = LargestThroughputs(problem);
    for (size_t m = 0; m < problem.size(); ++m) {
      if (m != without) AddJob(m, largest[m], even);
    }
    Evaluate();
    for (Variable& v : variables_) v.excess = 1 / v.share;
    const auto start = [](Inequality& r) {
      r.slack = std::exchange(r.missing, 0);
      r.price = 1 / r.slack;
    };
    for (Inequality& limit : limits_) start(limit);
    for (Job& job : jobs_) start(job.time);
  }

  NashProduct Run() {
    NashProduct best;
    best.solver = "interior-point";
    best.bound = std::numeric_limits<double>::infinity();
    best.log_product = -best.bound;
    const auto jobs = static_cast<double>(jobs_.size());
    double least_gap = best.bound;
    int idle = 0;
    for (int i = 0; i < kStepsMax && idle < kIdleMax; ++i) {
      Record(best);
      const double gap = best.bound - best.log_product;
      idle = gap < least_gap ? 0 : idle + 1;
      least_gap = std::min(least_gap, gap);
      if (gap <= kGapPerJob * jobs) break;
      Step();
    }
    if (!(least_gap <= kGapPerJobPolished * jobs)) Polish(best);
    if (best.bound - best.log_product <= kGapPerJobMax * jobs) {
      best.outcome = SolveOutcome::kOptimal;
    } else {
      best.outcome = SolveOutcome::kIterationLimit;
      best.detail = "Nash product: no convergence of the interior point";
    }
    return best;
  }

 private:
  void AddJob(size_t m, double largest, std::span<const double> even) {
    Job job;
    job.index = m;
    job.begin = variables_.size();
    for (const JobCell& entry : problem_.Cells(m)) {
      Variable v;
      v.cell = entry.cell;
      v.rate = entry.throughput / largest;
      v.share = 0.9 * even[entry.cell];
      variables_.push_back(v);
    }
    job.end = variables_.size();
    jobs_.push_back(job);
  }

  std::span<Variable> Of(const Job& job) {
    return std::span(variables_).subspan(job.begin, job.end - job.begin);
  }

  // Calls visit(limit, usage) for the limits of a variable, whose totals are 1.
  template <class Visit>
  void ForEachLimit(const Variable& v, Visit visit) const {
    const ShareCell& cell = problem_.cells[v.cell];
    cell.ForEachLimit(
        [&](uint32_t r) { visit(r, cell.scale_factor / problem_.limits[r]); });
  }

  // Throughputs and what rounding left, anew from the shares.
  void Evaluate() {
    for (Inequality& limit : limits_) limit.missing = 1 - limit.slack;
    for (Job& job : jobs_) {
      job.time.missing = 1 - job.time.slack;
      job.throughput = 0;
      for (const Variable& v : Of(job)) {
        job.time.missing -= v.share;
        job.throughput += v.rate * v.share;
        ForEachLimit(v, [&](size_t r, double usage) {
          limits_[r].missing -= usage * v.share;
        });
      }
    }
  }

  // Keeps the shares if they are the best so far, and tightens the bound.
  void Record(NashProduct& best) {
    std::vector<double> shares(problem_.cells.size(), 0.0);
    for (const Variable& v : variables_) {
      const bool unwanted = v.share < kUnwantedMax && v.share < v.excess;
      shares[v.cell] = unwanted ? 0 : v.share;
    }
    RepairShares(problem_, shares);
    Take(shares, best);
    double bound = 0;
    for (const Inequality& limit : limits_) bound += limit.price;
    for (const Job& job : jobs_) {
      double rent = 0;
      for (const Variable& v : Of(job)) {
        double gain = v.rate / job.throughput;
        ForEachLimit(v, [&](size_t r, double usage) {
          gain -= usage * limits_[r].price;
        });
        rent = std::max(rent, gain);
      }
      bound += std::log(job.throughput) - 1 + rent;
    }
    best.bound = std::min(best.bound, bound);
  }

  // Where limits and times bind together in many ways, steps lose their digits.
  // Linear programs with tangents around what there is find the rest.
  void Polish(NashProduct& best) {
    const std::vector<double> largest = LargestThroughputs(problem_);
    std::vector<double> scale(largest.size(), 0.0);
    for (const Job& job : jobs_) scale[job.index] = largest[job.index];
    LogProgram program(problem_, scale);
    const auto ratios = [&](std::span<const double> shares, double factor) {
      std::vector<double> values = Throughputs(problem_, shares);
      for (size_t m = 0; m < values.size(); ++m) {
        values[m] = std::max(kTiny, values[m] / largest[m] * factor);
      }
      return values;
    };
    for (double step = 1e-8; step < 1; step *= 10) {
      program.AddTangents(ratios(best.shares, 1 + step));
      program.AddTangents(ratios(best.shares, 1 - step));
    }
    program.AddTangents(ratios(best.shares, 1));
    const double enough =
        kGapPerJobPolished * static_cast<double>(jobs_.size());
    for (int i = 0; i < kPolishMax; ++i) {
      const LogProgram::Answer answer = program.Solve();
      best.bound = std::min(best.bound, answer.bound);
      if (answer.shares.empty()) return;
      program.AddTangents(ratios(answer.shares, 1));
      Take(answer.shares, best);
      if (best.bound - best.log_product <= enough) return;
    }
  }

  // Keeps the shares if they are the best so far.
  void Take(const std::vector<double>& shares, NashProduct& best) const {
    double log_product = 0;
    for (const Job& job : jobs_) {
      double ratio = 0;
      for (size_t i = job.begin; i < job.end; ++i) {
        ratio += variables_[i].rate * shares[variables_[i].cell];
      }
      log_product += std::log(ratio);
    }
    if (!best.shares.empty() && !(log_product > best.log_product)) return;
    best.log_product = log_product;
    best.shares = shares;
  }

  // The mean of share excess and slack price: what sigma is measured by.
  double Complementarity() const {
    double sum = 0;
    for (const Variable& v : variables_) sum += v.share * v.excess;
    for (const Inequality& r : limits_) sum += r.slack * r.price;
    for (const Job& job : jobs_) sum += job.time.slack * job.time.price;
    return sum / static_cast<double>(variables_.size() + limits_.size() +
                                     jobs_.size());
  }

  void Step();
  void Factor();
  void FactorBlock(Job& job);
  void Direction(double sigma);
  double Gradient(const Job& job, const Variable& v, double sigma) const;
  double Length() const;
  void Move(double length);

  const ShareProblem& problem_;
  std::vector<Variable> variables_;
  std::vector<Job> jobs_;
  std::vector<Inequality> limits_;
  Eigen::FullPivLU<Eigen::MatrixXd> schur_;
  Eigen::VectorXd schur_scale_;
  Eigen::VectorXd rhs_;  // reused
};

void InteriorPoint::Step() {
  const double now = Complementarity();
  Factor();
  // As far as the step to the optimum would get says how much to centre.
  Direction(0);
  const double part = 1 - kStepMax * Length();
  Direction(now * std::max(1e-3, part * part * part));
  Move(kStepMax * Length());
  Evaluate();
}

// The job's block: steps of its shares, of its throughput (relative), and of
// the price of its time solve
//   [excess / share, g, e; g', -1, 0; e', 0, -slack / price],
// g = rate / t: the Hessian of -log t is g g'.
void InteriorPoint::FactorBlock(Job& job) {
  const std::span<Variable> variables = Of(job);
  const Eigen::Index size = std::ssize(variables);
  Eigen::MatrixXd block = Eigen::MatrixXd::Zero(size + 2, size + 2);
  for (Eigen::Index i = 0; i < size; ++i) {
    const Variable& v = variables[static_cast<size_t>(i)];
    block(i, i) = v.excess / v.share;
    block(i, size) = block(size, i) = v.rate / job.throughput;
    block(i, size + 1) = block(size + 1, i) = 1;
  }
  block(size, size) = -1;
  block(size + 1, size + 1) = -job.time.slack / job.time.price;
  job.block.compute(block);
}

// Block by block, and the system that they leave for the prices of the limits:
// A M^-1 A' + slack / price, with A the usages of the limits.
void InteriorPoint::Factor() {
  const Eigen::Index limits = std::ssize(limits_);
  Eigen::VectorXd least(limits);
  for (Eigen::Index r = 0; r < limits; ++r) {
    const Inequality& limit = limits_[static_cast<size_t>(r)];
    least(r) = limit.slack / limit.price;
  }
  Eigen::MatrixXd schur = least.asDiagonal();
  for (Job& job : jobs_) {
    FactorBlock(job);
    const std::span<Variable> variables = Of(job);
    const Eigen::MatrixXd inverse = job.block.inverse();
    for (size_t k = 0; k < variables.size(); ++k) {
      ForEachLimit(variables[k], [&](size_t c, double column) {
        for (size_t i = 0; i < variables.size(); ++i) {
          ForEachLimit(variables[i], [&](size_t r, double row) {
            schur(Eigen::Index(r), Eigen::Index(c)) +=
                row * inverse(Eigen::Index(i), Eigen::Index(k)) * column;
          });
        }
      });
    }
  }
  // Never less than it started with, whatever rounding leaves.
  schur.diagonal() = schur.diagonal().cwiseMax(least);
  // To a diagonal of ones: rows differ by many orders of magnitude.
  schur_scale_ = schur.diagonal().cwiseSqrt().cwiseInverse();
  schur = schur_scale_.asDiagonal() * schur * schur_scale_.asDiagonal();
  // Limits that bind together have prices that only matter in sum.
  schur_.setThreshold(kDependent);
  schur_.compute(schur);
}

// The negative derivative of the Lagrangian with the barrier, at the present
// prices.
double InteriorPoint::Gradient(const Job& job, const Variable& v,
                               double sigma) const {
  double gradient = v.rate / job.throughput - job.time.price + sigma / v.share;
  ForEachLimit(
      v, [&](size_t r, double usage) { gradient -= usage * limits_[r].price; });
  return gradient;
}

// The Newton step to the point of the central path at sigma: first as if the
// prices of the limits stayed, then their step, then the changes that it makes.
void InteriorPoint::Direction(double sigma) {
  Eigen::VectorXd prices(std::ssize(limits_));
  for (size_t r = 0; r < limits_.size(); ++r) {
    prices(Eigen::Index(r)) = -limits_[r].Side(sigma);
  }
  for (Job& job : jobs_) {
    rhs_.setZero(job.block.rows());
    for (size_t i = job.begin; i < job.end; ++i) {
      rhs_(Eigen::Index(i - job.begin)) = Gradient(job, variables_[i], sigma);
    }
    rhs_(rhs_.size() - 1) = job.time.Side(sigma);
    rhs_ = job.block.solve(rhs_).eval();
    job.time.price_step = rhs_(rhs_.size() - 1);
    for (size_t i = job.begin; i < job.end; ++i) {
      const double step = rhs_(Eigen::Index(i - job.begin));
      variables_[i].share_step = step;
      ForEachLimit(variables_[i], [&](size_t r, double usage) {
        prices(Eigen::Index(r)) += usage * step;
      });
    }
  }
  prices = schur_scale_.cwiseProduct(
      schur_.solve(schur_scale_.cwiseProduct(prices)).eval());
  for (size_t r = 0; r < limits_.size(); ++r) {
    limits_[r].price_step = prices(Eigen::Index(r));
    limits_[r].StepSlack(sigma);
  }
  for (Job& job : jobs_) {
    rhs_.setZero(job.block.rows());
    for (size_t i = job.begin; i < job.end; ++i) {
      ForEachLimit(variables_[i], [&](size_t r, double usage) {
        rhs_(Eigen::Index(i - job.begin)) += usage * prices(Eigen::Index(r));
      });
    }
    rhs_ = job.block.solve(rhs_).eval();
    job.time.price_step -= rhs_(rhs_.size() - 1);
    job.time.StepSlack(sigma);
    for (size_t i = job.begin; i < job.end; ++i) {
      Variable& v = variables_[i];
      v.share_step -= rhs_(Eigen::Index(i - job.begin));
      v.excess_step = (sigma - v.excess * v.share_step) / v.share - v.excess;
    }
  }
}

// The longest step, at most 1 / kStepMax, that keeps all above zero.
double InteriorPoint::Length() const {
  double length = 1 / kStepMax;
  const auto shorten = [&](double value, double step) {
    if (step < 0) length = std::min(length, -value / step);
  };
  const auto both = [&](const Inequality& r) {
    shorten(r.slack, r.slack_step);
    shorten(r.price, r.price_step);
  };
  for (const Variable& v : variables_) {
    shorten(v.share, v.share_step);
    shorten(v.excess, v.excess_step);
  }
  for (const Inequality& limit : limits_) both(limit);
  for (const Job& job : jobs_) both(job.time);
  return length;
}

void InteriorPoint::Move(double length) {
  for (Variable& v : variables_) {
    v.share += length * v.share_step;
    v.excess += length * v.excess_step;
  }
  for (Inequality& limit : limits_) limit.Move(length);
  for (Job& job : jobs_) job.time.Move(length);
}

}  // namespace

NashProduct MaximizeNashProduct(const ShareProblem& problem,
                                std::optional<size_t> without) {
  assert(problem.units.size() == problem.size());
  if (problem.size() == (without ? 1u : 0u)) {
    NashProduct empty;
    empty.outcome = SolveOutcome::kOptimal;
    empty.shares.assign(problem.cells.size(), 0.0);
    return empty;
  }
  return InteriorPoint(problem, without).Run();
}

// Strategy-proof shares: the Nash product, with a discount (the partial
// allocation mechanism of Cole, Gkatzelis and Goel, EC 2013; Gavel's
// max_min_fairness_strategy_proof).
//
// x* maximises the geometric mean over jobs of v_m = s_m / (w_m prop_m) T_m(X).
// The part that job i takes from the others is
//   discount_i = prod_{k != i} T_k(x*) / T_k(x* without i),
// with "x* without i" the same optimum without job i; it keeps this part of its
// row of x*, and loses by claiming other throughputs than its own. A job alone
// keeps all. The part that the discount takes off is left idle.
//
// `objective` is the geometric mean of v at x*, before the discount, and
// `bound` the most that any allocation has. Weights scale v; they do not change
// x*, as the weights of a product are constant factors.

namespace {

// [k] logarithms of v_m at the job's largest throughput.
std::vector<double> LogsOfLargest(const ShareProblem& shares) {
  const std::vector<double> normalizers = Normalizers(shares);
  std::vector<double> logs = LargestThroughputs(shares);
  for (size_t m = 0; m < logs.size(); ++m) {
    logs[m] = std::log(logs[m] * normalizers[m] / shares.weight[m]);
  }
  return logs;
}

// [k] discounts. In logarithms: those of the others at x* less those without
// the job; at most 0, up to the solver's precision.
std::vector<double> Discounts(const ShareProblem& shares, NashProduct& nash) {
  const std::vector<double> largest = LargestThroughputs(shares);
  std::vector<double> discounts;
  for (size_t m = 0; m < shares.size(); ++m) {
    const double own =
        std::log(Throughput(shares, m, nash.shares) / largest[m]);
    const NashProduct others = MaximizeNashProduct(shares, m);
    if (others.outcome != SolveOutcome::kOptimal) {
      nash.outcome = others.outcome;
      nash.detail = others.detail;
    }
    const double log = nash.log_product - own - others.log_product;
    discounts.push_back(std::exp(std::min(0.0, log)));
  }
  return discounts;
}

}  // namespace

PolicyResult SolveStrategyProof(const PolicyProblem& problem, PolicyForm form) {
  const ShareProblem shares =
      MakeShareProblem(problem, {.agnostic = form == PolicyForm::kAgnostic});
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  double constant = 0;  // of the logarithm of the product
  for (const double log : LogsOfLargest(shares)) constant += log;

  const auto jobs = static_cast<double>(shares.size());
  const auto mean = [&](double log_product) {
    return std::exp((log_product + constant) / jobs);
  };
  // No job takes anything from another: all discounts are 1.
  if (const std::optional<std::vector<double>> best = EveryoneAtBest(shares)) {
    return ToResult(shares, *best, mean(0), mean(0), "all-at-best");
  }
  NashProduct nash = MaximizeNashProduct(shares);
  const std::vector<double> discounts = Discounts(shares, nash);
  std::vector<double> kept = nash.shares;
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto unit = shares.cells[i].unit;
    kept[i] *= discounts[shares.units[unit].first];
  }
  return Certified(
      Sense::kMaximum, nash,
      ToResult(shares, kept, mean(nash.log_product), mean(nash.bound)));
}

}  // namespace gavel::policy
