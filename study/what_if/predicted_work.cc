#include "study/what_if/predicted_work.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

std::string TypeName(const PredictedJob& job) { return StrCat("job-", job.id); }

// Gavel's throughput file, each job a type of its own.
std::string ThroughputJson(const std::vector<PredictedJob>& jobs,
                           const std::vector<ClusterPart>& cluster) {
  Json json = Json::object();
  for (const ClusterPart& part : cluster) {
    Json& rows = json[part.type] = Json::object();
    for (const PredictedJob& job : jobs) {
      const auto found = job.steps_per_s.find(part.type);
      rows[StrCat("('", TypeName(job), "', ", job.scale_factor, ")")] = {
          {"null", found == job.steps_per_s.end() ? 0.0 : found->second}};
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t EntityOf(const PredictedJob& job, Trace* trace) {
  if (job.entity.empty()) return TraceJob::kNoEntity;
  for (size_t i = 0; i < trace->entities.size(); ++i) {
    if (trace->entities[i].name == job.entity) return i;
  }
  trace->entities.push_back({job.entity, 1, "fairness"});
  return trace->entities.size() - 1;
}

}  // namespace

absl::StatusOr<SimulationInputs> MakeInputs(SimulationOptions options,
                                            std::vector<PredictedJob>* jobs) {
  if (jobs->empty()) {
    return absl::InvalidArgumentError("there are no jobs to simulate");
  }
  std::ranges::stable_sort(*jobs, {}, &PredictedJob::arrival_s);
  Trace trace;
  for (const PredictedJob& job : *jobs) {
    TraceJob row;
    row.job_template = trace.templates.size();
    row.scale_factor = job.scale_factor;
    row.weight = job.weight;
    row.steps_total = job.steps;
    row.arrival_s = job.arrival_s;
    row.entity = EntityOf(job, &trace);
    JobTemplate job_template;
    job_template.type = TypeName(job);
    trace.templates.push_back(std::move(job_template));
    trace.jobs.push_back(row);
    options.received.push_back(job.received);
    if (job.pause_s > 0) {
      options.overheads.by_type[TypeName(job)] = {0, job.pause_s, job.pause_s};
    }
  }
  SimulationInputs inputs;
  GAVEL_ASSIGN_OR_RETURN(
      ThroughputTable table,
      ThroughputTable::Parse(ThroughputJson(*jobs, options.cluster),
                             "measured throughputs"));
  inputs.throughputs =
      std::make_shared<const ThroughputTable>(std::move(table));
  inputs.trace = std::make_shared<const Trace>(std::move(trace));
  inputs.options = std::move(options);
  return inputs;
}

// Servers of equal size where they are; else the size that divides them all.
std::vector<ClusterPart> PartsOf(
    const std::map<std::pair<std::string, std::string>, int>& counts) {
  std::map<std::string, ClusterPart> by_type;
  for (const auto& [place, count] : counts) {
    ClusterPart& part = by_type[place.second];
    part.type = place.second;
    part.per_server =
        part.count == 0 ? count : std::gcd(part.per_server, count);
    part.count += count;
  }
  std::vector<ClusterPart> parts;
  for (auto& [type, part] : by_type) parts.push_back(std::move(part));
  return parts;
}

std::map<std::string, double> RatesIn(const Json& row, const char* key) {
  std::map<std::string, double> rates;
  const Json map = row.value(key, Json::object());
  for (const auto& [type, rate] : map.items()) {
    if (rate.is_number()) rates[type] = rate.get<double>();
  }
  return rates;
}

}  // namespace gavel::study
