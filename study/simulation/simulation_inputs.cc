#include "study/simulation/simulation_inputs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/files.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/trace_generator.h"
#include "coordinator/workload/trace_steps.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "study/simulation/capacity.h"
#include "xxhash.h"

namespace gavel::study {
namespace {

constexpr size_t kFileBytesMax = kTraceBytesMax;
// A file beyond that is read again for each use: a trace of a million jobs.
constexpr size_t kKeptBytesMax = 64 * 1024 * 1024;

std::string Digest(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

// What a trace depends on.
std::string TraceKey(const SimulationSpec& spec) {
  return absl::StrJoin(
      std::tuple(spec.trace, spec.throughputs, GeneratedJobs(spec),
                 FieldText(spec.rate_per_h), spec.multi_gpu,
                 spec.multi_priority, spec.slos,
                 FieldText(spec.fixed_duration_s), spec.scale_factor_max,
                 spec.seed, spec.unknown_types, spec.ignore_columns),
      "|");
}

absl::StatusOr<Trace> Generate(const SimulationSpec& spec,
                               const ThroughputTable& throughputs) {
  GeneratorOptions options;
  options.seed = spec.seed;
  options.interarrival_s = spec.rate_per_h > 0 ? 3600 / spec.rate_per_h : 0;
  options.multi_gpu = spec.multi_gpu;
  options.multi_priority = spec.multi_priority;
  options.slos = spec.slos;
  options.fixed_duration_s = spec.fixed_duration_s;
  options.scale_factor_max = spec.scale_factor_max;
  GAVEL_ASSIGN_OR_RETURN(TraceGenerator generator,
                         TraceGenerator::Create(options, throughputs));
  return generator.Take(GeneratedJobs(spec));
}

absl::Status CheckWindow(const SimulationSpec& spec, const Trace& trace) {
  if (trace.jobs.empty()) {
    return absl::InvalidArgumentError(
        StrCat(spec.trace, ": no jobs; is it the right file?"));
  }
  if (spec.window_begin < trace.jobs.size() &&
      spec.window_end <= trace.jobs.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("the window ", spec.window_begin, ":", spec.window_end,
             " goes beyond the ", trace.jobs.size(), " jobs of the trace"));
}

// All that needs no file.
absl::StatusOr<SimulationOptions> OptionsOf(const SimulationSpec& spec) {
  SimulationOptions options;
  options.policy = spec.policy;
  options.engine.round_duration_s = spec.round_duration_s;
  options.engine.mechanism =
      FindMechanism(spec.mechanism).value_or(MechanismKind::kGavel);
  options.engine.queue = FindQueue(spec.queue).value_or(QueueKind::kGlobal);
  options.engine.reset_interval_s = spec.reset_interval_s;
  options.engine.memory_rounds = spec.memory_rounds;
  options.engine.placement_sensitive = spec.placement_sensitive;
  options.seed = spec.seed;
  options.window_begin = spec.window_begin;
  if (spec.window_end > 0) options.window_end = spec.window_end;
  if (spec.time_limit_s > 0) options.time_limit_s = spec.time_limit_s;
  options.ideal = spec.ideal;
  if (spec.estimator) {
    options.engine.reference_models = spec.reference_models;
    options.profiling = {spec.profiling_percentage / 100,
                         spec.profiling_cell_s};
  }
  options.steady_state = spec.steady_state;
  options.failures_per_hour = spec.failures_per_hour;
  options.checkpoint_interval_s = spec.checkpoint_interval_s;
  GAVEL_ASSIGN_OR_RETURN(options.cluster, ParseCluster(spec.cluster));
  return options;
}

// What the runs with the same prices have.
struct PricedRuns {
  std::set<std::string> types;
  std::set<std::string> policies;  // that go by prices
};

// "per cost", "normalized by cost".
bool GoesByPrices(const std::string& policy) {
  return policy.find("cost") != std::string::npos;
}

absl::Status CheckPrices(const std::string& text, const PriceSeries& prices,
                         const PricedRuns& runs,
                         std::vector<std::string>* notices) {
  if (prices.empty()) {
    for (const std::string& policy : runs.policies) {
      notices->push_back(StrCat(policy,
                                " goes by prices, and there are none: each "
                                "accelerator counts as 1; give prices"));
    }
    return absl::OkStatus();
  }
  // A file and "gcp" may well have prices of other clusters.
  const bool written_here = text != "gcp" && !NamesFile("prices", text);
  for (const std::string& type : prices.Types()) {
    if (!written_here || runs.types.contains(type)) continue;
    return absl::InvalidArgumentError(
        StrCat("prices \"", text, "\": the cluster has no ", type, "; it has ",
               absl::StrJoin(runs.types, ", ")));
  }
  for (const std::string& type : runs.types) {
    if (prices.Has(type)) continue;
    notices->push_back(
        StrCat(type, " has no price in \"", text, "\" and counts as free"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SimulationInputCache::File>>
SimulationInputCache::Read(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = files_.find(path); it != files_.end()) {
      return it->second;
    }
  }
  auto file = std::make_shared<File>();
  GAVEL_ASSIGN_OR_RETURN(file->text, ReadFile(path, kFileBytesMax));
  file->digest = Digest(file->text);
  const std::lock_guard lock(mutex_);
  if (file->text.size() <= kKeptBytesMax) files_[path] = file;
  return file;
}

absl::StatusOr<std::shared_ptr<const ThroughputTable>>
SimulationInputCache::LoadThroughputs(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto file, Read(path));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const ThroughputTable>& known = throughputs_[path];
  if (known == nullptr) {
    GAVEL_ASSIGN_OR_RETURN(ThroughputTable table,
                           ThroughputTable::Parse(file->text, path));
    known = std::make_shared<const ThroughputTable>(std::move(table));
  }
  return known;
}

absl::StatusOr<std::shared_ptr<const SimulationInputCache::Workload>>
SimulationInputCache::LoadWorkload(const SimulationSpec& spec) {
  const std::string key = TraceKey(spec);
  {
    const std::lock_guard lock(mutex_);
    if (auto known = workloads_[key].lock(); known != nullptr) return known;
  }
  auto workload = std::make_shared<Workload>();
  GAVEL_ASSIGN_OR_RETURN(workload->throughputs,
                         LoadThroughputs(spec.throughputs));
  if (spec.trace.empty()) {
    GAVEL_ASSIGN_OR_RETURN(workload->trace,
                           Generate(spec, *workload->throughputs));
  } else {
    GAVEL_ASSIGN_OR_RETURN(const auto file, Read(spec.trace));
    GAVEL_RETURN_IF_ERROR(ReadTrace(spec, file->text, workload.get()));
  }
  const std::lock_guard lock(mutex_);
  workloads_[key] = workload;
  return workload;
}

absl::Status SimulationInputCache::ReadTrace(const SimulationSpec& spec,
                                             std::string_view text,
                                             Workload* workload) {
  Trace& trace = workload->trace;
  GAVEL_ASSIGN_OR_RETURN(trace,
                         ParseTrace(text, spec.trace, spec.ignore_columns));
  if (auto scaled = ScaleRows(*workload->throughputs, trace)) {
    workload->throughputs =
        std::make_shared<const ThroughputTable>(*std::move(scaled));
  }
  if (spec.unknown_types == "equal") {
    EqualizeUnknownTypes(*workload->throughputs, trace);
  } else {
    GAVEL_RETURN_IF_ERROR(
        Annotate(RequireKnownTypes(*workload->throughputs, trace), spec.trace));
  }
  return Annotate(CompleteTrace(*workload->throughputs, trace), spec.trace);
}

absl::StatusOr<Overheads> SimulationInputCache::LoadOverheads(
    const std::string& overheads) {
  if (!NamesFile("overheads", overheads)) return ParseOverheads(overheads);
  GAVEL_ASSIGN_OR_RETURN(const auto file, Read(overheads));
  return ParseOverheadsFile(file->text, overheads);
}

absl::StatusOr<PriceSeries> SimulationInputCache::LoadPrices(
    const std::string& prices) {
  if (prices == "none") return PriceSeries();
  if (!NamesFile("prices", prices)) return PriceSeries::Constant(prices);
  GAVEL_ASSIGN_OR_RETURN(const auto file, Read(prices));
  return PriceSeries::Parse(file->text, prices);
}

absl::StatusOr<SimulationOptions> SimulationInputCache::LoadOptions(
    const SimulationSpec& spec) {
  GAVEL_ASSIGN_OR_RETURN(SimulationOptions options, OptionsOf(spec));
  GAVEL_ASSIGN_OR_RETURN(options.overheads, LoadOverheads(spec.overheads));
  GAVEL_ASSIGN_OR_RETURN(options.prices, LoadPrices(spec.prices));
  return options;
}

// Jobs that are known by their durations only need no throughputs. `trace` is
// null when jobs are drawn.
absl::Status SimulationInputCache::CheckTypes(
    const SimulationSpec& run, const ThroughputTable& table, const Trace* trace,
    const std::vector<ClusterPart>& cluster) {
  for (const ClusterPart& part : cluster) {
    if (part.count == 0 || table.FindType(part.type).has_value()) continue;
    const bool needed =
        trace == nullptr ||
        std::ranges::any_of(trace->jobs, [&](const TraceJob& job) {
          const std::string& type = trace->templates[job.job_template].type;
          return table.FindRow(type, job.scale_factor).has_value();
        });
    if (!needed) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat("accelerator type \"", part.type, "\" of the cluster ",
               run.cluster, " is not in ", run.throughputs, ", which has ",
               absl::StrJoin(table.types(), ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimulationInputCache::CheckRuns(
    std::span<const SimulationSpec> runs) {
  std::set<std::array<std::string, 3>> seen;
  std::set<std::string> traces;  // of which is told
  std::map<std::string, PricedRuns> priced;
  std::vector<std::string> notices;
  for (const SimulationSpec& run : runs) {
    GAVEL_ASSIGN_OR_RETURN(const auto cluster, ParseCluster(run.cluster));
    if (seen.insert({run.trace, run.throughputs, run.cluster}).second) {
      GAVEL_ASSIGN_OR_RETURN(auto table, LoadThroughputs(run.throughputs));
      std::shared_ptr<const Workload> workload;
      if (!run.trace.empty()) {
        GAVEL_ASSIGN_OR_RETURN(workload, LoadWorkload(run));
        table = workload->throughputs;
      }
      const Trace* const trace = workload ? &workload->trace : nullptr;
      GAVEL_RETURN_IF_ERROR(CheckTypes(run, *table, trace, cluster));
      if (trace != nullptr && traces.insert(run.trace).second) {
        for (const std::string& notice : trace->notices) {
          notices.push_back(StrCat(run.trace, ": ", notice));
        }
      }
    }
    PricedRuns& same = priced[run.prices];
    for (const ClusterPart& part : cluster) {
      if (part.count > 0) same.types.insert(part.type);
    }
    if (GoesByPrices(run.policy)) same.policies.insert(run.policy);
  }
  for (const auto& [text, same] : priced) {
    GAVEL_ASSIGN_OR_RETURN(const PriceSeries prices, LoadPrices(text));
    GAVEL_RETURN_IF_ERROR(CheckPrices(text, prices, same, &notices));
  }
  return notices;
}

absl::StatusOr<SimulationInputs> SimulationInputCache::Load(
    const SimulationSpec& spec) {
  GAVEL_RETURN_IF_ERROR(CheckSpec(spec));
  SimulationInputs inputs;
  GAVEL_ASSIGN_OR_RETURN(inputs.options, LoadOptions(spec));
  GAVEL_ASSIGN_OR_RETURN(const auto workload, LoadWorkload(spec));
  inputs.throughputs = workload->throughputs;
  inputs.trace = std::shared_ptr<const Trace>(workload, &workload->trace);
  GAVEL_RETURN_IF_ERROR(CheckWindow(spec, *inputs.trace));
  GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(spec.policy));
  const std::vector<TraceJob>& jobs = inputs.trace->jobs;
  const size_t end = spec.window_end > 0 ? spec.window_end : jobs.size();
  inputs.rate_per_h = spec.rate_per_h;
  if (!spec.trace.empty() && end > 1) {
    const double span_s = jobs[end - 1].arrival_s - jobs[0].arrival_s;
    inputs.rate_per_h =
        span_s > 0 ? static_cast<double>(end - 1) / span_s * kHour_s : 0;
  }
  inputs.capacity_per_h =
      CapacityPerHour(*inputs.trace, end, *inputs.throughputs,
                      inputs.options.cluster, policy->packs());
  return inputs;
}

absl::StatusOr<std::string> SimulationInputCache::KeyOf(
    const SimulationSpec& spec) {
  std::string text;
  absl::Status status;
  VisitFields(spec, [&](const std::string& name, const auto& value) {
    std::string shown = FieldText(value);
    if (NamesFile(name, shown)) {
      if (const auto file = Read(shown); file.ok()) {
        shown = (*file)->digest;
      } else {
        status = file.status();
      }
    }
    StrAppend(&text, name, "=", shown, "\n");
  });
  GAVEL_RETURN_IF_ERROR(status);
  if (spec.unknown_types != "error") {
    StrAppend(&text, "unknown_types=", spec.unknown_types, "\n");
  }
  if (!spec.ignore_columns.empty()) {
    StrAppend(&text, "ignore_columns=", spec.ignore_columns, "\n");
  }
  return Digest(text);
}

}  // namespace gavel::study
