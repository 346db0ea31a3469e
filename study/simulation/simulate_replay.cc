#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/json.h"
#include "core/status.h"
#include "core/text.h"
#include "study/simulation/past_jobs.h"
#include "study/simulation/simulation_summary.h"

namespace gavel::study {
namespace {

absl::StatusOr<SimulationRun> Simulate(const Past& past,
                                       const SimulationSpec& spec,
                                       const ReplaySpec& replay,
                                       const RunControl& control) {
  SimulationInputCache cache;
  GAVEL_ASSIGN_OR_RETURN(SimulationOptions options, cache.LoadOptions(spec));
  options.record_rounds = replay.record_rounds;
  if (!replay.cluster_given) options.cluster = past.cluster;
  std::vector<PredictedJob> jobs;
  for (const PastJob& job : past.jobs) jobs.push_back(job.job);
  GAVEL_ASSIGN_OR_RETURN(const SimulationInputs inputs,
                         MakeInputs(std::move(options), &jobs));
  Watched watched = RunSimulation(inputs, TraceSimulation::Create, control);
  if (!watched.started) return absl::InvalidArgumentError(watched.run.detail);
  if (watched.stopped) return absl::CancelledError("stopped");
  return std::move(watched.run);
}

std::string TypesOf(const std::vector<ClusterPart>& cluster) {
  std::vector<std::string> types;
  for (const ClusterPart& part : cluster) types.push_back(part.type);
  return absl::StrJoin(types, ", ");
}

// The jobs have throughputs only on types that their cluster had.
absl::Status CheckTypes(const Past& past,
                        const std::vector<ClusterPart>& cluster) {
  for (const PastJob& job : past.jobs) {
    for (const ClusterPart& part : cluster) {
      const auto rate = job.job.steps_per_s.find(part.type);
      if (rate != job.job.steps_per_s.end() && rate->second > 0) {
        return absl::OkStatus();
      }
    }
  }
  return absl::FailedPreconditionError(
      StrCat("no job has a throughput on ", TypesOf(cluster),
             "; the journal has ", TypesOf(past.cluster)));
}

std::string TextOf(const Past& past, const std::vector<ClusterPart>& cluster,
                   double round_duration_s) {
  std::string text = StrCat(past.jobs.size(), " jobs on ");
  for (const ClusterPart& part : cluster) {
    StrAppend(&text, &part == &cluster.front() ? "" : ",", part.type, ":",
              part.count);
  }
  StrAppend(&text, ", rounds of ", round_duration_s, " s");
  if (past.left_out > 0) {
    StrAppend(&text, "; ", past.left_out,
              " jobs never ran a step and are left out");
  }
  return text + "\n";
}

Json OutcomeJson(const Outcome& outcome) {
  return {{"title", outcome.title},
          {"jobs", outcome.finished},
          {"avg_jct_s", outcome.avg_jct_s},
          {"p50_jct_s", outcome.p50_jct_s},
          {"p99_jct_s", outcome.p99_jct_s},
          {"makespan_s", outcome.makespan_s},
          {"avg_slowdown", outcome.avg_slowdown},
          {"worst_slowdown", outcome.worst_slowdown},
          {"fairness", outcome.fairness},
          {"pauses", outcome.pauses},
          {"moves", outcome.moves}};
}

}  // namespace

absl::StatusOr<std::string> SimulateReplay(const ReplaySpec& replay,
                                           const RunControl& control) {
  GAVEL_ASSIGN_OR_RETURN(const Past past, ReadPast(replay.journal));
  SimulationSpec spec = replay.spec;
  // Both are in it.
  spec.trace = spec.throughputs = replay.journal;
  GAVEL_RETURN_IF_ERROR(CheckSpec(spec));
  if (!replay.round_duration_given && past.round_duration_s > 0) {
    spec.round_duration_s = past.round_duration_s;
  }
  std::vector<ClusterPart> cluster = past.cluster;
  if (replay.cluster_given) {
    GAVEL_ASSIGN_OR_RETURN(cluster, ParseCluster(spec.cluster));
  }
  GAVEL_RETURN_IF_ERROR(CheckTypes(past, cluster));
  std::vector<std::string> policies = {spec.policy};
  if (!past.policy.empty() && past.policy != spec.policy) {
    policies.insert(policies.begin(), past.policy);
  }
  std::vector<Outcome> outcomes = {RealOutcome(past)};
  Json runs = Json::array();
  for (const std::string& policy : policies) {
    spec.policy = policy;
    GAVEL_ASSIGN_OR_RETURN(const SimulationRun run,
                           Simulate(past, spec, replay, control));
    outcomes.push_back(
        SimulatedOutcome(past, run.result, StrCat("simulated: ", policy)));
    runs.push_back(SummaryJson(spec, run));
  }
  const std::string text = StrCat(TextOf(past, cluster, spec.round_duration_s),
                                  RenderOutcomes(outcomes));
  if (replay.output.empty()) return text;
  Json compared = Json::array();
  for (const Outcome& outcome : outcomes) {
    compared.push_back(OutcomeJson(outcome));
  }
  GAVEL_RETURN_IF_ERROR(
      WriteFile(replay.output,
                Json({{"compared", compared}, {"runs", runs}}).dump(1) + "\n"));
  return text;
}

}  // namespace gavel::study
