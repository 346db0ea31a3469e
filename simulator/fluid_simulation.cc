#include "simulator/fluid_simulation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "core/text.h"

namespace gavel {
namespace {

// What is left of a job by rounding is not worth another solve.
constexpr double kStepsLeftMin = 1e-6;

}  // namespace

FluidSimulation::FluidSimulation(SimulationOptions options, SimulatedWork work,
                                 std::unique_ptr<Policy> policy)
    : WorkSimulation(std::move(options), std::move(work), std::move(policy)),
      now_(work_.job(0).arrival_s) {
  Arrive();
}

bool FluidSimulation::Run(uint64_t events) {
  for (uint64_t i = 0; i < events && !over_; ++i) {
    over_ = !RunOne() || WindowEnded();
  }
  return over_;
}

// One stretch of time in which nothing changes.
bool FluidSimulation::RunOne() {
  Solve();
  if (over_) return false;
  const double round_s = options_.engine.round_duration_s;
  Time until = next_ < work_.size() ? work_.job(next_).arrival_s : kNever;
  until = std::min(until, options_.prices.NextChange(now_));
  // Chosen for one lease, and then chosen anew.
  if (each_round_) until = std::min(until, now_ + round_s);
  for (const Active& job : active_) {
    if (job.steps_per_s <= 0) continue;
    const double left = work_.job(job.index).steps_total - job.steps;
    until = std::min(until, now_ + std::max(0.0, left) / job.steps_per_s);
  }
  if (until == kNever) {
    stopped_ = "jobs wait and the policy gives none of them a share";
    return false;
  }
  if (until > options_.time_limit_s) {
    EndAtTimeLimit();
    Advance(options_.time_limit_s);
    return false;
  }
  Advance(until);
  End();
  Arrive();
  return true;
}

void FluidSimulation::Advance(Time to) {
  const double seconds = to - now_;
  CountPresent(to, active_.size());
  for (Active& job : active_) {
    job.steps += job.steps_per_s * seconds;
    job.isolated_s +=
        work_.IsolatedSeconds(job.index, job.steps_per_s * seconds,
                              static_cast<double>(active_.size()));
    job.time_received_s += job.share_total * seconds;
    job.told.run_s += job.share_total * seconds;
    for (size_t type = 0; type < job.share.size(); ++type) {
      const double accelerators = job.share[type] * job.told.scale_factor;
      const double cost = options_.prices.At(work_.types()[type], now_) *
                          accelerators * seconds / kHour_s;
      busy_s_[type] += accelerators * seconds;
      job.told.cost += cost;
      total_cost_ += cost;
    }
  }
  now_ = to;
}

void FluidSimulation::Arrive() {
  TakeArrived(now_, [this](size_t index) {
    CountPresent(now_, active_.size());
    Active& job = active_.emplace_back();
    job.index = index;
    job.told = work_.Describe(index);
    job.told.present_s = present_s_;
  });
}

void FluidSimulation::End() {
  std::erase_if(active_, [this](Active& job) {
    const double left = work_.job(job.index).steps_total - job.steps;
    // By time as well: a step may take hours.
    const bool ended =
        left <= kStepsLeftMin ||
        (job.steps_per_s > 0 && now_ + left / job.steps_per_s <= now_);
    if (!ended) return false;
    job.told.completion_s = now_;
    job.told.jct_s = now_ - job.told.arrival_s;
    job.told.rho = job.isolated_s > 0 ? job.told.jct_s / job.isolated_s : 0;
    job.told.share_target = job.told.share_received =
        job.told.jct_s > 0 ? job.told.run_s / job.told.jct_s : 1;
    TakeEnded(std::move(job.told));
    return true;
  });
}

void FluidSimulation::Solve() {
  for (Active& job : active_) {
    job.steps_per_s = 0;
    job.share.assign(work_.types().size(), 0.0);
    job.share_total = 0;
  }
  if (active_.empty()) return;
  ++solves_;
  absl::StatusOr<PolicyResult> result = policy_->Solve(Problem());
  if (!result.ok() || result->outcome == SolveOutcome::kFailed) {
    stopped_ = StrCat(
        "the policy failed: ",
        result.ok() ? result->detail : std::string(result.status().message()));
    over_ = true;
    return;
  }
  Take(*result);
}

PolicyProblem FluidSimulation::Problem() const {
  PolicyProblem problem;
  problem.types = work_.types();
  problem.capacity = work_.capacity();
  problem.entities = options_.engine.entities;
  for (const Active& job : active_) {
    PolicyJob& row = problem.jobs.emplace_back();
    row.id = JobId(job.index + 1);
    row.scale_factor = job.told.scale_factor;
    row.weight = job.told.weight;
    row.arrival_s = job.told.arrival_s;
    row.steps_remaining =
        std::max(0.0, work_.job(job.index).steps_total - job.steps);
    row.time_since_start_s = now_ - job.told.arrival_s;
    row.time_received_s = job.time_received_s;
    row.isolated_s = job.isolated_s;
    if (job.told.deadline_s < kNever) {
      row.deadline_s = job.told.deadline_s - now_;
    }
    const size_t entity = work_.job(job.index).entity;
    if (entity != TraceJob::kNoEntity) row.entity = static_cast<int>(entity);
  }
  if (options_.engine.placement_sensitive &&
      std::ranges::any_of(active_, [](const Active& job) {
        return job.told.scale_factor > 1;
      })) {
    for (size_t type = 0; type < problem.types.size(); ++type) {
      problem.servers.push_back(work_.Servers(type));
    }
  }
  for (const Active& job : active_) {
    for (size_t c = 0; c < problem.columns(); ++c) {
      problem.throughputs.push_back(work_.Alone(
          job.index, problem.TypeOfColumn(c), c < problem.types.size()));
    }
  }
  if (!options_.prices.empty()) {
    for (const std::string& type : problem.types) {
      problem.cost.push_back(options_.prices.At(type, now_));
    }
  }
  if (policy_->packs()) AddPairs(problem);
  return problem;
}

// Jobs of one row of the throughputs are of one kind, named by its first job.
void FluidSimulation::AddPairs(PolicyProblem& problem) const {
  std::map<ThroughputTable::Row, size_t> kind_of;
  std::vector<int> members(active_.size(), 0);
  for (size_t m = 0; m < active_.size(); ++m) {
    const std::optional<ThroughputTable::Row> row = work_.Row(active_[m].index);
    size_t kind = m;
    if (row.has_value()) kind = kind_of.emplace(*row, m).first->second;
    problem.kinds.push_back(kind);
    ++members[kind];
  }
  for (size_t a = 0; a < active_.size(); ++a) {
    if (members[a] == 0) continue;
    for (size_t b = members[a] > 1 ? a : a + 1; b < active_.size(); ++b) {
      if (members[b] == 0 ||
          active_[a].told.scale_factor != active_[b].told.scale_factor) {
        continue;
      }
      problem.pairs.push_back({a, b});
      for (size_t c = 0; c < problem.columns(); ++c) {
        const size_t type = problem.TypeOfColumn(c);
        const bool together = c < problem.types.size();
        problem.pair_throughputs.push_back(
            work_.Together(active_[a].index, active_[b].index, type, together));
        problem.pair_throughputs.push_back(
            work_.Together(active_[b].index, active_[a].index, type, together));
      }
    }
  }
}

void FluidSimulation::Take(const PolicyResult& result) {
  each_round_ = result.each_round;
  if (result.is_assignment) {
    for (const TypeAssignment& entry : result.assignment) {
      Give(entry.unit, entry.type, 1);
    }
    return;
  }
  const std::span<const ShareUnit> units = result.allocation.units();
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<const double> row = result.allocation.RowAt(u);
    for (size_t column = 0; column < row.size(); ++column) {
      if (row[column] > 0) Give(units[u], column, row[column]);
    }
  }
}

// On single servers unless the policy means it to be spread, as far as servers
// are large enough.
void FluidSimulation::Give(const ShareUnit& unit, size_t column, double share) {
  const size_t type = column % work_.types().size();
  const auto find = [this](JobId id) -> Active* {
    const auto found = std::lower_bound(active_.begin(), active_.end(), id,
                                        [](const Active& job, JobId key) {
                                          return job.index + 1 < key.value();
                                        });
    return found != active_.end() && found->index + 1 == id.value() ? &*found
                                                                    : nullptr;
  };
  const auto give = [&](Active* job, Active* other) {
    if (job == nullptr) return;
    const bool together =
        column == type && work_.FitsOnServer(job->index, type);
    job->steps_per_s +=
        share * (other == nullptr ? work_.Alone(job->index, type, together)
                                  : work_.Together(job->index, other->index,
                                                   type, together));
    job->share[type] += other == nullptr ? share : share / 2;
    job->share_total += share;
  };
  Active* const job = find(unit.job);
  Active* const partner = unit.packed() ? find(unit.partner) : nullptr;
  give(job, partner);
  if (partner != nullptr) give(partner, job);
}

absl::StatusOr<std::string> FluidSimulation::Checkpoint() const {
  return absl::UnimplementedError(
      "the ideal simulation has no checkpoints; leave --ideal or them out");
}

absl::Status FluidSimulation::Resume(std::string_view) {
  return Checkpoint().status();
}

SimulationResult FluidSimulation::Result() const {
  std::vector<SimulatedJob> running;
  for (const Active& job : active_) running.push_back(job.told);
  SimulationResult result =
      Summary(std::move(running), now_, work_.capacity(), busy_s_);
  result.total_cost = total_cost_;
  result.solves = solves_;
  return result;
}

}  // namespace gavel
