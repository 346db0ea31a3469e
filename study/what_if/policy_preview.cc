#include "study/what_if/policy_preview.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "coordinator/cli/table.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/guarded_solve.h"
#include "coordinator/server/engine_setup.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

// A change of less is none.
constexpr double kShareTolerance = 0.005;

JobSpec SpecOf(const ForecastRow& row) {
  JobSpec spec;
  spec.name = StrCat("job-", row.id);
  spec.argv = {"-"};
  spec.app = row.app;
  spec.entity = row.entity;
  spec.owner = row.owner;
  spec.weight = row.weight;
  spec.owner_weight = row.owner_weight;
  spec.scale_factor = row.scale_factor;
  spec.steps_total = static_cast<uint64_t>(row.steps_left.value_or(0));
  if (row.deadline_s.value_or(0) > 0) spec.deadline_s = row.deadline_s;
  spec.throughputs = {row.throughputs.begin(), row.throughputs.end()};
  return spec;
}

// The coordinator's options; defaults for those that it does not report.
EngineOptions OptionsOf(const StatusRow& status, const Policy& policy) {
  EngineOptions options;
  options.journal = false;
  options.user_shares = status.user_shares;
  options.placement_sensitive = status.placement_sensitive.value_or(false);
  for (const EntityRow& row : status.entities) {
    options.entities.push_back({row.name, row.weight, row.policy});
  }
  SetUpFor(policy, &options);
  options.solve_gap_s_per_job = 0;
  return options;
}

// One engine for each policy: jobs come when they came, and are solved for now.
class Solver {
 public:
  Solver(const LiveState& live, const Policy& policy)
      : policy_(policy), engine_(OptionsOf(live.status, policy)) {
    Step(0, event::CoordinatorStarted{1});
    for (const NodeRow& node : live.nodes) Join(node);
    std::vector<const ForecastRow*> rows;
    for (const ForecastRow& row : live.jobs) rows.push_back(&row);
    std::ranges::stable_sort(rows, std::greater<>(), &ForecastRow::age_s);
    const double oldest_s = rows.empty() ? 0 : rows.front()->age_s;
    for (const ForecastRow* row : rows) {
      event::JobSubmitted submitted{SpecOf(*row)};
      submitted.received.total_s = row->received_s;
      ids_.push_back(row->id);
      Step(oldest_s - row->age_s, std::move(submitted));
    }
    // Solving waits for the disk: one problem, of all jobs.
    Step(oldest_s, event::Persisted{engine_.position().seq});
    NoteRunning(live);
  }

  // Shares by the ids of `live`.
  absl::StatusOr<std::map<uint64_t, double>> Shares() {
    if (problem_ == nullptr) {
      return absl::FailedPreconditionError(
          "the cluster has no accelerators or no jobs at present");
    }
    PolicyResult result = policy::GuardedSolve(policy_, *problem_);
    if (result.outcome != SolveOutcome::kOptimal &&
        result.outcome != SolveOutcome::kIterationLimit) {
      return absl::FailedPreconditionError(StrCat(
          policy_.name(), " finds no allocation: ", OutcomeName(result.outcome),
          " ", result.detail));
    }
    std::map<uint64_t, double> shares;
    Step(now_, event::AllocationReady{epoch_, std::move(result)});
    for (size_t i = 0; i < ids_.size(); ++i) {
      shares[ids_[i]] = engine_.jobs().at(JobId(i + 1)).target_share;
    }
    return shares;
  }

 private:
  void Step(double now, Event event) {
    now_ = std::max(now_, now);
    for (const Action& action : engine_.Step(now_, std::move(event))) {
      const auto* solve = std::get_if<action::SolvePolicy>(&action);
      if (solve == nullptr) continue;
      epoch_ = solve->epoch;
      problem_ = solve->problem;
    }
  }

  // The engine has started nothing. Where jobs run comes from the coordinator,
  // for policies that keep running jobs in place.
  void NoteRunning(const LiveState& live) {
    if (problem_ == nullptr) return;
    auto problem = std::make_shared<PolicyProblem>(*problem_);
    for (const NodeRow& node : live.nodes) {
      for (const AcceleratorRow& one : node.accelerators) {
        const auto type = std::ranges::find(problem->types, one.type);
        if (type == problem->types.end()) continue;
        const std::vector<PolicyJob*> jobs = JobsOn(one, *problem);
        for (PolicyJob* job : jobs) {
          job->running_on = static_cast<int>(type - problem->types.begin());
          if (jobs.size() != 2) continue;
          job->running_with = jobs[job == jobs[0] ? 1 : 0]->id;
        }
      }
    }
    problem_ = std::move(problem);
  }

  // Rows of the problem; those that start count as running.
  std::vector<PolicyJob*> JobsOn(const AcceleratorRow& accelerator,
                                 PolicyProblem& problem) const {
    std::vector<PolicyJob*> jobs;
    for (const auto* ids : {&accelerator.jobs, &accelerator.starting_jobs}) {
      for (const uint64_t id : *ids) {
        const auto known = std::ranges::find(ids_, id);
        const JobId job(static_cast<uint64_t>(known - ids_.begin()) + 1);
        const auto row = std::ranges::find(problem.jobs, job, &PolicyJob::id);
        if (row != problem.jobs.end()) jobs.push_back(&*row);
      }
    }
    return jobs;
  }

  void Join(const NodeRow& node) {
    AgentHello hello;
    hello.server = StrCat(node.server, "-", ++joined_);
    hello.incarnation = 1;
    for (const AcceleratorRow& one : node.accelerators) {
      const bool usable = one.state == "idle" || one.state == "starting" ||
                          one.state == "allocated" || one.state == "hung";
      if (!usable) continue;
      AcceleratorInfo info;
      info.type = one.type;
      info.uuid = StrCat("a", hello.accelerators.size());
      hello.accelerators.push_back(std::move(info));
    }
    if (!hello.accelerators.empty()) Step(0, event::ServerJoined{hello});
  }

  const Policy& policy_;
  Engine engine_;
  double now_ = 0;
  int joined_ = 0;
  uint64_t epoch_ = 0;
  std::shared_ptr<const PolicyProblem> problem_;
  std::vector<uint64_t> ids_;  // of the engine's jobs, in their order
};

absl::StatusOr<std::map<uint64_t, double>> SharesUnder(
    const LiveState& live, const std::string& name) {
  GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(name));
  return Solver(live, *policy).Shares();
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f %%", 100 * share);
}

}  // namespace

absl::StatusOr<PolicyPreview> Preview(const LiveState& live,
                                      const std::string& policy) {
  PolicyPreview preview;
  preview.before = live.status.policy;
  preview.after = policy;
  GAVEL_ASSIGN_OR_RETURN(auto after, SharesUnder(live, policy));
  GAVEL_ASSIGN_OR_RETURN(auto before, SharesUnder(live, preview.before));
  for (const ForecastRow& row : live.jobs) {
    preview.jobs.push_back(
        {row.id, row.name, row.owner, before[row.id], after[row.id]});
  }
  return preview;
}

std::string RenderPreview(const PolicyPreview& preview, size_t width) {
  std::vector<ShareChange> changed = preview.jobs;
  std::erase_if(changed, [](const ShareChange& job) {
    return std::abs(job.after - job.before) < kShareTolerance;
  });
  std::ranges::stable_sort(changed, {}, [](const ShareChange& job) {
    return job.after - job.before;
  });
  const auto lose = std::ranges::count_if(
      changed, [](const ShareChange& job) { return job.after < job.before; });
  std::string text =
      StrCat(preview.after, " instead of ", preview.before, ": of ",
             preview.jobs.size(), " jobs ", lose, " lose, ",
             static_cast<std::ptrdiff_t>(changed.size()) - lose, " gain, ",
             preview.jobs.size() - changed.size(),
             " keep their share of time; nothing has been changed\n");
  TableRows rows;
  for (const ShareChange& job : changed) {
    rows.push_back(
        {StrCat(job.id), job.name, job.owner.empty() ? "-" : job.owner,
         Percent(job.before), Percent(job.after),
         absl::StrFormat("%+.0f %%", 100 * (job.after - job.before))});
  }
  if (rows.empty()) return text;
  return text + RenderTable({Right("JOBID"), Left("NAME", 24), Left("USER", 16),
                             Right("NOW"), Right("THEN"), Right("CHANGE")},
                            rows, width);
}

Json PreviewJson(const PolicyPreview& preview) {
  Json jobs = Json::array();
  for (const ShareChange& job : preview.jobs) {
    jobs.push_back({{"id", job.id},
                    {"name", job.name},
                    {"user", job.owner},
                    {"share_now", job.before},
                    {"share_then", job.after}});
  }
  return {{"policy", preview.before},
          {"preview", preview.after},
          {"jobs", std::move(jobs)}};
}

}  // namespace gavel::study
