// The preview of another policy (what_if.h), and the command that sets one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/what_if.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/coordinator_server.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel {
namespace {

// A smaller change counts as none.
constexpr double kShareTolerance = 0.005;

JobSpec SpecOf(const ForecastRow& row) {
  JobSpec spec;
  spec.name = StrCat("job-", row.id);
  spec.argv = {"-"};
  spec.app = row.app;
  spec.workload = row.workload;
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
EngineOptions EngineOptionsOf(const StatusRow& status, const Policy& policy) {
  EngineOptions options;
  options.journal = false;
  options.user_shares = status.user_shares;
  options.app_shares = status.app_shares;
  options.placement_sensitive = status.placement_sensitive.value_or(false);
  for (const EntityRow& row : status.entities) {
    options.entities.push_back({row.name, row.weight, row.policy});
  }
  SetUpFor(policy, &options);
  options.solve_gap_s_per_job = 0;
  return options;
}

// One engine for each policy: jobs are submitted at their real times, and the
// problem is that of now.
class Solver {
 public:
  Solver(const LiveState& live, const Policy& policy)
      : policy_(policy), engine_(EngineOptionsOf(live.status, policy)) {
    Step(0, event::CoordinatorStarted{1});
    for (const NodeRow& node : live.nodes) Join(node);
    std::vector<const ForecastRow*> rows;
    for (const ForecastRow& row : live.jobs) rows.push_back(&row);
    std::ranges::stable_sort(rows, std::greater<>(), &ForecastRow::age_s);
    const double oldest_s = rows.empty() ? 0 : rows.front()->age_s;
    for (const ForecastRow* row : rows) {
      event::JobSubmitted submitted{SpecOf(*row)};
      submitted.received.total_s = row->received_s;
      // A job that fits nowhere at present is refused, and has no share.
      const size_t before = engine_.jobs().size();
      Step(oldest_s - row->age_s, std::move(submitted));
      if (engine_.jobs().size() > before) ids_.push_back(row->id);
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

// ---- the command

namespace {

struct PolicyOptions : ClientOptions {
  std::string name;
  std::optional<double> f;
  bool preview = false;
  std::optional<std::string> introspection;  // "on" or "off"
};

absl::Status Set(const PolicyOptions& options, Client& client) {
  CommandRequest command;
  command.kind = CommandKind::kPolicy;
  command.target = options.name;
  if (options.introspection.has_value()) {
    command.introspection = options.introspection == "on";
  }
  GAVEL_RETURN_IF_ERROR(client.Command(std::move(command)));
  Json done = Json::object();
  if (!options.name.empty()) {
    done["policy"] = options.name;
    if (!options.json) {
      std::printf("Policy %s decides from now on\n", options.name.c_str());
    }
  }
  if (options.introspection.has_value()) {
    done["introspection"] = options.introspection == "on";
    if (!options.json) {
      std::printf("Introspection is %s from now on\n",
                  options.introspection->c_str());
    }
  }
  if (options.json) std::printf("%s\n", done.dump(2).c_str());
  return absl::OkStatus();
}

absl::Status ShowPreview(const PolicyOptions& options, Client& client) {
  GAVEL_ASSIGN_OR_RETURN(const LiveState live, QueryLiveState(client, ""));
  GAVEL_ASSIGN_OR_RETURN(const auto preview, Preview(live, options.name));
  const std::string text =
      options.json ? PreviewJson(preview).dump(2) + "\n"
                   : RenderPreview(preview, Terminal().table_width());
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

absl::Status RunPolicyCommand(PolicyOptions options) {
  if (options.f.has_value()) {
    if (options.name != "themis") {
      return absl::InvalidArgumentError(
          "--f is the fairness knob of themis: gavel policy themis --f 0.5");
    }
    options.name = StrCat("themis_f=", *options.f);
  }
  if (options.preview && options.name.empty()) {
    return absl::InvalidArgumentError(
        "--preview of which policy? Name it: gavel policy NAME --preview");
  }
  if (options.preview && options.introspection.has_value()) {
    return absl::InvalidArgumentError(
        "--preview shows shares, which introspection leaves as they are; give "
        "--preview without --introspection");
  }
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  if (options.preview) return ShowPreview(options, *client);
  if (!options.name.empty() || options.introspection.has_value()) {
    return Set(options, *client);
  }
  GAVEL_ASSIGN_OR_RETURN(const Json json, client->Query(QueryKind::kStatus));
  const StatusRow status = ParseStatus(json);
  const std::string policy = status.policy;
  const std::string own = status.policy_option.value_or(policy);
  if (options.json) {
    const Json shown = {{"policy", policy},
                        {"policy_option", own},
                        {"introspection", status.introspection}};
    std::printf("%s\n", shown.dump(2).c_str());
    return absl::OkStatus();
  }
  std::string text = policy;
  if (own != policy) {
    StrAppend(&text, ", set in place of ", own,
              " (--policy of the coordinator)");
  }
  if (status.introspection) StrAppend(&text, ", with introspection");
  std::printf("%s\n", text.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPolicyCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<PolicyOptions>(
      app, exit_code, "policy",
      "Shows which policy decides, or sets another one; jobs that it keeps go "
      "on",
      RunPolicyCommand);
  AddClientOptions(command, &options);
  AddOption(command, "name", options.name, "POLICY", "the policy to set");
  AddOption(command, "--f", options.f, "F",
            "of themis: the fraction of the apps, the best-off ones, to which "
            "an auction offers nothing (0.8)")
      ->check(CLI::Range(0.0, 1.0));
  AddOption(command, "--introspection", options.introspection, "on|off",
            "switches trials that are undone on or off, with the policy that "
            "decides or with the one that is set")
      ->check(CLI::IsMember({"on", "off"}).description(""));
  command.add_flag("--preview", options.preview,
                   "sets nothing: says who would gain and lose which share");
}

}  // namespace gavel
