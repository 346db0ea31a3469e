#include "coordinator/workload/trace_steps.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/workload/toml_reader.h"
#include "core/ids.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// steps/s alone on the reference type; 0: it cannot run there, or the table
// does not tell.
double ReferenceStepsPerSecond(const ThroughputTable& throughputs,
                               ThroughputTable::Row row) {
  const std::optional<size_t> type = throughputs.FindType(kReferenceType);
  if (!type.has_value()) return 0;
  return throughputs.Alone(row, *type).value_or(0);
}

absl::Status FillSteps(double steps_per_s, TraceJob& job) {
  if (steps_per_s <= 0) {
    return absl::InvalidArgumentError(
        StrCat("only its duration is known, and the throughputs have none of "
               "it on the ",
               kReferenceType, "; add it, or write steps_total"));
  }
  job.steps_total = job.duration_s * steps_per_s;
  if (IsWithin(job.steps_total, kTraceSteps)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("its duration of ", job.duration_s, " s makes ", job.steps_total,
             " steps; write a duration that makes ", Describe(kTraceSteps)));
}

absl::Status Complete(const ThroughputTable& throughputs,
                      std::string_view job_type, TraceJob& job) {
  const std::optional<ThroughputTable::Row> row =
      throughputs.FindRow(job_type, job.scale_factor);
  const double steps_per_s =
      row.has_value() ? ReferenceStepsPerSecond(throughputs, *row) : 1;
  if (job.steps_total == 0) return FillSteps(steps_per_s, job);
  if (row.has_value() && steps_per_s > 0) {
    job.duration_s = job.steps_total / steps_per_s;
  }
  return absl::OkStatus();
}

// "did you mean "A3C"?", or the scale factors of a type that is there.
std::string ClosestRow(const ThroughputTable& throughputs,
                       std::string_view job_type) {
  std::vector<std::string_view> types;
  std::string scale_factors;
  for (ThroughputTable::Row row = 0; row < throughputs.rows(); ++row) {
    const auto& [type, scale_factor] = throughputs.NameOf(row);
    types.push_back(type);
    if (type != job_type) continue;
    StrAppend(&scale_factors, scale_factors.empty() ? "" : ", ", scale_factor);
  }
  if (!scale_factors.empty()) {
    return StrCat("it has the type at scale factors ", scale_factors);
  }
  const std::string_view closest = ClosestWord(job_type, types);
  if (!closest.empty()) return StrCat("did you mean \"", closest, "\"?");
  return types.empty() ? std::string("it has no rows")
                       : StrCat("its types are such as \"", types[0], "\"");
}

}  // namespace

absl::Status RequireKnownTypes(const ThroughputTable& throughputs,
                               const Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    const TraceJob& job = trace.jobs[number];
    const std::string& type = trace.templates[job.job_template].type;
    if (type == kNoJobType) continue;
    if (throughputs.FindRow(type, job.scale_factor).has_value()) continue;
    return absl::InvalidArgumentError(
        StrCat("job ", number, ": the throughput file has no row of type \"",
               type, "\" at scale factor ", job.scale_factor, " (",
               ClosestRow(throughputs, type),
               "); correct the type, add the row, or let jobs without one be "
               "equally fast on all accelerators: --unknown-types equal, or "
               "unknown_types = \"equal\" in a sweep"));
  }
  return absl::OkStatus();
}

std::optional<ThroughputTable> ScaleRows(const ThroughputTable& throughputs,
                                         Trace& trace) {
  std::map<std::string_view, std::map<int, ThroughputTable::Row>> rows_of;
  for (ThroughputTable::Row row = 0; row < throughputs.rows(); ++row) {
    const auto& [type, scale_factor] = throughputs.NameOf(row);
    rows_of[type][scale_factor] = row;
  }
  struct Scaled {
    ThroughputTable::Row from;
    double times;
  };
  std::map<std::pair<std::string_view, int>, Scaled> scaled;
  size_t jobs = 0;
  size_t first = 0;
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    const TraceJob& job = trace.jobs[number];
    const std::string& type = trace.templates[job.job_template].type;
    const auto known = rows_of.find(type);
    if (known == rows_of.end() || known->second.contains(job.scale_factor)) {
      continue;
    }
    if (jobs++ == 0) first = number;
    // The next smaller scale factor, or the smallest.
    auto nearest = known->second.lower_bound(job.scale_factor);
    if (nearest != known->second.begin()) --nearest;
    scaled.try_emplace(
        std::pair(known->first, job.scale_factor),
        Scaled{nearest->second,
               static_cast<double>(job.scale_factor) / nearest->first});
  }
  if (jobs == 0) return std::nullopt;
  ThroughputTable::Figures figures = throughputs.ToFigures();
  const size_t tables = figures.types.size() * 2;
  // Adds the new rows to each of the tables.
  const auto extended = [&](const std::vector<double>& known) {
    std::vector<double> all;
    for (size_t begin = 0; begin < known.size(); begin += throughputs.rows()) {
      const std::span rows(known.data() + begin, throughputs.rows());
      all.insert(all.end(), rows.begin(), rows.end());
      for (const auto& [name, one] : scaled) {
        const double steps_per_s = rows[one.from];
        all.push_back(steps_per_s > 0 ? steps_per_s * one.times : steps_per_s);
      }
    }
    return all;
  };
  std::vector<std::vector<std::pair<uint64_t, std::pair<double, double>>>>
      partners;
  for (size_t table = 0; table < tables; ++table) {
    const size_t begin = table * throughputs.rows();
    for (size_t row = 0; row < throughputs.rows(); ++row) {
      partners.push_back(std::move(figures.partners[begin + row]));
    }
    partners.resize(partners.size() + scaled.size());
  }
  for (const auto& [name, one] : scaled) figures.names.emplace_back(name);
  figures.alone = extended(figures.alone);
  figures.alone_at = extended(figures.alone_at);
  figures.partners = std::move(partners);
  const TraceJob& job = trace.jobs[first];
  trace.notices.push_back(StrCat(
      jobs, jobs == 1 ? " job has a scale factor" : " jobs have scale factors",
      " that the throughput file has no row for (job ", first, ": \"",
      trace.templates[job.job_template].type, "\" at ", job.scale_factor,
      "); their speeds are those of the next smaller one, in proportion"));
  return ThroughputTable::FromFigures(std::move(figures)).value();
}

void EqualizeUnknownTypes(const ThroughputTable& throughputs, Trace& trace) {
  size_t jobs = 0;
  std::string example;
  for (TraceJob& job : trace.jobs) {
    const std::string& type = trace.templates[job.job_template].type;
    if (job.duration_s > 0 ||
        throughputs.FindRow(type, job.scale_factor).has_value()) {
      continue;
    }
    if (jobs++ == 0) example = type;
    job.duration_s = job.steps_total;
  }
  if (jobs == 0) return;
  trace.notices.push_back(
      StrCat(jobs, jobs == 1 ? " job has a type" : " jobs have types",
             " without a row in the throughput file, and no duration (such as "
             "\"",
             example, "\"); 1 step/s is assumed on every accelerator type"));
}

absl::Status CompleteTrace(const ThroughputTable& throughputs, Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    TraceJob& job = trace.jobs[number];
    if (job.steps_total > 0 && job.duration_s > 0) continue;
    const std::string& type = trace.templates[job.job_template].type;
    GAVEL_RETURN_IF_ERROR(
        Annotate(Complete(throughputs, type, job),
                 StrCat("job ", number, " (", type, ", scale factor ",
                        job.scale_factor, ")")));
  }
  return absl::OkStatus();
}

}  // namespace gavel
