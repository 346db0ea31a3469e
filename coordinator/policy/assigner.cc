#include "coordinator/policy/assigner.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "coordinator/policy/policy.h"

namespace gavel {
namespace {

// Returns whether a server of the type has room for the whole gang. Always true
// if placement does not matter.
bool Consolidates(const PolicyProblem& problem, int scale_factor, size_t type) {
  if (!problem.placement_sensitive()) return true;
  const std::vector<int>& servers = problem.servers[type];
  return std::any_of(servers.begin(), servers.end(),
                     [&](int size) { return size >= scale_factor; });
}

// Returns the throughput of a job with this row on a type that has enough
// accelerators for it: consolidated or spread, whichever is possible and
// faster.
double TypeThroughput(const PolicyProblem& problem, const double* row,
                      int scale_factor, size_t type) {
  const double spread = row[problem.types.size() + type];
  return Consolidates(problem, scale_factor, type) ? std::max(row[type], spread)
                                                   : spread;
}

}  // namespace

Assigner::Assigner(const PolicyProblem& problem)
    : problem_(problem),
      room_(problem.capacity),
      assignment_(problem.jobs.size()) {
  queue_.reserve(problem.jobs.size());
  const size_t types = this->types();
  if (problem.placement_sensitive()) {
    throughputs_.resize(problem.jobs.size() * types);
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      for (size_t j = 0; j < types; ++j) {
        throughputs_[m * types + j] = TypeThroughput(
            problem, problem.Row(m).data(), Job(m).scale_factor, j);
      }
    }
  }
  const int* room = room_.data();
  const double* row = Rows();
  bool in_order = true;  // ids are given in the order of arrival
  double latest_s = -std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < problem.jobs.size(); ++m, row += types) {
    const PolicyJob& job = problem.jobs[m];
    bool any = false;
    for (size_t j = 0; j < types; ++j) {
      any |= row[j] > 0 && room[j] >= job.scale_factor;
    }
    if (!any) {
      left_out_.push_back(job.id);
      continue;
    }
    queue_.push_back(m);
    in_order &= job.arrival_s >= latest_s;
    latest_s = job.arrival_s;
  }
  if (in_order) return;
  std::stable_sort(queue_.begin(), queue_.end(), [&](size_t a, size_t b) {
    return Job(a).arrival_s < Job(b).arrival_s;
  });
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

std::optional<size_t> Assigner::FitWhereItRuns(size_t job) const {
  const int type = Job(job).running_on;
  if (type < 0 || static_cast<size_t>(type) >= types()) return std::nullopt;
  if (!Fits(job, static_cast<size_t>(type))) return std::nullopt;
  return static_cast<size_t>(type);
}

void Assigner::AssignPair(size_t a, size_t b, size_t type) {
  if (a > b) std::swap(a, b);
  ++pairs_;
  room_[type] -= Job(a).scale_factor;
  assert(assigned_ < assignment_.size());
  assignment_[assigned_++] = {{Job(a).id, Job(b).id}, type};
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

PolicyResult Assigner::Result(std::string solver) {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.is_assignment = true;
  assignment_.resize(assigned_);
  result.assignment = std::move(assignment_);
  result.left_out = std::move(left_out_);
  result.objective = static_cast<double>(assigned_ + pairs_);
  result.bound = result.objective;
  result.solver = std::move(solver);
  return result;
}

}  // namespace gavel
