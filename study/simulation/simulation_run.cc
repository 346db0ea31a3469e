#include "study/simulation/simulation_run.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/stopwatch.h"
#include "study/simulation/drain_watch.h"

namespace gavel {
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

// Runs a simulation slice by slice.
class Loop {
 public:
  Loop(const SimulationInputs& inputs, TraceSimulation* simulation,
       const RunControl& control)
      : inputs_(inputs),
        simulation_(*simulation),
        control_(control),
        watch_(*inputs.trace, inputs.options, control.jct_limit_s),
        wall_start_(MonotonicNow()),
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
    run.wall_s = MonotonicNow() - wall_start_;
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
    return watched;
  }

 private:
  bool RunSlice() {
    const double start = MonotonicNow();
    const bool over = simulation_.Run(events_);
    const double took_s = MonotonicNow() - start;
    if (took_s < kSlice_s / 2) events_ *= 2;
    if (took_s > kSlice_s * 2) events_ = std::max<uint64_t>(1, events_ / 2);
    return over;
  }

  bool Interrupted(Watched* watched) {
    const Time now = simulation_.now();
    const double wall_s = MonotonicNow() - wall_start_;
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
  const double wall_start_;
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
  if (run.status != RunStatus::kOk) return false;
  const double most = std::max(growth_max * run.stretch_first, kStretchWell);
  return !(run.stretch_second > most);  // NaN, of a window of one job, is well
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

}  // namespace gavel
