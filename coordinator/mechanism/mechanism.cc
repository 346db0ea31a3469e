#include "coordinator/mechanism/mechanism.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "coordinator/mechanism/placement.h"

namespace gavel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A share below this is dust of the solver: a job that has received nothing
// would be given a whole round for it.
constexpr double kShareMin = 1e-9;

// Rows may end before the last type: what is missing is zero.
double At(const std::vector<double>& row, size_t type) {
  return type < row.size() ? row[type] : 0.0;
}

// One job on one type, as the greedy choice sees it.
struct Candidate {
  size_t job = 0;  // index into the jobs of the round
  size_t type = 0;
  JobId id;
  double rank = 0;  // share / time received; infinite when nothing received
  double share = 0;
  bool holds = false;  // the job runs on this type now
};

// The jobs of a round, and what is left of each type while choosing.
class Choice {
 public:
  Choice(const Cluster& cluster, const std::vector<RoundJob>& jobs)
      : jobs_(jobs), room_(cluster.Capacity()), type_of_(jobs.size()) {
    for (const RoundJob& job : jobs) held_.push_back(TypeHeld(cluster, job));
  }

  void KeepRunning() {
    for (size_t m = 0; m < jobs_.size(); ++m) {
      if (held_[m].has_value()) Take(m, *held_[m]);
    }
  }

  // Gavel section 5.2, algorithm 1: by priority, what fits, each job once.
  void TakeByPriority() {
    std::vector<Candidate> candidates = Candidates(/*with_share=*/true);
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) {
                return std::tuple(-a.rank, -a.share, !a.holds, a.id, a.type) <
                       std::tuple(-b.rank, -b.share, !b.holds, b.id, b.type);
              });
    for (const Candidate& c : candidates) Take(c.job, c.type);
  }

  // An idle accelerator is of use to anyone who can run there; who received
  // least comes first.
  void TakeLeftovers() {
    std::vector<Candidate> candidates = Candidates(/*with_share=*/false);
    std::vector<double> received(jobs_.size());
    for (size_t m = 0; m < jobs_.size(); ++m) {
      const std::vector<double>& row = jobs_[m].time_received_s;
      received[m] = std::accumulate(row.begin(), row.end(), 0.0);
    }
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) {
                return std::tuple(received[a.job], a.id, !a.holds, a.type) <
                       std::tuple(received[b.job], b.id, !b.holds, b.type);
              });
    for (const Candidate& c : candidates) Take(c.job, c.type);
  }

  // Nothing happens when the job has a type already or the gang doesn't fit.
  void Take(size_t job, size_t type) {
    if (type >= room_.size() || type_of_[job].has_value()) return;
    if (room_[type] < jobs_[job].scale_factor) return;
    room_[type] -= jobs_[job].scale_factor;
    type_of_[job] = type;
  }

  const std::vector<std::optional<size_t>>& type_of() const { return type_of_; }

 private:
  // Of jobs that have no type yet, on types that they can use, with a share
  // there or without one.
  std::vector<Candidate> Candidates(bool with_share) const {
    std::vector<Candidate> candidates;
    for (size_t m = 0; m < jobs_.size(); ++m) {
      const RoundJob& job = jobs_[m];
      if (type_of_[m].has_value()) continue;
      for (size_t j = 0; j < std::min(room_.size(), job.usable.size()); ++j) {
        const double share = At(job.share, j);
        if (!job.usable[j] || (share > kShareMin) != with_share) continue;
        const double received_s = At(job.time_received_s, j);
        const double rank = received_s > 0 ? share / received_s : kInfinity;
        candidates.push_back({m, j, job.id, rank, share, held_[m] == j});
      }
    }
    return candidates;
  }

  const std::vector<RoundJob>& jobs_;
  std::vector<int> room_;                       // [J] accelerators
  std::vector<std::optional<size_t>> held_;     // by job: what it can keep
  std::vector<std::optional<size_t>> type_of_;  // by job: what was chosen
};

}  // namespace

std::vector<std::vector<double>> Priorities(const std::vector<RoundJob>& jobs) {
  std::vector<double> total_s;  // by type
  for (const RoundJob& job : jobs) {
    total_s.resize(std::max(total_s.size(), job.time_received_s.size()), 0.0);
    for (size_t j = 0; j < job.time_received_s.size(); ++j) {
      total_s[j] += job.time_received_s[j];
    }
  }
  std::vector<std::vector<double>> priorities;
  for (const RoundJob& job : jobs) {
    std::vector<double>& row = priorities.emplace_back(job.share.size(), 0.0);
    for (size_t j = 0; j < row.size(); ++j) {
      if (job.share[j] <= 0) continue;
      const double received_s = At(job.time_received_s, j);
      row[j] =
          received_s > 0 ? job.share[j] / (received_s / total_s[j]) : kInfinity;
    }
  }
  return priorities;
}

RoundAssignment PlanRound(const Cluster& cluster,
                          const std::vector<RoundJob>& jobs,
                          const RoundOptions& options) {
  Choice choice(cluster, jobs);
  if (options.keep_running) choice.KeepRunning();
  choice.TakeByPriority();
  if (options.work_conserving) choice.TakeLeftovers();
  return PlaceAll(cluster, jobs, choice.type_of());
}

RoundAssignment PlaceAssignment(const Cluster& cluster,
                                const std::vector<RoundJob>& jobs,
                                const std::map<JobId, size_t>& type_of_job) {
  Choice choice(cluster, jobs);
  for (size_t m = 0; m < jobs.size(); ++m) {
    const auto found = type_of_job.find(jobs[m].id);
    if (found != type_of_job.end()) choice.Take(m, found->second);
  }
  return PlaceAll(cluster, jobs, choice.type_of());
}

}  // namespace gavel
