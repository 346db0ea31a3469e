#include "study/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "coordinator/cli/history/history_table.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/wall_time.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/stopwatch.h"
#include "study/what_if/predicted_work.h"

namespace gavel::study {
namespace {

// A job without an end does so many steps: more than any simulation comes to.
constexpr double kEndlessSteps = 1e15;
constexpr uint64_t kEventsAtOnce = 64;
constexpr size_t kOthersShown = 20;
// The new job comes after those that wait already.
constexpr double kMoment_s = 1e-3;

PredictedJob JobOf(const ForecastRow& row) {
  PredictedJob job;
  job.id = row.id;
  job.name = row.name;
  job.entity = row.entity;
  job.weight = row.weight;
  job.scale_factor = row.scale_factor;
  job.steps = std::max(1.0, row.steps_left.value_or(kEndlessSteps));
  job.steps_per_s = {row.throughputs.begin(), row.throughputs.end()};
  job.received.total_s = row.received_s;
  for (const auto& [type, on] : row.received) {
    job.received.types.push_back({type, on.since_reset_s, on.deficit_s});
  }
  return job;
}

// Accelerators that may be used.
std::vector<ClusterPart> ClusterOf(const std::vector<NodeRow>& nodes) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const NodeRow& node : nodes) {
    for (const AcceleratorRow& one : node.accelerators) {
      const bool usable = one.state == "idle" || one.state == "starting" ||
                          one.state == "allocated";
      if (!usable) continue;
      ++counts[{node.server, one.type}];
    }
  }
  return PartsOf(counts);
}

// The coordinator's options; defaults for those that it does not report.
SimulationOptions OptionsOf(const LiveState& live) {
  const StatusRow& status = live.status;
  SimulationOptions options;
  if (!status.policy.empty()) options.policy = status.policy;
  options.cluster = ClusterOf(live.nodes);
  options.record_rounds = true;
  EngineOptions& engine = options.engine;
  engine.round_duration_s =
      status.round_duration_s.value_or(engine.round_duration_s);
  engine.mechanism = FindMechanism(status.mechanism).value_or(engine.mechanism);
  engine.queue = FindQueue(status.queue).value_or(engine.queue);
  engine.memory_rounds = status.memory_rounds.value_or(engine.memory_rounds);
  engine.reset_interval_s =
      status.reset_interval_s.value_or(engine.reset_interval_s);
  engine.placement_sensitive =
      status.placement_sensitive.value_or(engine.placement_sensitive);
  return options;
}

// With throughputs of the same app's jobs for types that it does not name.
absl::StatusOr<PredictedJob> NewJob(const JobSpec& spec,
                                    const std::vector<ForecastRow>& jobs) {
  PredictedJob job;
  job.name = spec.name;
  job.entity = spec.entity;
  job.arrival_s = kMoment_s;
  job.weight = spec.weight;
  job.scale_factor = spec.scale_factor;
  job.steps = static_cast<double>(spec.steps_total);
  job.pause_s = spec.resume_s.value_or(0) + spec.pause_s.value_or(0);
  const std::string app = spec.app.empty() ? spec.name : spec.app;
  for (const ForecastRow& row : jobs) {
    if ((row.app.empty() ? row.name : row.app) == app &&
        row.scale_factor == spec.scale_factor) {
      job.steps_per_s = {row.throughputs.begin(), row.throughputs.end()};
    }
  }
  for (const auto& [type, rate] : spec.throughputs) {
    job.steps_per_s[type] = rate;
  }
  if (spec.steps_total == 0) {
    return absl::InvalidArgumentError(
        "the job names no steps_total; without it nobody knows when it is "
        "done");
  }
  if (job.steps_per_s.empty()) {
    return absl::InvalidArgumentError(
        "nobody knows how fast the job is; give it [throughputs] by "
        "accelerator type, or the app of a job that runs");
  }
  job.id = 1;
  for (const ForecastRow& row : jobs) job.id = std::max(job.id, row.id + 1);
  return job;
}

struct Ends {
  std::map<uint64_t, std::pair<Time, Time>> by_id;  // start, finish
  bool cut_short = false;
  double simulated_s = 0;
};

// Until all jobs that have an end have ended.
absl::StatusOr<Ends> Simulate(const SimulationOptions& options,
                              std::vector<PredictedJob> jobs,
                              double wall_limit_s) {
  GAVEL_ASSIGN_OR_RETURN(const auto inputs, MakeInputs(options, &jobs));
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<TraceSimulation> simulation,
                         TraceSimulation::Create(inputs.options, *inputs.trace,
                                                 *inputs.throughputs));
  const auto finite = static_cast<uint64_t>(std::ranges::count_if(
      jobs, [](const PredictedJob& job) { return job.steps < kEndlessSteps; }));
  const Stopwatch clock;
  Ends ends;
  while (simulation->jobs_ended() < finite && !simulation->Run(kEventsAtOnce)) {
    if (clock.elapsed_s() < wall_limit_s) continue;
    ends.cut_short = true;
    break;
  }
  ends.simulated_s = simulation->now();
  const SimulationResult result = simulation->Result();
  for (const SimulatedJob& job : result.jobs) {
    ends.by_id[jobs[job.job].id] = {kNever, job.completion_s};
  }
  for (const RecordedLease& lease : result.leases) {
    Time& start = ends.by_id[jobs[lease.job].id].first;
    start = std::min(start, lease.from_s);
  }
  return ends;
}

std::string In(Time seconds) {
  return seconds < kNever ? FormatElapsed(seconds) : "-";
}

std::string Difference(const WhatIfJob& job) {
  if (!(job.finish_s < kNever) || !(job.finish_without_s < kNever)) return "-";
  const double later_s = job.finish_s - job.finish_without_s;
  if (std::abs(later_s) < 1) return "same";
  return StrCat(later_s > 0 ? "+" : "-", FormatElapsed(std::abs(later_s)));
}

Json JobJson(const WhatIfJob& job) {
  // kNever becomes null.
  Json json = {{"id", job.id == 0 ? Json() : Json(job.id)},
               {"name", job.name},
               {"start_in_s", job.start_s},
               {"finish_in_s", job.finish_s}};
  if (job.id != 0) json["finish_without_in_s"] = job.finish_without_s;
  return json;
}

}  // namespace

absl::StatusOr<LiveState> QueryLiveState(Client& client) {
  GAVEL_ASSIGN_OR_RETURN(const Json status, client.Query(QueryKind::kStatus));
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, client.Query(QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(const Json jobs, client.Query(QueryKind::kForecast));
  return LiveState{ParseStatus(status), ParseNodes(nodes), ParseForecast(jobs)};
}

absl::StatusOr<WhatIf> Predict(const LiveState& live, const JobSpec& spec,
                               double wall_limit_s) {
  GAVEL_ASSIGN_OR_RETURN(const PredictedJob added, NewJob(spec, live.jobs));
  const SimulationOptions options = OptionsOf(live);
  if (options.cluster.empty()) {
    return absl::FailedPreconditionError(
        "the cluster has no accelerators at present; start an agent");
  }
  WhatIf answer;
  answer.policy = options.policy;
  std::vector<PredictedJob> jobs;
  for (const ForecastRow& row : live.jobs) {
    jobs.push_back(JobOf(row));
    answer.endless += jobs.back().steps >= kEndlessSteps ? 1 : 0;
  }
  Ends without;
  if (!jobs.empty()) {
    GAVEL_ASSIGN_OR_RETURN(without, Simulate(options, jobs, wall_limit_s / 2));
  }
  std::vector<PredictedJob> all = jobs;
  all.push_back(added);
  GAVEL_ASSIGN_OR_RETURN(Ends with,
                         Simulate(options, std::move(all), wall_limit_s / 2));
  answer.cut_short = with.cut_short || without.cut_short;
  answer.simulated_s = with.simulated_s;
  const auto [start_s, finish_s] = with.by_id[added.id];
  answer.job = {0, spec.name, start_s, finish_s, kNever};
  for (const PredictedJob& job : jobs) {
    if (job.steps >= kEndlessSteps) continue;
    const auto [from_s, to_s] = with.by_id[job.id];
    answer.others.push_back(
        {job.id, job.name, from_s, to_s, without.by_id[job.id].second});
  }
  return answer;
}

std::string RenderWhatIf(const WhatIf& answer, double wall_now_s) {
  const auto at = [&](Time seconds) {
    return seconds < kNever ? StrCat("in ", FormatElapsed(seconds), ", at ",
                                     FormatWallTime(wall_now_s + seconds))
                            : std::string("not within what was simulated");
  };
  std::string text =
      StrCat("job \"", answer.job.name, "\", if submitted now (", answer.policy,
             "):\n  starts    ", at(answer.job.start_s), "\n  finishes  ",
             at(answer.job.finish_s), "\n");
  std::vector<const WhatIfJob*> changed;
  for (const WhatIfJob& other : answer.others) {
    if (Difference(other) != "same") changed.push_back(&other);
  }
  StrAppend(&text, answer.others.size(), " other jobs, ", changed.size(),
            " of them end at another time");
  if (answer.endless > 0) {
    StrAppend(&text, "; ", answer.endless,
              " more name no steps_total and are taken to run on");
  }
  text += "\n";
  std::ranges::stable_sort(changed, [](const auto* a, const auto* b) {
    return a->finish_s - a->finish_without_s >
           b->finish_s - b->finish_without_s;
  });
  TableRows rows;
  for (const WhatIfJob* other : changed) {
    if (rows.size() == kOthersShown) break;
    rows.push_back({StrCat(other->id), other->name, In(other->finish_without_s),
                    In(other->finish_s), Difference(*other)});
  }
  if (!rows.empty()) {
    text += RenderTable({Right("JOBID"), Left("NAME", 24), Right("ENDS IN"),
                         Right("WITH IT"), Right("LATER")},
                        rows);
  }
  if (rows.size() < changed.size()) {
    StrAppend(&text, "... and ", changed.size() - rows.size(), " more\n");
  }
  if (answer.cut_short) {
    text +=
        "the simulation took too long and was cut short; \"-\" is what it "
        "did not come to\n";
  }
  return text;
}

Json WhatIfJson(const WhatIf& answer) {
  Json others = Json::array();
  for (const WhatIfJob& other : answer.others) others.push_back(JobJson(other));
  return {{"policy", answer.policy},       {"job", JobJson(answer.job)},
          {"others", std::move(others)},   {"endless_jobs", answer.endless},
          {"cut_short", answer.cut_short}, {"simulated_s", answer.simulated_s}};
}

}  // namespace gavel::study
