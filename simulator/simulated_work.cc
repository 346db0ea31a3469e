#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "simulator/round_simulation.h"

namespace gavel {
namespace {

// The value below which the fraction `p` of the sorted values lies, linear
// between neighbours.
double Percentile(const std::vector<double>& sorted, double p) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

InteractiveFigures InteractiveOf(const std::vector<SimulatedJob>& jobs) {
  InteractiveFigures figures;
  std::vector<double> delays_s;
  for (const SimulatedJob& job : jobs) {
    if (!job.interactive) continue;
    ++figures.jobs;
    figures.paused += job.preemptions > 0 ? 1 : 0;
    if (job.started_s < kNever) {
      delays_s.push_back(job.started_s - job.arrival_s);
    }
  }
  std::ranges::sort(delays_s);
  figures.p50_start_s = Percentile(delays_s, 0.5);
  figures.p99_start_s = Percentile(delays_s, 0.99);
  figures.max_start_s = Percentile(delays_s, 1);
  return figures;
}

// Counts only training jobs that ended; NaN if none did.
Fairness FairnessOf(const std::vector<SimulatedJob>& jobs,
                    double SimulatedJob::*rho) {
  // Rounding may put an equal part above 1 by less than this.
  constexpr double kAbove = 1 + 1e-6;
  Fairness sum;
  double ended = 0;
  for (const SimulatedJob& job : jobs) {
    if (job.completion_s == kNever || job.interactive) continue;
    ended += 1;
    sum.avg += job.*rho;
    sum.max = std::max(sum.max, job.*rho);
    sum.above_1 += job.*rho > kAbove ? 1 : 0;
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {sum.avg / ended, ended > 0 ? sum.max : kNone, sum.above_1 / ended};
}

// The integral over time of how many apps are present.
class Presence {
 public:
  // `to` may be kNever.
  void Add(Time from, Time to) {
    changes_[from] += 1;
    if (to < kNever) changes_[to] -= 1;
  }
  // After the last Add.
  void Close() {
    double present = 0;
    double integral = 0;
    Time last = 0;
    for (const auto& [time, change] : changes_) {
      integral += present * (time - last);
      integrals_[time] = integral;
      present += change;
      last = time;
    }
  }
  // At a time that Add was given.
  double At(Time time) const { return integrals_.at(time); }

 private:
  std::map<Time, double> changes_;
  std::map<Time, double> integrals_;
};

// The apps whose jobs are all in the window and have all ended. `jobs`: all
// that have arrived, because the apps around the window were present, too.
std::vector<SimulatedApp> AppsOf(const std::vector<SimulatedJob>& jobs,
                                 const SimulatedWork& work,
                                 const std::function<bool(size_t)>& in_window) {
  struct Sum {
    SimulatedApp app;
    double longest_s = 0;  // of its jobs, alone where each is fastest
    double area_s = 0;     // accelerator-seconds of them
    bool counts = true;
  };
  std::set<size_t> outside;  // by TraceJob::app
  for (size_t i = 0; i < work.size(); ++i) {
    if (!in_window(i)) outside.insert(work.job(i).app);
  }
  std::vector<Sum> sums;
  std::map<size_t, size_t> index_of;  // by TraceJob::app
  for (const SimulatedJob& job : jobs) {
    if (job.interactive) continue;
    const size_t app = work.job(job.job).app;
    size_t index = sums.size();
    if (app != TraceJob::kNoApp) {
      index = index_of.try_emplace(app, index).first->second;
    }
    if (index == sums.size()) {
      sums.emplace_back().app.name = work.AppName(job.job);
      sums.back().app.arrival_s = job.arrival_s;
      sums.back().app.lies = work.Lies(job.job);
    }
    Sum& sum = sums[index];
    const double alone_s = work.FastestSeconds(job.job);
    ++sum.app.jobs;
    sum.longest_s = std::max(sum.longest_s, alone_s);
    sum.area_s += alone_s * job.scale_factor;
    sum.app.completion_s = std::max(sum.app.completion_s, job.completion_s);
    sum.counts &= job.completion_s < kNever && in_window(job.job) &&
                  (app == TraceJob::kNoApp || !outside.contains(app));
  }
  if (index_of.empty()) return {};
  const std::vector<int>& capacity = work.capacity();
  const double accelerators =
      std::accumulate(capacity.begin(), capacity.end(), 0.0);
  Presence presence;
  for (const Sum& sum : sums) {
    presence.Add(sum.app.arrival_s, sum.app.completion_s);
  }
  presence.Close();
  std::vector<SimulatedApp> apps;
  for (Sum& sum : sums) {
    if (!sum.counts) continue;
    const double life_s = sum.app.completion_s - sum.app.arrival_s;
    const double average =
        (presence.At(sum.app.completion_s) - presence.At(sum.app.arrival_s)) /
        life_s;
    const double ideal_s =
        std::max(sum.longest_s, sum.area_s / accelerators) * average;
    sum.app.rho = ideal_s > 0 ? life_s / ideal_s : 0;
    apps.push_back(std::move(sum.app));
  }
  return apps;
}

void SummariseApps(SimulationResult& result) {
  std::vector<double> rhos;
  double sum = 0;
  double squares = 0;
  double at_most_1 = 0;
  for (const SimulatedApp& app : result.apps) {
    rhos.push_back(app.rho);
    sum += app.rho;
    squares += app.rho * app.rho;
    at_most_1 += app.rho <= 1 + 1e-6 ? 1 : 0;
  }
  std::sort(rhos.begin(), rhos.end());
  const auto count = static_cast<double>(rhos.size());
  result.median_app_rho = Percentile(rhos, 0.5);
  result.max_app_rho = Percentile(rhos, 1);
  result.app_rho_at_most_1 = at_most_1 / count;
  result.app_jain_index = sum * sum / (count * squares);
  std::vector<double> honest;
  std::vector<double> lying;
  for (const SimulatedApp& app : result.apps) {
    (app.lies ? lying : honest).push_back(app.rho);
  }
  std::ranges::sort(honest);
  std::ranges::sort(lying);
  result.median_honest_app_rho = Percentile(honest, 0.5);
  result.max_honest_app_rho = Percentile(honest, 1);
  result.median_lying_app_rho = Percentile(lying, 0.5);
}

}  // namespace

SimulatedWork::SimulatedWork(const SimulationOptions& options, Trace trace,
                             const ThroughputTable& table)
    : options_(options), trace_(std::move(trace)), table_(&table) {
  for (const ClusterPart& part : options.cluster) {
    const auto known = std::find(types_.begin(), types_.end(), part.type);
    if (known != types_.end()) {
      const auto type = static_cast<size_t>(known - types_.begin());
      capacity_[type] += part.count;
      largest_server_[type] = std::max(largest_server_[type], part.per_server);
      largest_group_[type] = std::max(largest_group_[type], part.per_group);
      largest_rack_[type] = std::max(largest_rack_[type], part.per_rack);
      continue;
    }
    types_.push_back(part.type);
    capacity_.push_back(part.count);
    largest_server_.push_back(part.per_server);
    largest_group_.push_back(part.per_group);
    largest_rack_.push_back(part.per_rack);
    table_type_.push_back(table.FindType(part.type));
  }
  if (options.engine.reference_models > 0) {
    references_.emplace(options.engine.throughputs,
                        options.engine.reference_models);
  }
  rows_.reserve(trace_.jobs.size());
  for (size_t i = 0; i < trace_.jobs.size(); ++i) {
    rows_.push_back(trace_.jobs[i].interactive
                        ? std::nullopt
                        : table.FindRow(type(i), trace_.jobs[i].scale_factor));
  }
}

absl::StatusOr<SimulatedWork> SimulatedWork::Create(
    const SimulationOptions& options, const Trace& trace,
    const ThroughputTable& table) {
  if (trace.jobs.empty()) {
    return absl::InvalidArgumentError("the trace has no jobs");
  }
  Trace complete = trace;
  GAVEL_RETURN_IF_ERROR(CompleteTrace(table, complete));
  SimulatedWork work(options, std::move(complete), table);
  if (options.steady_state) work.StartSteady();
  GAVEL_RETURN_IF_ERROR(work.Check());
  return work;
}

absl::Status SimulatedWork::Check() const {
  int accelerators = 0;
  for (size_t type = 0; type < types_.size(); ++type) {
    accelerators += capacity_[type];
    if (table_type_[type].has_value() || capacity_[type] == 0) continue;
    bool needed = false;
    for (size_t i = 0; i < trace_.jobs.size(); ++i)
      needed |= rows_[i].has_value();
    if (!needed) continue;
    return absl::InvalidArgumentError(
        StrCat("accelerator type \"", types_[type],
               "\" of the cluster is not in the throughput file; name one that "
               "is, or profile it"));
  }
  if (accelerators == 0) {
    return absl::InvalidArgumentError(
        "the cluster has no accelerators; write e.g. v100:36,p100:36");
  }
  for (size_t i = 0; i < trace_.jobs.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(CheckElastic(i));
    if (rows_[i].has_value() || trace_.jobs[i].duration_s > 0) continue;
    return absl::InvalidArgumentError(
        StrCat("job ", i, ": the throughput file has no row for type \"",
               type(i), "\" at scale factor ", trace_.jobs[i].scale_factor,
               "; add it, or give the job a duration_s"));
  }
  return absl::OkStatus();
}

// The speeds at the bounds of an elastic job must be known; those between
// follow from them.
absl::Status SimulatedWork::CheckElastic(size_t i) const {
  const TraceJob& job = trace_.jobs[i];
  if (job.LeastWorkers() == job.MostWorkers()) return absl::OkStatus();
  for (const int workers :
       {job.LeastWorkers(), job.scale_factor, job.MostWorkers()}) {
    if (table_->FindRow(type(i), workers).has_value()) continue;
    return absl::InvalidArgumentError(
        StrCat("job ", i,
               " is elastic, but the throughput file has no row for type \"",
               type(i), "\" at scale factor ", workers,
               "; add it, or change scale_factor_min and scale_factor_max"));
  }
  return absl::OkStatus();
}

// Gavel's --simulate-steady-state: the jobs that fill the cluster are there
// from the beginning, at a random point of their work.
void SimulatedWork::StartSteady() {
  std::mt19937_64 random(options_.seed);
  int left = 0;
  for (const int count : capacity_) left += count;
  for (TraceJob& job : trace_.jobs) {
    left -= job.scale_factor;
    if (left < 0) return;
    const double part =
        static_cast<double>(random() >> 11) * 0x1.0p-53;  // [0, 1)
    job.arrival_s = 0;
    job.steps_total *= 1 - part;
  }
}

// Whether the app is one of `part` of all apps, which are spread evenly over
// their order.
static bool IsAmong(size_t app, double multiple, double part) {
  if (app == TraceJob::kNoApp) return false;
  const double turn = multiple * static_cast<double>(app + 1);
  return turn - std::floor(turn) < part;
}

bool SimulatedWork::Lies(size_t i) const {
  constexpr double kGolden = 0.6180339887498949;
  return IsAmong(trace_.jobs[i].app, kGolden, options_.lies.part);
}

double SimulatedWork::Keeps(size_t i, Locality level) const {
  // Another multiple than that of lies, so that the two are independent.
  constexpr double kRootOfTwo = 0.4142135623730950;
  const bool loses =
      level > Locality::kServer && trace_.jobs[i].scale_factor > 1 &&
      IsAmong(trace_.jobs[i].app, kRootOfTwo, options_.spread_loss.part);
  return loses ? options_.spread_loss.keeps : 1;
}

std::string SimulatedWork::WhyUnfit(size_t i) const {
  const int needed = trace_.jobs[i].scale_factor;
  bool fits = false;
  for (size_t type = 0; type < types_.size(); ++type) {
    if (capacity_[type] < needed) continue;
    fits = true;
    if (Alone(i, type, Locality::kServer) > 0) return "";
  }
  if (!fits) {
    return StrCat("scale factor ", needed,
                  " is larger than every accelerator type of the cluster");
  }
  return StrCat("\"", type(i), "\" at scale factor ", needed,
                " has no throughput on any accelerator type with room for it");
}

std::string SimulatedWork::NameOf(size_t i) const {
  const SimulatedWaits* const waits = WaitsOf(i);
  return waits == nullptr || waits->array == 0
             ? StrCat("job-", i)
             : StrCat("array-", waits->array, "_", i);
}

JobSpec SimulatedWork::Spec(size_t i) const {
  const TraceJob& job = trace_.jobs[i];
  JobSpec spec;
  spec.name = NameOf(i);
  if (const SimulatedWaits* const waits = WaitsOf(i)) {
    for (const size_t parent : waits->after) {
      spec.after_any.push_back(NameOf(parent));
    }
    for (const uint64_t array : waits->after_arrays) {
      spec.after_any.push_back(StrCat("array-", array));
    }
    if (waits->not_before_s > 0) spec.not_before_s = waits->not_before_s;
  }
  if (i < options_.owners.size()) {
    spec.owner = options_.owners[i].name;
    spec.owner_weight = options_.owners[i].weight;
  }
  if (i < options_.servers.size()) spec.servers = options_.servers[i];
  spec.argv = {"-"};
  if (job.interactive) {
    spec.job_class = JobClass::kInteractive;
    spec.idle_limit_s = kNever;  // it is used all the time
  }
  if (job.opaque) spec.job_class = JobClass::kOpaque;
  // Estimated: the engine is not told which row is its own.
  if (!references_.has_value() && !job.interactive) spec.workload = type(i);
  if (job.app != TraceJob::kNoApp) spec.app = trace_.apps[job.app];
  if (job.entity != TraceJob::kNoEntity) {
    spec.entity = trace_.entities[job.entity].name;
  }
  spec.scale_factor = job.scale_factor;
  spec.scale_factor_min = job.scale_factor_min;
  spec.scale_factor_max = job.scale_factor_max;
  spec.weight = job.weight;
  spec.steps_total = static_cast<uint64_t>(std::ceil(job.steps_total));
  if (const double deadline = Deadline(i); deadline < kNever) {
    spec.deadline_s = deadline;
  }
  for (size_t type = 0; type < types_.size(); ++type) {
    spec.throughputs[types_[type]] = Alone(i, type, Locality::kServer);
    if (options_.engine.placement_sensitive && job.scale_factor > 1) {
      spec.throughputs[TypeNameAt(types_[type], Locality::kCluster)] =
          Alone(i, type, Locality::kCluster);
      if (!table_->has_levels()) continue;
      for (const Locality level : {Locality::kGroup, Locality::kRack}) {
        spec.throughputs[TypeNameAt(types_[type], level)] =
            Alone(i, type, level);
      }
    }
  }
  const Overhead overhead = OverheadOf(i);
  spec.pause_s = overhead.pause_s;
  spec.resume_s = overhead.resume_s;
  spec.move_s = overhead.move_s;
  return spec;
}

std::vector<ProfiledCell> SimulatedWork::Profile(size_t i) const {
  const int scale_factor = trace_.jobs[i].scale_factor;
  if (!references_.has_value() || !rows_[i].has_value() ||
      !references_->CanShare(scale_factor)) {
    return {};
  }
  std::vector<std::pair<size_t, ThroughputTable::Row>> all;
  for (size_t type = 0; type < types_.size(); ++type) {
    if (!(Alone(i, type, Locality::kServer) > 0)) continue;
    for (const ThroughputTable::Row row : references_->RowsOf(scale_factor)) {
      all.emplace_back(type, row);
    }
  }
  // Drawn without replacement: so many of them, and at least one.
  const double wanted =
      std::round(options_.profiling.part * static_cast<double>(all.size()));
  const size_t count =
      std::min(all.size(), std::max<size_t>(1, static_cast<size_t>(wanted)));
  std::seed_seq seed{options_.seed, static_cast<uint64_t>(i)};
  std::mt19937_64 random(seed);
  std::vector<ProfiledCell> cells;
  for (size_t k = 0; k < count; ++k) {
    std::swap(all[k], all[k + random() % (all.size() - k)]);
    const auto [type, row] = all[k];
    const double together = table_->Together(*rows_[i], row, *table_type_[type])
                                .value_or(std::pair(0.0, 0.0))
                                .first;
    cells.push_back({types_[type], table_->NameOf(row).first,
                     together / Alone(i, type, Locality::kServer)});
  }
  return cells;
}

Overhead SimulatedWork::OverheadOf(size_t i) const {
  const auto found = options_.overheads.by_type.find(type(i));
  return found == options_.overheads.by_type.end() ? options_.overheads.all
                                                   : found->second;
}

double SimulatedWork::Deadline(size_t i) const {
  const TraceJob& job = trace_.jobs[i];
  if (job.slo <= 0) return kNever;
  return job.duration_s > 0 ? job.slo * job.duration_s : kNever;
}

Locality SimulatedWork::LevelIn(size_t i, size_t type, bool on_server) const {
  const int needed = trace_.jobs[i].scale_factor;
  if (on_server) {
    const bool joined = needed > 1 && needed <= largest_group_[type];
    return joined ? Locality::kGroup : Locality::kServer;
  }
  return needed <= largest_rack_[type] ? Locality::kRack : Locality::kCluster;
}

double SimulatedWork::Alone(size_t i, size_t type, Locality level) const {
  if (trace_.jobs[i].interactive) return 1;
  if (!rows_[i].has_value()) {
    // A job without a row runs at the same speed on all types.
    return trace_.jobs[i].steps_total / trace_.jobs[i].duration_s *
           Keeps(i, level);
  }
  return InTable(*rows_[i], type, level).value_or(0) * Keeps(i, level);
}

std::optional<double> SimulatedWork::InTable(ThroughputTable::Row row,
                                             size_t type,
                                             Locality level) const {
  if (!table_type_[type].has_value()) return std::nullopt;
  return table_->AloneAsAt(row, *table_type_[type], level);
}

double SimulatedWork::AtSize(size_t i, size_t type, int workers,
                             Locality level) const {
  if (workers == trace_.jobs[i].scale_factor) {
    return Alone(i, type, level);
  }
  const auto known = [&](int size) -> std::optional<double> {
    const auto row = table_->FindRow(this->type(i), size);
    if (!row.has_value()) return std::nullopt;
    const std::optional<double> speed = InTable(*row, type, level);
    return speed ? std::optional(*speed * Keeps(i, level)) : std::nullopt;
  };
  int below = workers;
  int above = workers;
  while (below > trace_.jobs[i].LeastWorkers() && !known(below)) --below;
  while (above < trace_.jobs[i].MostWorkers() && !known(above)) ++above;
  const double low = known(below).value_or(0);
  const double high = known(above).value_or(0);
  if (below == above || !(low > 0) || !(high > 0)) return low;
  const double exponent =
      std::log(high / low) / std::log(static_cast<double>(above) / below);
  return low * std::pow(static_cast<double>(workers) / below, exponent);
}

std::vector<int> SimulatedWork::Servers(size_t type) const {
  std::vector<int> servers;
  for (const ClusterPart& part : options_.cluster) {
    if (part.type != types_[type]) continue;
    servers.insert(servers.end(),
                   static_cast<size_t>(part.count / part.per_server),
                   part.per_server);
  }
  return servers;
}

double SimulatedWork::Together(size_t i, size_t k, size_t type,
                               Locality level) const {
  if (!rows_[i].has_value() || !rows_[k].has_value() ||
      !table_type_[type].has_value()) {
    return 0;
  }
  const bool consolidated = level <= Locality::kServer;
  auto known =
      table_->Together(*rows_[i], *rows_[k], *table_type_[type], consolidated);
  if (!known.has_value() && !consolidated) {
    known = table_->Together(*rows_[i], *rows_[k], *table_type_[type],
                             /*consolidated=*/true);
  }
  return known.value_or(std::pair(0.0, 0.0)).first * Keeps(i, level);
}

double SimulatedWork::FastestSeconds(size_t i) const {
  double best = 0;
  for (size_t type = 0; type < types_.size(); ++type) {
    const Locality level = LevelIn(i, type, FitsOnServer(i, type));
    best = std::max(best, Alone(i, type, level));
  }
  return best > 0 ? trace_.jobs[i].steps_total / best : 0;
}

double SimulatedWork::IsolatedSeconds(size_t i, double steps, double n) const {
  double share = 0;
  double steps_per_s = 0;
  for (size_t type = 0; type < types_.size(); ++type) {
    const double part = capacity_[type] / (n * trace_.jobs[i].scale_factor);
    share += part;
    steps_per_s += part * Alone(i, type, Locality::kServer);
  }
  steps_per_s /= std::max(1.0, share);
  return steps_per_s > 0 ? steps / steps_per_s : 0;
}

SimulatedJob SimulatedWork::Describe(size_t i) const {
  SimulatedJob job;
  job.job = i;
  job.type = type(i);
  job.scale_factor = trace_.jobs[i].scale_factor;
  job.weight = trace_.jobs[i].weight;
  job.arrival_s = trace_.jobs[i].arrival_s;
  job.interactive = trace_.jobs[i].interactive;
  const double deadline = Deadline(i);
  if (deadline < kNever) job.deadline_s = job.arrival_s + deadline;
  return job;
}

WorkSimulation::WorkSimulation(SimulationOptions options, SimulatedWork work,
                               std::unique_ptr<Policy> policy)
    : options_(std::move(options)),
      work_(std::move(work)),
      policy_(std::move(policy)),
      begin_(std::min<size_t>(options_.window_begin, work_.size())),
      window_end_(std::min<size_t>(options_.window_end, work_.size())),
      busy_s_(work_.types().size(), 0.0) {}

void WorkSimulation::EndAtTimeLimit() {
  stopped_ =
      StrCat("the time limit of ", options_.time_limit_s, " s was reached");
  over_ = true;
}

void WorkSimulation::LeaveOut(size_t index, std::string why) {
  unfit_.push_back({index, std::move(why)});
  if (InWindow(index)) ++ended_in_window_;
}

void WorkSimulation::CountPresent(Time now, size_t jobs) {
  present_s_ += static_cast<double>(jobs) * (now - present_at_);
  present_at_ = now;
}

void WorkSimulation::TakeEnded(SimulatedJob job) {
  last_end_ = std::max(last_end_, job.completion_s);
  const std::vector<int>& capacity = work_.capacity();
  const double accelerators =
      std::accumulate(capacity.begin(), capacity.end(), 0.0);
  const double alone_s =
      work_.IsolatedSeconds(job.job, work_.job(job.job).steps_total, /*n=*/1);
  const auto rho = [&](double jobs) {
    return job.jct_s / (alone_s * std::max(1.0, jobs / accelerators));
  };
  if (job.jct_s > 0 && alone_s > 0) {
    job.rho_static = rho(static_cast<double>(work_.size()));
    job.rho_mean = rho((present_s_ - job.present_s) / job.jct_s);
  }
  if (InWindow(job.job)) ++ended_in_window_;
  told_.push_back(std::move(job));
}

SimulationResult WorkSimulation::Summary(
    std::vector<SimulatedJob> jobs, Time now, const std::vector<int>& capacity,
    const std::vector<double>& busy_s) const {
  jobs.insert(jobs.end(), told_.begin(), told_.end());
  std::ranges::sort(jobs, {}, &SimulatedJob::job);
  SimulationResult result;
  result.apps =
      AppsOf(jobs, work_, [this](size_t job) { return InWindow(job); });
  SummariseApps(result);
  std::erase_if(jobs,
                [this](const SimulatedJob& job) { return !InWindow(job.job); });
  result.complete = WindowEnded();
  result.stopped = result.complete ? "" : stopped_;
  result.unfit = unfit_;
  result.policy = options_.policy;
  result.types = work_.types();
  std::vector<double> jcts;
  result.worst_share = 1;
  for (const SimulatedJob& job : jobs) {
    if (job.interactive) continue;
    if (job.deadline_s < kNever) ++result.slo_jobs;
    result.slo_violations += job.completion_s > job.deadline_s ? 1 : 0;
    if (job.completion_s == kNever) continue;
    jcts.push_back(job.jct_s);
    if (job.share_target > 0) {
      result.worst_share =
          std::min(result.worst_share, job.share_received / job.share_target);
    }
  }
  std::sort(jcts.begin(), jcts.end());
  double total = 0;
  for (const double jct : jcts) total += jct;
  const auto ended = static_cast<double>(jcts.size());
  result.avg_jct_s = total / ended;  // NaN when none did
  result.p50_jct_s = Percentile(jcts, 0.5);
  result.p99_jct_s = Percentile(jcts, 0.99);
  const Fairness rho = FairnessOf(jobs, &SimulatedJob::rho);
  result.avg_rho = rho.avg;
  result.max_rho = rho.max;
  result.rho_above_1 = rho.above_1;
  result.rho_static = FairnessOf(jobs, &SimulatedJob::rho_static);
  result.rho_mean = FairnessOf(jobs, &SimulatedJob::rho_mean);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (jcts.empty()) result.worst_share = kNone;
  result.interactive = InteractiveOf(jobs);
  result.jobs = std::move(jobs);
  const Time first_arrival = work_.job(0).arrival_s;
  const Time end = result.complete ? last_end_ : now;
  const double makespan_s = std::max(0.0, end - first_arrival);
  result.makespan_s = last_end_ > first_arrival ? makespan_s : kNone;
  double all_busy_s = 0;
  double accelerators = 0;
  for (size_t type = 0; type < std::min(capacity.size(), work_.types().size());
       ++type) {
    const double available = capacity[type] * makespan_s;
    result.utilization[work_.types()[type]] =
        available > 0 ? busy_s[type] / available : 0;
    all_busy_s += busy_s[type];
    accelerators += capacity[type];
  }
  result.busy_s = all_busy_s;
  if (accelerators * makespan_s > 0) {
    result.cluster_utilization = all_busy_s / (accelerators * makespan_s);
  }
  return result;
}

}  // namespace gavel
