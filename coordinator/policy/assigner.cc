#include "coordinator/policy/assigner.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "coordinator/policy/problem.h"

namespace gavel {
namespace {

// All of the gang has a place on one server of the type.
bool Consolidates(const PolicyProblem& problem, int scale_factor, size_t type) {
  if (!problem.placement_sensitive()) return true;
  const std::vector<int>& servers = problem.servers[type];
  return std::any_of(servers.begin(), servers.end(),
                     [&](int size) { return size >= scale_factor; });
}

double TypeThroughput(const PolicyProblem& problem, size_t job, size_t type) {
  const int scale_factor = problem.jobs[job].scale_factor;
  if (problem.capacity[type] < scale_factor) return 0;
  const std::span<const double> row = problem.Row(job);
  double throughput = 0;
  if (Consolidates(problem, scale_factor, type)) throughput = row[type];
  if (problem.placement_sensitive()) {
    throughput = std::max(throughput, row[problem.types.size() + type]);
  }
  return throughput;
}

}  // namespace

Assigner::Assigner(const PolicyProblem& problem)
    : problem_(problem), room_(problem.capacity) {
  queue_.reserve(problem.jobs.size());
  throughputs_.reserve(problem.jobs.size() * types());
  assignment_.reserve(problem.jobs.size());
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    double best = 0;
    for (size_t j = 0; j < types(); ++j) {
      throughputs_.push_back(TypeThroughput(problem, m, j));
      best = std::max(best, throughputs_.back());
    }
    if (best > 0) queue_.push_back(m);
  }
  const auto before = [&](size_t a, size_t b) {
    return Job(a).arrival_s < Job(b).arrival_s;
  };
  // Ids are given in the order of arrival.
  if (!std::is_sorted(queue_.begin(), queue_.end(), before)) {
    std::stable_sort(queue_.begin(), queue_.end(), before);
  }
}

double Assigner::PackedThroughput(size_t a, size_t b, size_t type) const {
  if (problem_.KindOf(a) > problem_.KindOf(b)) std::swap(a, b);
  const std::optional<size_t> pair = FindPair(problem_, a, b);
  if (!pair.has_value()) return 0;
  if (Throughput(a, type) <= 0 || Throughput(b, type) <= 0) return 0;
  const std::span<const double> row = problem_.PairRow(*pair);
  const auto gain = [&](size_t column) {
    const double first = row[2 * column];
    const double second = row[2 * column + 1];
    if (first <= 0 || second <= 0) return 0.0;
    return first / Throughput(a, type) + second / Throughput(b, type);
  };
  double most = 0;
  if (Consolidates(problem_, Job(a).scale_factor, type)) most = gain(type);
  if (problem_.placement_sensitive()) {
    most = std::max(most, gain(types() + type));
  }
  return most;
}

int Assigner::room() const {
  return std::accumulate(room_.begin(), room_.end(), 0);
}

std::optional<size_t> Assigner::BestFit(size_t job) const {
  std::optional<size_t> best;
  for (size_t j = 0; j < types(); ++j) {
    if (!Fits(job, j)) continue;
    if (!best || Throughput(job, j) > Throughput(job, *best)) best = j;
  }
  return best;
}

std::optional<size_t> Assigner::FitWhereItRuns(size_t job) const {
  const int type = Job(job).running_on;
  if (type < 0 || static_cast<size_t>(type) >= types()) return std::nullopt;
  if (!Fits(job, static_cast<size_t>(type))) return std::nullopt;
  return static_cast<size_t>(type);
}

void Assigner::Assign(size_t job, size_t type) {
  room_[type] -= Job(job).scale_factor;
  assignment_.push_back({{Job(job).id, JobId()}, type});
}

void Assigner::AssignPair(size_t a, size_t b, size_t type) {
  if (a > b) std::swap(a, b);
  room_[type] -= Job(a).scale_factor;
  assignment_.push_back({{Job(a).id, Job(b).id}, type});
}

void Assigner::HoldBack(size_t type, int count) {
  room_[type] -= std::min(room_[type], count);
}

std::optional<size_t> Assigner::Find(JobId id) const {
  const auto found = std::lower_bound(
      problem_.jobs.begin(), problem_.jobs.end(), id,
      [](const PolicyJob& job, JobId key) { return job.id < key; });
  if (found == problem_.jobs.end() || found->id != id) return std::nullopt;
  return static_cast<size_t>(found - problem_.jobs.begin());
}

PolicyResult Assigner::Result(std::string solver) const {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.is_assignment = true;
  result.assignment = assignment_;
  std::vector<bool> usable(problem_.jobs.size(), false);
  for (const size_t m : queue_) usable[m] = true;
  for (size_t m = 0; m < usable.size(); ++m) {
    if (!usable[m]) result.left_out.push_back(Job(m).id);
  }
  for (const TypeAssignment& entry : assignment_) {
    result.objective += entry.unit.packed() ? 2 : 1;
  }
  result.bound = result.objective;
  result.solver = std::move(solver);
  return result;
}

}  // namespace gavel
