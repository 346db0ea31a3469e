// A trace as [[job]] and [[entity]] tables of TOML.
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/workload/toml_reader.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kTomlTraceBytesMax = 256 * 1024 * 1024;

class TomlTraceParser {
 public:
  TomlTraceParser(const toml::table& root, std::string_view source)
      : root_(root), source_(source) {}

  absl::StatusOr<Trace> Parse() && {
    TomlReader reader(root_, source_, {"job", "entity"}, status_);
    for (const toml::table* table : reader.Tables("entity")) {
      ReadEntity(*table);
    }
    for (const toml::table* table : reader.Tables("job")) {
      ReadJobs(*table);
      GAVEL_RETURN_IF_ERROR(status_);
    }
    GAVEL_RETURN_IF_ERROR(status_);
    return std::move(trace_);
  }

 private:
  void ReadEntity(const toml::table& table) {
    TomlReader reader(table, source_, {"name", "weight", "policy"}, status_);
    TraceEntity entity;
    reader.Require("name", "name = \"vision\"");
    reader.ReadName("name", entity.name);
    reader.Read("weight", entity.weight, kTraceWeight);
    reader.ReadName("policy", entity.policy);
    if (!entity_of_.emplace(entity.name, trace_.entities.size()).second) {
      reader.Fail("name", StrCat("entity \"", entity.name,
                                 "\" is named twice; give each its own name"));
    }
    trace_.entities.push_back(std::move(entity));
  }

  // One table stands for `count` jobs.
  void ReadJobs(const toml::table& table) {
    TomlReader reader(table, source_,
                      {"type", "command", "steps_total", "duration_s", "count",
                       "scale_factor", "scale_factor_min", "scale_factor_max",
                       "weight", "arrival_s", "slo", "entity"},
                      status_);
    TraceJob job;
    job.job_template = ReadTemplate(reader);
    ReadWork(reader, job);
    ReadScaleFactors(reader, job);
    reader.Read("weight", job.weight, kTraceWeight);
    reader.Read("slo", job.slo, kTraceSlo);
    ReadArrival(reader, job);
    ReadEntityOf(reader, job);
    int count = 1;
    reader.Read("count", count, 1, kTraceJobsMax);
    const size_t jobs = trace_.jobs.size() + static_cast<size_t>(count);
    if (jobs > kTraceJobsMax) {
      return reader.Fail("count", StrCat("the trace has more than ",
                                         kTraceJobsMax, " jobs; lower count"));
    }
    if (status_.ok()) trace_.jobs.resize(jobs, job);
  }

  static void ReadScaleFactors(TomlReader& reader, TraceJob& job) {
    reader.Read("scale_factor", job.scale_factor, 1, kTraceScaleFactorMax);
    reader.Read("scale_factor_min", job.scale_factor_min, 1,
                kTraceScaleFactorMax);
    reader.Read("scale_factor_max", job.scale_factor_max, 1,
                kTraceScaleFactorMax);
    CheckScaleFactors(job.scale_factor_min, job.scale_factor,
                      job.scale_factor_max, reader);
  }

  size_t ReadTemplate(TomlReader& reader) {
    JobTemplate job_template;
    reader.Require("type", "type = \"ResNet-18 (batch size 64)\"");
    if (reader.Read("type", job_template.type) && job_template.type.empty()) {
      reader.Fail("type",
                  "type is empty; write the name of a row of the "
                  "throughputs");
    }
    reader.Read("command", job_template.command);
    const auto [found, added] = template_of_.try_emplace(
        std::pair(job_template.type, job_template.command),
        trace_.templates.size());
    if (added) trace_.templates.push_back(std::move(job_template));
    return found->second;
  }

  void ReadWork(TomlReader& reader, TraceJob& job) {
    if (!reader.Has("duration_s")) {
      reader.Require("steps_total",
                     "steps_total = 10000, or duration_s = 3600");
    }
    reader.Read("steps_total", job.steps_total, kTraceSteps);
    reader.Read("duration_s", job.duration_s, kTraceDuration);
  }

  void ReadArrival(TomlReader& reader, TraceJob& job) {
    reader.Read("arrival_s", job.arrival_s, kTraceArrival);
    if (IsBeforeLastArrival(trace_, job.arrival_s)) {
      reader.Fail("arrival_s",
                  StrCat("arrival_s ", job.arrival_s,
                         " is before that of the job ahead; sort the jobs by "
                         "arrival_s, which is 0 unless written"));
    }
  }

  void ReadEntityOf(TomlReader& reader, TraceJob& job) {
    std::string name;
    if (!reader.ReadName("entity", name)) return;
    const auto found = entity_of_.find(name);
    if (found == entity_of_.end()) {
      return reader.Fail(
          "entity", StrCat("there is no entity \"", name,
                           "\"; add [[entity]] with name = \"", name, "\""));
    }
    job.entity = found->second;
  }

  const toml::table& root_;
  std::string_view source_;
  absl::Status status_;
  Trace trace_;
  std::map<std::string, size_t> entity_of_;
  std::map<std::pair<std::string, std::string>, size_t> template_of_;
};

}  // namespace

absl::StatusOr<Trace> ParseTomlTrace(std::string_view text,
                                     std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(text, source, kTomlTraceBytesMax));
  return TomlTraceParser(root, source).Parse();
}

}  // namespace gavel
