#include "study/simulation/simulation_run.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/stopwatch.h"

namespace gavel::study {
namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"ok", "cannot_drain",
                                                          "error", "timeout"};
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Time between two looks at the clock, about.
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

// Finds out that a simulation cannot drain long before it ends: when the
// average JCT of the window is certain to exceed the limit (jobs that have not
// ended count with their age), and the mean queue is longer than while the
// first quarter of the window arrived, by half and one.
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

  // A look costs time: one for each 1 % of the arrivals.
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
  for (const double age : age_s) sum += age;
  return sum / static_cast<double>(age_s.size());
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
