#include "study/simulation_run.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "xxhash.h"

namespace gavel::study {
namespace {

using policy::kInfinity;
using policy::LinearProgram;
using policy::LpEntry;

// Jobs that differ only in the amount of their work.
struct JobClass {
  const TraceJob* job;
  const std::string* type;
  double steps = 0;    // of all of them
  double fastest = 0;  // steps/s of one; 0: it fits nowhere
  std::vector<LpEntry> row = {};
};

class Capacity {
 public:
  Capacity(const ThroughputTable& throughputs,
           const std::vector<ClusterPart>& cluster)
      : throughputs_(throughputs), cluster_(cluster), used_(cluster.size()) {}

  double Solve(const Trace& trace, size_t jobs, bool pairs) {
    Classify(trace, jobs);
    const int rate = program_.AddColumn(1, 0, kInfinity);
    for (JobClass& one : classes_) AddAlone(one);
    if (pairs) AddPairs();
    bool any = false;
    for (JobClass& one : classes_) {
      if (one.fastest == 0) continue;
      any = true;
      // In hours of its fastest accelerators, so that all rows are alike.
      const double hours = one.steps / one.fastest / kHour_s;
      for (LpEntry& entry : one.row) entry.value /= one.fastest;
      one.row.push_back({rate, -hours / static_cast<double>(jobs)});
      program_.AddRow(0, kInfinity, one.row);
    }
    if (!any) return kInfinity;
    for (size_t j = 0; j < cluster_.size(); ++j) {
      program_.AddRow(-kInfinity, cluster_[j].count, used_[j]);
    }
    const policy::LpSolution solution = policy::HighsSolver(program_).Solve();
    return solution.outcome == SolveOutcome::kOptimal ? solution.objective
                                                      : kInfinity;
  }

 private:
  void Classify(const Trace& trace, size_t jobs) {
    std::map<std::tuple<std::string_view, bool, int, int, int>, size_t>
        class_of;
    for (size_t i = 0; i < jobs; ++i) {
      const TraceJob& job = trace.jobs[i];
      const std::string& type = trace.templates[job.job_template].type;
      const auto [found, added] =
          class_of.try_emplace({type, job.interactive, job.LeastWorkers(),
                                job.scale_factor, job.MostWorkers()},
                               classes_.size());
      if (added) classes_.push_back({&job, &type});
      // Jobs without a row run at the speed that follows from their durations.
      const bool known = RowOf(job, type, job.scale_factor).has_value();
      classes_[found->second].steps += known ? job.steps_total : job.duration_s;
    }
  }

  // Interactive jobs have none.
  std::optional<ThroughputTable::Row> RowOf(const TraceJob& job,
                                            const std::string& type,
                                            int workers) const {
    if (job.interactive) return std::nullopt;
    return throughputs_.FindRow(type, workers);
  }

  // steps/s at the best placement, whatever the level.
  double Alone(const JobClass& one, int workers, size_t j) const {
    const auto row = RowOf(*one.job, *one.type, workers);
    if (!row) return workers == one.job->scale_factor ? 1 : 0;
    const auto type = throughputs_.FindType(cluster_[j].type);
    if (!type) return 0;
    double best = 0;
    for (const Locality level : kAllLocalities) {
      best = std::max(best, throughputs_.Alone(*row, *type, level).value_or(0));
    }
    return best;
  }

  void AddAlone(JobClass& one) {
    for (int workers = one.job->LeastWorkers();
         workers <= one.job->MostWorkers(); ++workers) {
      for (size_t j = 0; j < cluster_.size(); ++j) {
        const double steps_per_s = Alone(one, workers, j);
        if (cluster_[j].count < workers || steps_per_s <= 0) continue;
        one.fastest = std::max(one.fastest, steps_per_s);
        one.row.push_back({AddColumn(j, workers), steps_per_s});
      }
    }
  }

  void AddPairs() {
    for (size_t a = 0; a < classes_.size(); ++a) {
      for (size_t b = a; b < classes_.size(); ++b) AddPair(a, b);
    }
  }

  void AddPair(size_t a, size_t b) {
    const int workers = classes_[a].job->scale_factor;
    if (classes_[b].job->scale_factor != workers) return;
    const auto row = RowOf(*classes_[a].job, *classes_[a].type, workers);
    const auto other = RowOf(*classes_[b].job, *classes_[b].type, workers);
    if (!row || !other) return;
    for (size_t j = 0; j < cluster_.size(); ++j) {
      const auto type = throughputs_.FindType(cluster_[j].type);
      if (!type || cluster_[j].count < workers) continue;
      for (const bool consolidated : {true, false}) {
        const auto both =
            throughputs_.Together(*row, *other, *type, consolidated);
        if (!both || both->first <= 0) continue;
        const int column = AddColumn(j, workers);
        if (a == b) {
          classes_[a].row.push_back({column, both->first + both->second});
        } else {
          classes_[a].row.push_back({column, both->first});
          classes_[b].row.push_back({column, both->second});
        }
      }
    }
  }

  int AddColumn(size_t j, int workers) {
    const int column = program_.AddColumn(0, 0, kInfinity);
    used_[j].push_back({column, static_cast<double>(workers)});
    return column;
  }

  const ThroughputTable& throughputs_;
  const std::vector<ClusterPart>& cluster_;
  LinearProgram program_;
  std::vector<JobClass> classes_;
  std::vector<std::vector<LpEntry>> used_;  // [J] accelerators of each column
};

}  // namespace

double CapacityPerHour(const Trace& trace, size_t jobs,
                       const ThroughputTable& throughputs,
                       const std::vector<ClusterPart>& cluster, bool pairs) {
  return Capacity(throughputs, cluster)
      .Solve(trace, std::min(jobs, trace.jobs.size()), pairs);
}

// ---- inputs

namespace {

constexpr size_t kFileBytesMax = kTraceBytesMax;
// A larger file, e.g. a trace of a million jobs, is read again for each use.
constexpr size_t kKeptBytesMax = 64 * 1024 * 1024;

std::string Digest(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

// The fields of the spec that determine the trace.
std::string TraceKey(const SimulationSpec& spec) {
  return absl::StrJoin(
      std::tuple(
          spec.trace, spec.throughputs, GeneratedJobs(spec),
          FieldText(spec.rate_per_h), spec.multi_gpu, spec.multi_priority,
          spec.slos, FieldText(spec.fixed_duration_s), spec.app_jobs_max,
          FieldText(spec.interactive), FieldText(spec.interactive_shortest_s),
          FieldText(spec.interactive_longest_s), spec.scale_factor_max,
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
  options.app_jobs_max = spec.app_jobs_max;
  options.interactive = spec.interactive;
  options.interactive_shortest_s = spec.interactive_shortest_s;
  options.interactive_longest_s = spec.interactive_longest_s;
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

// The options that need no file.
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
  options.engine.introspection = spec.introspection;
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
  options.lies = {spec.lying_apps, spec.lie};
  options.spread_loss = {spec.sensitive_apps, spec.spread_speed};
  GAVEL_ASSIGN_OR_RETURN(options.cluster, ParseCluster(spec.cluster));
  return options;
}

// The accelerator types and policies of the runs with the same prices.
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

// Jobs that are given by their durations need no throughputs. `trace` is null
// if jobs are drawn.
absl::Status SimulationInputCache::CheckTypes(
    const SimulationSpec& run, const ThroughputTable& table, const Trace* trace,
    const std::vector<ClusterPart>& cluster) {
  for (const ClusterPart& part : cluster) {
    if (part.count == 0 || table.FindType(part.type).has_value()) continue;
    const bool needed =
        trace == nullptr ||
        std::ranges::any_of(trace->jobs, [&](const TraceJob& job) {
          const std::string& type = trace->templates[job.job_template].type;
          return !job.interactive &&
                 table.FindRow(type, job.scale_factor).has_value();
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

// ---- the run

namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"ok", "cannot_drain",
                                                          "error", "timeout"};

// The approximate time between two reads of the clock.
constexpr double kSlice_s = 0.05;

double CpuOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

// Jobs arrive for most of a run; the rest is waiting for the last of them.
double FractionDone(const TraceSimulation& simulation, Time arrivals_end) {
  constexpr double kArrivals = 0.9;
  const auto jobs = static_cast<double>(simulation.jobs_in_window());
  const double ended =
      jobs > 0 ? static_cast<double>(simulation.jobs_ended()) / jobs : 0;
  if (arrivals_end <= 0) return std::clamp(ended, 0.0, 1.0);
  const double arrived = std::min(1.0, simulation.now() / arrivals_end);
  return std::clamp(kArrivals * arrived + (1 - kArrivals) * ended, 0.0, 1.0);
}

double FastestAlone(const SimulationInputs& inputs, const TraceJob& job) {
  const ThroughputTable& table = *inputs.throughputs;
  const auto row = table.FindRow(inputs.trace->templates[job.job_template].type,
                                 job.scale_factor);
  double fastest = 0;
  for (const ClusterPart& part : inputs.options.cluster) {
    const auto type = table.FindType(part.type);
    if (!row || !type) continue;
    fastest = std::max(fastest, table.Alone(*row, *type).value_or(0));
  }
  return fastest > 0 ? job.steps_total / fastest : 0;
}

void ComputeStretches(const SimulationInputs& inputs, SimulationRun* run) {
  const std::vector<SimulatedJob>& jobs = run->result.jobs;
  const auto stretch = [&](size_t begin, size_t end) {
    double took_s = 0;
    double alone_s = 0;
    for (size_t i = begin; i < end; ++i) {
      if (jobs[i].interactive) continue;
      if (jobs[i].completion_s == kNever) return kNaN;
      took_s += jobs[i].jct_s;
      alone_s += FastestAlone(inputs, inputs.trace->jobs[jobs[i].job]);
    }
    return alone_s > 0 ? took_s / alone_s : kNaN;
  };
  run->stretch_first = stretch(0, jobs.size() / 2);
  run->stretch_second = stretch(jobs.size() / 2, jobs.size());
}

constexpr double kLookEvery = 0.01;  // of the time of arrivals
constexpr double kGrowth = 1.5;

// Mean of the waiting jobs over [from, to); 0 without samples.
double MeanWaiting(const std::vector<UsageSample>& usage, Time from, Time to) {
  double sum = 0;
  for (size_t i = 0; i < usage.size(); ++i) {
    const Time ends = i + 1 < usage.size() ? usage[i + 1].time_s : to;
    const Time overlap = std::min(ends, to) - std::max(usage[i].time_s, from);
    if (overlap > 0) sum += overlap * usage[i].waiting_jobs;
  }
  return to > from ? sum / (to - from) : 0;
}

void ComputeWaiting(Time ends_s, SimulationRun* run) {
  const std::vector<UsageSample>& usage = run->result.usage;
  run->waiting_first = run->waiting_second = kNaN;
  if (usage.empty()) return;
  const Time begins_s = usage.front().time_s;
  const Time middle_s = begins_s + (ends_s - begins_s) / 2;
  run->waiting_first = MeanWaiting(usage, begins_s, middle_s);
  run->waiting_second = MeanWaiting(usage, middle_s, ends_s);
}

// Detects long before its end that a simulation cannot drain: the average JCT
// of the window is certain to exceed the limit (jobs that have not ended count
// with their age), and the mean queue is longer, by half and one, than while
// the first quarter of the window arrived.
class DrainWatch {
 public:
  DrainWatch(const Trace& trace, const SimulationOptions& options,
             double jct_limit_s)
      : trace_(trace),
        begin_(std::min<size_t>(options.window_begin, trace.jobs.size())),
        end_(std::min<size_t>(options.window_end, trace.jobs.size())),
        jct_limit_s_(jct_limit_s) {
    if (begin_ >= end_) return;
    begins_s_ = trace.jobs[begin_].arrival_s;
    ends_s_ = trace.jobs[end_ - 1].arrival_s;
  }

  // A check costs time, so there is one for each 1 % of the arrivals.
  bool IsDue(Time now) const {
    if (jct_limit_s_ <= 0 || now < begins_s_ + jct_limit_s_) return false;
    return now >= looked_at_ + kLookEvery * std::max(ends_s_, jct_limit_s_);
  }

  // Why it cannot drain; empty: it may. `so_far`: TraceSimulation::Result().
  std::string Look(Time now, const SimulationResult& so_far) {
    looked_at_ = now;
    if (begin_ >= end_) return "";
    const double at_least_s = JctAtLeast(now, so_far);
    if (at_least_s <= jct_limit_s_ || !QueueGrows(now, so_far)) return "";
    return absl::StrFormat(
        "after %.0f h the queue grows and the average JCT is at least %.1f h, "
        "beyond the limit of %.1f h",
        now / kHour_s, at_least_s / kHour_s, jct_limit_s_ / kHour_s);
  }

  // Arrival of the last job of the window.
  Time window_ends() const { return ends_s_; }

 private:
  double JctAtLeast(Time now, const SimulationResult& so_far) const;
  bool QueueGrows(Time now, const SimulationResult& so_far) const;

  const Trace& trace_;
  const size_t begin_;
  const size_t end_;
  const double jct_limit_s_;
  Time begins_s_ = 0;  // arrivals of the first and last job of the window
  Time ends_s_ = 0;
  Time looked_at_ = 0;
};

double DrainWatch::JctAtLeast(Time now, const SimulationResult& so_far) const {
  std::vector<double> age_s(end_ - begin_);
  for (size_t i = begin_; i < end_; ++i) {
    age_s[i - begin_] = std::max(0.0, now - trace_.jobs[i].arrival_s);
  }
  for (const UnfitJob& job : so_far.unfit) {
    if (job.job >= begin_ && job.job < end_) age_s[job.job - begin_] = 0;
  }
  for (const SimulatedJob& job : so_far.jobs) {
    if (job.job < begin_ || job.job >= end_) continue;
    if (job.completion_s < kNever) age_s[job.job - begin_] = job.jct_s;
  }
  double sum = 0;
  double jobs = 0;
  for (size_t i = begin_; i < end_; ++i) {
    if (trace_.jobs[i].interactive) continue;
    sum += age_s[i - begin_];
    jobs += 1;
  }
  return jobs > 0 ? sum / jobs : 0;
}

bool DrainWatch::QueueGrows(Time now, const SimulationResult& so_far) const {
  if (so_far.usage.empty()) return true;  // not recorded: the JCT decides
  const Time quarter = (ends_s_ - begins_s_) / 4;
  if (now < begins_s_ + 2 * quarter) return false;
  const double first =
      MeanWaiting(so_far.usage, begins_s_, begins_s_ + quarter);
  const double last = MeanWaiting(so_far.usage, now - quarter, now);
  return last > kGrowth * first + 1;
}

// Runs a simulation slice by slice.
class Loop {
 public:
  Loop(const SimulationInputs& inputs, TraceSimulation* simulation,
       const RunControl& control)
      : inputs_(inputs),
        simulation_(*simulation),
        control_(control),
        watch_(*inputs.trace, inputs.options, control.jct_limit_s),
        cpu_start_(CpuOfThread()) {}

  Watched Run() {
    Watched watched;
    watched.started = true;
    watched.run.status = RunStatus::kOk;
    while (!RunSlice()) {
      if (Interrupted(&watched)) break;
    }
    SimulationRun& run = watched.run;
    run.result = simulation_.Result();
    run.wall_s = clock_.elapsed_s();
    run.cpu_s = CpuOfThread() - cpu_start_;
    run.jobs_in_window = simulation_.jobs_in_window();
    run.jobs_arrived = static_cast<uint64_t>(
        std::ranges::count_if(inputs_.trace->jobs, [this](const TraceJob& job) {
          return job.arrival_s <= simulation_.now();
        }));
    if (run.status == RunStatus::kOk && !run.result.complete) {
      const bool late = simulation_.now() >= inputs_.options.time_limit_s;
      GiveUp(&run, late ? RunStatus::kCannotDrain : RunStatus::kError,
             run.result.stopped);
    }
    const bool none_fits = run.result.jobs.empty() && !run.result.unfit.empty();
    if (run.status == RunStatus::kOk && none_fits) {
      GiveUp(
          &run, RunStatus::kError,
          StrCat("no job fits the cluster; job ", run.result.unfit.front().job,
                 ": ", run.result.unfit.front().reason));
    }
    ComputeStretches(inputs_, &run);
    ComputeWaiting(watch_.window_ends(), &run);
    run.offered_load = inputs_.rate_per_h / inputs_.capacity_per_h;
    const std::vector<std::string>& names = inputs_.trace->names;
    for (SimulatedJob& job : run.result.jobs) {
      if (!names.empty()) job.name = names[job.job];
    }
    return watched;
  }

 private:
  bool RunSlice() {
    const Stopwatch clock;
    const bool over = simulation_.Run(events_);
    const double took_s = clock.elapsed_s();
    if (took_s < kSlice_s / 2) events_ *= 2;
    if (took_s > kSlice_s * 2) events_ = std::max<uint64_t>(1, events_ / 2);
    return over;
  }

  bool Interrupted(Watched* watched) {
    const Time now = simulation_.now();
    const double wall_s = clock_.elapsed_s();
    const bool stops =
        control_.goes_on &&
        !control_.goes_on(FractionDone(simulation_, watch_.window_ends()), now);
    if (control_.save && (stops || wall_s - saved_s_ > control_.save_every_s)) {
      saved_s_ = wall_s;
      const absl::Status status = Save();
      if (!status.ok()) {
        return GiveUp(&watched->run, RunStatus::kError,
                      std::string(status.message()));
      }
    }
    if (stops) {
      watched->stopped = true;
      return GiveUp(&watched->run, RunStatus::kTimeout, "stopped");
    }
    if (control_.wall_limit_s > 0 && wall_s > control_.wall_limit_s) {
      return GiveUp(&watched->run, RunStatus::kTimeout,
                    StrCat("took more than ", control_.wall_limit_s, " s"));
    }
    if (!watch_.IsDue(now)) return false;
    const std::string why = watch_.Look(now, simulation_.Result());
    return !why.empty() && GiveUp(&watched->run, RunStatus::kCannotDrain, why);
  }

  absl::Status Save() {
    GAVEL_ASSIGN_OR_RETURN(const std::string bytes, simulation_.Checkpoint());
    return control_.save(bytes);
  }

  static bool GiveUp(SimulationRun* run, RunStatus status, std::string why) {
    run->status = status;
    run->detail = std::move(why);
    return true;
  }

  const SimulationInputs& inputs_;
  TraceSimulation& simulation_;
  const RunControl& control_;
  DrainWatch watch_;
  const Stopwatch clock_;
  const double cpu_start_;
  uint64_t events_ = 256;
  double saved_s_ = 0;
};

}  // namespace

std::string_view RunStatusName(RunStatus status) {
  return kStatusNames[static_cast<size_t>(status)];
}

RunStatus FindRunStatus(std::string_view name) {
  const auto it = std::ranges::find(kStatusNames, name);
  if (it == kStatusNames.end()) return RunStatus::kError;
  return static_cast<RunStatus>(it - kStatusNames.begin());
}

bool IsSustainable(const SimulationRun& run, double growth_max) {
  if (run.status != RunStatus::kOk || run.offered_load > kOfferedLoadMax)
    return false;
  // NaN counts as well: a window of one job, or no record of waiting jobs.
  if (!(run.stretch_second > kStretchWell)) return true;
  return !(run.stretch_second > growth_max * run.stretch_first) &&
         !(run.waiting_second > kWaitingGrowthMax * run.waiting_first);
}

Watched RunSimulation(const SimulationInputs& inputs,
                      const MakeSimulation& make, const RunControl& control) {
  auto simulation = make(inputs.options, *inputs.trace, *inputs.throughputs);
  absl::Status status = simulation.status();
  if (status.ok() && !control.resumed.empty()) {
    status = (*simulation)->Resume(control.resumed);
  }
  if (status.ok()) return Loop(inputs, simulation->get(), control).Run();
  Watched failed;
  failed.run.detail = ToStd(status.message());
  return failed;
}

}  // namespace gavel::study
