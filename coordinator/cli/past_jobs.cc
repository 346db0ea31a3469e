#include "coordinator/cli/past_jobs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/server/history.h"
#include "coordinator/server/journal.h"
#include "coordinator/server/journal_writer.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/files.h"
#include "study/simulation_summary.h"

namespace gavel {
namespace {

// The length of the measurement of a throughput in the journal, which does not
// record it: enough to outweigh a given throughput.
constexpr double kMeasured_s = 60;

// Reads the servers and options of the engine from the journal.
absl::Status ReadCluster(SqliteDatabase& database, Past* past) {
  Engine engine{EngineOptions()};
  HistoryProjector projector;
  uint64_t rows = 0;
  const RecoverInto into =
      RecoverBoth(EngineOptions(), &engine, &projector, &rows);
  GAVEL_RETURN_IF_ERROR(RecoverChain(database, into).status());
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const Accelerator& one : engine.cluster().accelerators()) {
    ++counts[{one.server, one.info.type}];
  }
  past->cluster = PartsOf(counts);
  past->policy = projector.policy();
  past->round_duration_s = projector.round_duration_s();
  return absl::OkStatus();
}

PastJob JobOf(const Json& row, double first_s) {
  PastJob past;
  PredictedJob& job = past.job;
  job.id = row.value("job", uint64_t{0});
  job.name = row.value("name", "");
  job.entity = row.value("entity", "");
  job.arrival_s = row.value("submitted_s", 0.0) - first_s;
  job.weight = row.value("weight", 1.0);
  job.scale_factor = row.value("scale_factor", 1);
  past.finished = row.value("state", "") == "CD";
  past.pauses = row.value("pauses", uint64_t{0});
  past.moves = row.value("moves", uint64_t{0});
  const double ended_s = row.value("ended_s", 0.0);
  if (ended_s > 0) past.ended_s = ended_s - first_s;
  const double total = row.value("steps_total", 0.0);
  job.steps = row.value("steps_done", 0.0);
  const bool goes_on = ended_s <= 0 && row.value("state", "") != "F";
  if (goes_on && total > job.steps) job.steps = total;
  if (past.pauses > 0) {
    job.pause_s =
        row.value("pausing_s", 0.0) / static_cast<double>(past.pauses);
  }
  return past;
}

// Fills in throughputs type by type; unmeasured ones are guessed as the
// coordinator does.
void AddRates(const Json& rows, Past* past) {
  ThroughputMatrix matrix;
  for (const Json& row : rows) {
    const JobId id(row.value("job", uint64_t{0}));
    matrix.AddJob(id, RatesIn(row, "given_steps_per_s"),
                  row.value("scale_factor", 1));
    for (const auto& [type, rate] : RatesIn(row, "steps_per_s")) {
      matrix.Measure(id, type, rate, kMeasured_s);
    }
  }
  for (PastJob& past_job : past->jobs) {
    for (const ClusterPart& part : past->cluster) {
      past_job.job.steps_per_s[part.type] =
          matrix.Get(JobId(past_job.job.id), part.type).steps_per_s;
    }
  }
}

double AloneSeconds(const PredictedJob& job) {
  double fastest = 0;
  for (const auto& [type, rate] : job.steps_per_s) {
    fastest = std::max(fastest, rate);
  }
  return fastest > 0 ? job.steps / fastest : 0;
}

double Quantile(const std::vector<double>& sorted, double part) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(part * last))];
}

// `completion(i)` is that of past.jobs[i]; kNever if it did not end.
Outcome Measure(const Past& past, std::string title,
                const std::function<Time(size_t)>& completion) {
  Outcome outcome;
  outcome.title = std::move(title);
  std::vector<double> jcts;
  std::vector<double> slowdowns;
  for (size_t i = 0; i < past.jobs.size(); ++i) {
    const Time ended_s = completion(i);
    if (!past.jobs[i].finished || !(ended_s < kNever)) continue;
    const PredictedJob& job = past.jobs[i].job;
    jcts.push_back(ended_s - job.arrival_s);
    const double alone_s = AloneSeconds(job);
    if (alone_s > 0) slowdowns.push_back(jcts.back() / alone_s);
    outcome.makespan_s = std::max(outcome.makespan_s, ended_s);
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  outcome.finished = jcts.size();
  outcome.avg_jct_s = outcome.p50_jct_s = outcome.p99_jct_s = kNone;
  outcome.avg_slowdown = outcome.worst_slowdown = outcome.fairness = kNone;
  if (jcts.empty()) outcome.makespan_s = kNone;
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) /
           static_cast<double>(values.size());
  };
  if (!jcts.empty()) {
    std::ranges::sort(jcts);
    outcome.avg_jct_s = mean(jcts);
    outcome.p50_jct_s = Quantile(jcts, 0.5);
    outcome.p99_jct_s = Quantile(jcts, 0.99);
  }
  if (!slowdowns.empty()) {
    outcome.avg_slowdown = mean(slowdowns);
    outcome.worst_slowdown = *std::ranges::max_element(slowdowns);
    double sum = 0;
    double squares = 0;
    for (const double slowdown : slowdowns) {
      sum += 1 / slowdown;
      squares += 1 / (slowdown * slowdown);
    }
    outcome.fairness =
        sum * sum / (static_cast<double>(slowdowns.size()) * squares);
  }
  return outcome;
}

}  // namespace

absl::StatusOr<Past> ReadPast(const std::string& path) {
  absl::StatusOr<SqliteDatabase> database = SqliteDatabase::OpenReadOnly(path);
  GAVEL_RETURN_IF_ERROR(Annotate(database.status(), path));
  const auto read = [&]() -> absl::StatusOr<Past> {
    Past past;
    GAVEL_RETURN_IF_ERROR(database->Execute("BEGIN"));
    GAVEL_RETURN_IF_ERROR(
        CheckJournalFormat(*database, Journal::kFormatVersion));
    GAVEL_RETURN_IF_ERROR(ReadCluster(*database, &past));
    GAVEL_ASSIGN_OR_RETURN(const Json rows,
                           ReadAllHistory(*database, HistoryFilter()));
    double first_s = kNever;
    for (const Json& row : rows) {
      first_s = std::min(first_s, row.value("submitted_s", kNever));
    }
    for (const Json& row : rows) {
      PastJob job = JobOf(row, first_s);
      if (job.job.steps > 0) {
        past.jobs.push_back(std::move(job));
      } else {
        ++past.left_out;
      }
    }
    AddRates(rows, &past);
    std::ranges::stable_sort(
        past.jobs, {}, [](const PastJob& job) { return job.job.arrival_s; });
    return past;
  };
  absl::StatusOr<Past> past = read();
  GAVEL_RETURN_IF_ERROR(Annotate(past.status(), path));
  if (!past->jobs.empty()) return past;
  return absl::FailedPreconditionError(
      StrCat(path, ": no job in it ever ran a step; nothing can be replayed"));
}

Outcome RealOutcome(const Past& past) {
  Outcome outcome = Measure(past, "as it happened",
                            [&](size_t i) { return past.jobs[i].ended_s; });
  for (const PastJob& job : past.jobs) {
    outcome.pauses += job.pauses;
    outcome.moves += job.moves;
  }
  return outcome;
}

Outcome SimulatedOutcome(const Past& past, const SimulationResult& result,
                         std::string title) {
  std::map<uint64_t, Time> ends;
  for (const SimulatedJob& job : result.jobs) {
    ends[job.job] = job.completion_s;
  }
  Outcome outcome = Measure(past, std::move(title), [&](size_t i) {
    const auto found = ends.find(i);
    return found == ends.end() ? kNever : found->second;
  });
  outcome.pauses = result.preemptions;
  outcome.moves = result.moves;
  return outcome;
}

std::string RenderOutcomes(const std::vector<Outcome>& outcomes) {
  std::vector<Column> columns = {Left("")};
  for (const Outcome& outcome : outcomes) {
    columns.push_back(Right(outcome.title));
  }
  TableRows rows;
  const auto row = [&](const char* name, const auto& value) {
    rows.push_back({name});
    for (const Outcome& outcome : outcomes) {
      rows.back().push_back(value(outcome));
    }
  };
  const auto duration = [&](const char* name, double Outcome::*field) {
    row(name, [field](const Outcome& o) { return FormatDuration(o.*field); });
  };
  const auto ratio = [&](const char* name, double Outcome::*field) {
    row(name, [field](const Outcome& o) { return FormatNumber(o.*field, 3); });
  };
  row("jobs", [](const Outcome& o) { return StrCat(o.finished); });
  duration("average JCT", &Outcome::avg_jct_s);
  duration("p50 JCT", &Outcome::p50_jct_s);
  duration("p99 JCT", &Outcome::p99_jct_s);
  duration("makespan", &Outcome::makespan_s);
  ratio("average slowdown", &Outcome::avg_slowdown);
  ratio("worst slowdown", &Outcome::worst_slowdown);
  ratio("fairness (Jain)", &Outcome::fairness);
  row("pauses", [](const Outcome& o) { return StrCat(o.pauses); });
  row("moves", [](const Outcome& o) { return StrCat(o.moves); });
  return RenderTable(columns, rows, /*width=*/200);
}

namespace {

absl::StatusOr<study::SimulationRun> Simulate(
    const Past& past, const study::SimulationSpec& spec,
    const ReplaySpec& replay, const study::RunControl& control) {
  study::SimulationInputCache cache;
  GAVEL_ASSIGN_OR_RETURN(SimulationOptions options, cache.LoadOptions(spec));
  options.record_rounds = replay.record_rounds;
  if (!replay.cluster_given) options.cluster = past.cluster;
  std::vector<PredictedJob> jobs;
  for (const PastJob& job : past.jobs) jobs.push_back(job.job);
  GAVEL_ASSIGN_OR_RETURN(const study::SimulationInputs inputs,
                         MakeInputs(std::move(options), &jobs));
  study::Watched watched =
      study::RunSimulation(inputs, TraceSimulation::Create, control);
  if (!watched.started) return absl::InvalidArgumentError(watched.run.detail);
  if (watched.stopped) return absl::CancelledError("stopped");
  return std::move(watched.run);
}

std::string TypesOf(const std::vector<ClusterPart>& cluster) {
  return absl::StrJoin(cluster, ", ", [](std::string* out, const auto& part) {
    *out += part.type;
  });
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
  const auto name = [](std::string* out, const ClusterPart& part) {
    StrAppend(out, part.type, ":", part.count);
  };
  std::string text =
      StrCat(past.jobs.size(), " jobs on ", absl::StrJoin(cluster, ",", name));
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
                                           const study::RunControl& control) {
  GAVEL_ASSIGN_OR_RETURN(const Past past, ReadPast(replay.journal));
  study::SimulationSpec spec = replay.spec;
  // Both are in it.
  spec.trace = spec.throughputs = replay.journal;
  GAVEL_RETURN_IF_ERROR(study::CheckSpec(spec));
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
    GAVEL_ASSIGN_OR_RETURN(const study::SimulationRun run,
                           Simulate(past, spec, replay, control));
    outcomes.push_back(
        SimulatedOutcome(past, run.result, StrCat("simulated: ", policy)));
    runs.push_back(study::SummaryJson(spec, run));
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

}  // namespace gavel
