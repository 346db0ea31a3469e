#include "coordinator/cli/reality.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/local_run.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/profile_run.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/transport/lease_granter.h"
#include "study/report_page.h"
#include "study/simulation_run.h"

namespace gavel {
namespace {

class Mean {
 public:
  void Add(double value) {
    sum_ += value;
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  double value() const { return empty() ? 0 : sum_ / count_; }

 private:
  double sum_ = 0;
  double count_ = 0;
};

struct Losses {
  Mean start, finish, pause, resume, move;
};

// When the accelerator of a lease was last another's, before it.
using Ends = std::map<std::string, std::vector<Time>>;

Ends EndsOf(const std::vector<LiveJob>& jobs) {
  Ends ends;
  for (const LiveJob& job : jobs) {
    for (const LiveLease& lease : job.leases) {
      ends[lease.accelerator].push_back(lease.to_s);
    }
  }
  for (auto& [accelerator, times] : ends) std::ranges::sort(times);
  return ends;
}

Time FreeBefore(const Ends& ends, const LiveLease& lease) {
  const std::vector<Time>& times = ends.at(lease.accelerator);
  const auto after = std::ranges::upper_bound(times, lease.from_s);
  return after == times.begin() ? -kNever : *std::prev(after);
}

void AddLosses(const LiveJob& job, const Ends& ends, Losses* losses) {
  Time ready_s = job.submitted_s;
  const LiveLease* last = nullptr;
  for (const LiveLease& lease : job.leases) {
    const auto first = std::ranges::lower_bound(job.steps, lease.from_s, {},
                                                &TracedStep::end_s);
    const auto end =
        std::ranges::upper_bound(job.steps, lease.to_s, {}, &TracedStep::end_s);
    if (first < end) {
      const double gap_s =
          first->begin_s - std::max(ready_s, FreeBefore(ends, lease));
      Mean& mean = last == nullptr                          ? losses->start
                   : last->accelerator == lease.accelerator ? losses->resume
                                                            : losses->move;
      mean.Add(std::max(0.0, gap_s));
      const double left_s = std::max(0.0, lease.to_s - std::prev(end)->end_s);
      if (lease.paused) {
        losses->pause.Add(left_s);
      } else {
        losses->finish.Add(
            std::max(left_s, job.ended_s - std::prev(end)->end_s));
      }
      last = &lease;
    }
    ready_s = lease.to_s;
  }
}

double ValueOr(const Mean& mean, const Mean& of_all) {
  return mean.empty() ? of_all.value() : mean.value();
}

Overhead OverheadOf(const Losses& losses, const Losses& all) {
  Overhead overhead;
  overhead.start_s =
      ValueOr(losses.start, all.start) + ValueOr(losses.finish, all.finish);
  overhead.pause_s = ValueOr(losses.pause, all.pause);
  overhead.resume_s = ValueOr(losses.resume, all.resume);
  const Mean& move = all.move.empty() ? all.resume : all.move;
  overhead.move_s = ValueOr(losses.move, move);
  return overhead;
}

std::string FormatOverhead(std::string_view type, const Overhead& overhead) {
  return absl::StrFormat(
      "[\"%s\"]\nstart_s = %.6f\npause_s = %.6f\nresume_s = %.6f\n"
      "move_s = %.6f\n",
      type, overhead.start_s, overhead.pause_s, overhead.resume_s,
      overhead.move_s);
}

// The mean time between arrivals, as a part of the mean time that the
// accelerators need for a job.
constexpr double kArrivalPart = 0.8;

// In (0, 1], the same with every standard library.
double Draw(std::mt19937_64& random) {
  return 1 - static_cast<double>(random() >> 11) * 0x1.0p-53;
}

double Fastest(const std::vector<double>& steps_per_s) {
  return *std::ranges::max_element(steps_per_s);
}

// Accelerators of each job's fastest type that do as much as all together.
double Capacity(const RealityThroughputs& throughputs) {
  double capacity = 0;
  for (const std::vector<double>& row : throughputs.steps_per_s) {
    for (size_t type = 0; type < row.size(); ++type) {
      capacity += throughputs.counts[type] * row[type] / Fastest(row);
    }
  }
  return capacity / static_cast<double>(throughputs.steps_per_s.size());
}

}  // namespace

absl::StatusOr<std::vector<LiveJob>> ReadLiveJobs(const Json& jobs,
                                                  const Json& leases) {
  std::vector<LiveJob> live;
  std::map<uint64_t, size_t> index_of;
  for (const Json& row : jobs) {
    LiveJob& job = live.emplace_back();
    job.name = row.value("name", "");
    job.type = row.value("app", "");
    job.submitted_s = row.value("submitted_s", 0.0);
    job.ended_s = row.value("ended_s", 0.0);
    job.pauses = row.value("pauses", uint64_t{0});
    index_of[row.value("job", uint64_t{0})] = live.size() - 1;
    if (job.ended_s <= 0 || row.value("state", "") != "CD") {
      return absl::InvalidArgumentError(StrCat(
          "job ", job.name,
          " did not finish: ", row.value("reason", "it is not known why")));
    }
  }
  for (const Json& row : leases) {
    const auto found = index_of.find(row.value("job", uint64_t{0}));
    if (found == index_of.end() || row.value("rank", 0) != 0) continue;
    live[found->second].leases.push_back(
        {row.value("uuid", ""), row.value("from_s", 0.0),
         row.value("to_s", 0.0), row.value("ended", "") == "paused"});
  }
  for (LiveJob& job : live) {
    std::ranges::sort(job.leases, {}, &LiveLease::from_s);
    // A lease that the end of the job ended may have no end of its own.
    for (LiveLease& lease : job.leases) {
      if (lease.to_s <= 0) lease.to_s = job.ended_s;
    }
  }
  return live;
}

LiveFigures FiguresOf(const std::vector<LiveJob>& jobs) {
  LiveFigures figures;
  Time first_s = kNever;
  Time last_s = -kNever;
  Mean jct;
  for (const LiveJob& job : jobs) {
    first_s = std::min(first_s, job.submitted_s);
    last_s = std::max(last_s, job.ended_s);
    jct.Add(job.ended_s - job.submitted_s);
    figures.pauses += job.pauses;
  }
  figures.makespan_s = jobs.empty() ? 0 : last_s - first_s;
  figures.avg_jct_s = jct.value();
  return figures;
}

Overheads MeasureOverheads(const std::vector<LiveJob>& jobs) {
  const Ends ends = EndsOf(jobs);
  Losses all;
  std::map<std::string, Losses> by_type;
  for (const LiveJob& job : jobs) {
    AddLosses(job, ends, &all);
    AddLosses(job, ends, &by_type[job.type]);
  }
  Overheads overheads;
  overheads.all = OverheadOf(all, all);
  for (const auto& [type, losses] : by_type) {
    overheads.by_type[type] = OverheadOf(losses, all);
  }
  return overheads;
}

std::string FormatOverheads(const Overheads& overheads) {
  std::string text = FormatOverhead("*", overheads.all);
  for (const auto& [type, overhead] : overheads.by_type) {
    text += FormatOverhead(type, overhead);
  }
  return text;
}

std::vector<RealityJob> MakeRealityTrace(
    const RealityTraceOptions& options, const RealityThroughputs& throughputs) {
  std::mt19937_64 random(options.seed);
  const double ratio = options.duration_max_s / options.duration_min_s;
  const double mean_s =
      ratio > 1
          ? (options.duration_max_s - options.duration_min_s) / std::log(ratio)
          : options.duration_min_s;
  const double interarrival_s = kArrivalPart * mean_s / Capacity(throughputs);
  std::vector<size_t> order;
  std::vector<RealityJob> jobs;
  double arrival_s = 0;
  for (int i = 0; i < options.jobs; ++i) {
    if (order.empty()) {
      order.resize(throughputs.steps_per_s.size());
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t k = order.size(); k > 1; --k) {
        std::swap(order[k - 1], order[random() % k]);
      }
    }
    RealityJob& job = jobs.emplace_back();
    job.workload = order.back();
    order.pop_back();
    const double duration_s =
        options.duration_min_s * std::pow(ratio, Draw(random));
    job.steps = static_cast<uint64_t>(
        std::ceil(duration_s * Fastest(throughputs.steps_per_s[job.workload])));
    job.arrival_s = arrival_s;
    // Whole milliseconds: the text of the trace has all of it.
    arrival_s +=
        std::round(-std::log(Draw(random)) * interarrival_s * 1e3) / 1e3;
  }
  return jobs;
}

std::string FormatRealityTrace(const std::vector<RealityJob>& jobs,
                               const std::vector<ProfileWorkload>& workloads) {
  std::string text;
  for (const RealityJob& job : jobs) {
    absl::StrAppendFormat(
        &text, "[[job]]\ntype = \"%s\"\nsteps_total = %d\narrival_s = %.3f\n",
        workloads[job.workload].type, job.steps, job.arrival_s);
  }
  return text;
}

// ---- the runs

namespace {

namespace fs = std::filesystem;

constexpr double kWarmUp_s = 3;
constexpr double kPrecision = 0.03;

constexpr char kCluster[] =
    "[[server]]\n"
    "name = \"here\"\n"
    "[[server.accelerator]]\n"
    "type = \"fast\"\n"
    "[[server.accelerator]]\n"
    "type = \"slow\"\n"
    "slow_down_factor = 2.0 # each step sleeps as long again\n";

class RealityRunner {
 public:
  explicit RealityRunner(const RealityOptions& options) : options_(options) {}

  absl::StatusOr<Reality> Run() {
    GAVEL_RETURN_IF_ERROR(MakeDirectory(options_.folder));
    GAVEL_RETURN_IF_ERROR(ReadCluster());
    GAVEL_RETURN_IF_ERROR(MeasureThroughputs());
    GAVEL_RETURN_IF_ERROR(ReadThroughputs());
    GAVEL_RETURN_IF_ERROR(WriteTrace());
    for (int run = 1; run <= options_.runs; ++run) {
      Show(absl::StrFormat(
          "live run %d of %d: %d jobs, the last comes at %.0f s", run,
          options_.runs, jobs_.size(), jobs_.back().arrival_s));
      GAVEL_ASSIGN_OR_RETURN(RealityRun one, RunOnce(run));
      reality_.runs.push_back(std::move(one));
    }
    return std::move(reality_);
  }

 private:
  std::string File(const std::string& name) const {
    return StrCat(options_.folder, "/", name);
  }
  void Show(const std::string& what) const {
    if (options_.show) options_.show(what);
  }

  absl::Status ReadCluster() {
    cluster_path_ = options_.cluster_path;
    if (cluster_path_.empty()) {
      cluster_path_ = File("cluster.toml");
      GAVEL_RETURN_IF_ERROR(WriteFile(cluster_path_, kCluster));
    }
    GAVEL_ASSIGN_OR_RETURN(cluster_, ReadClusterFile(cluster_path_));
    // Refuses a wrong policy before minutes of measuring.
    GAVEL_RETURN_IF_ERROR(
        MergeScheduling(cluster_.scheduling, Flags()).status());
    for (ServerSpec& server : cluster_.servers) {
      GAVEL_RETURN_IF_ERROR(FillFromGpus(&server.accelerators));
      for (const AcceleratorInfo& info : server.accelerators) {
        ++counts_[info.type];
      }
    }
    if (!counts_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat(cluster_path_,
               ": there is no accelerator; declare one with [[server]] "
               "and its [[server.accelerator]]"));
  }

  // Beside neighbours, as the jobs of the trace mostly are.
  absl::Status MeasureThroughputs() {
    throughputs_path_ = options_.throughputs;
    if (!throughputs_path_.empty()) return absl::OkStatus();
    throughputs_path_ = File("throughputs.json");
    ProfileOptions profile;
    profile.table = File("profile.csv");
    profile.output = throughputs_path_;
    profile.folder = File("profile");
    profile.warm_up_s = kWarmUp_s;
    profile.measure_s = options_.measure_s;
    profile.precision = kPrecision;
    profile.show = [&](size_t done, size_t all, const std::string& what) {
      Show(absl::StrFormat("measuring %d of %d: %s", done + 1, all, what));
    };
    std::vector<std::string> left_out;
    std::vector<ProfileCell> cells = CellsOf(
        options_.workloads, cluster_.servers, /*pairs=*/false, &left_out);
    std::erase_if(
        cells, [](const ProfileCell& cell) { return cell.scale_factor > 1; });
    KeepOthersBusy(cluster_.servers, &cells);
    const StopFlag stop;
    profile.stop = stop.get();
    size_t figures = 0;
    return RunProfile(options_.workloads, cells, profile, &figures);
  }

  absl::Status ReadThroughputs() {
    GAVEL_ASSIGN_OR_RETURN(const std::shared_ptr<const ThroughputTable> table,
                           inputs_.LoadThroughputs(throughputs_path_));
    RealityThroughputs& throughputs = reality_.throughputs;
    for (const auto& [type, count] : counts_) {
      throughputs.types.push_back(type);
      throughputs.counts.push_back(count);
    }
    for (const ProfileWorkload& workload : options_.workloads) {
      std::vector<double>& row = throughputs.steps_per_s.emplace_back();
      const auto found = table->FindRow(workload.type, 1);
      for (const std::string& type : throughputs.types) {
        const auto column = table->FindType(type);
        row.push_back(
            found && column ? table->Alone(*found, *column).value_or(0) : 0);
      }
      if (*std::ranges::max_element(row) > 0) continue;
      return absl::InvalidArgumentError(
          StrCat(throughputs_path_, ": \"", workload.type,
                 "\" has no throughput on any type of ", cluster_path_,
                 "; profile it, or leave it out with --only"));
    }
    GAVEL_ASSIGN_OR_RETURN(scheduling_,
                           MergeScheduling(cluster_.scheduling, Flags()));
    return absl::OkStatus();
  }

  absl::Status WriteTrace() {
    jobs_ = MakeRealityTrace(options_.trace, reality_.throughputs);
    return WriteFile(File("trace.toml"),
                     FormatRealityTrace(jobs_, options_.workloads));
  }

  absl::StatusOr<RealityRun> RunOnce(int run) {
    const std::string folder = File(StrCat("run-", run));
    std::error_code error;
    fs::remove_all(folder, error);  // of an earlier call
    GAVEL_RETURN_IF_ERROR(MakeDirectory(folder));
    GAVEL_ASSIGN_OR_RETURN(const std::vector<LiveJob> jobs, RunLive(folder));
    RealityRun result;
    result.live = FiguresOf(jobs);
    result.overheads = MeasureOverheads(jobs);
    const std::string overheads = StrCat(folder, "/overheads.toml");
    GAVEL_RETURN_IF_ERROR(
        WriteFile(overheads, FormatOverheads(result.overheads)));
    GAVEL_ASSIGN_OR_RETURN(result.simulated, Simulate(overheads));
    return result;
  }

  // The job's file; its path.
  absl::StatusOr<std::string> WriteJob(size_t job, const std::string& folder) {
    const ProfileWorkload& workload = options_.workloads[jobs_[job].workload];
    JobSpec spec;
    spec.name = absl::StrFormat("job-%02d", job + 1);
    spec.argv = workload.argv;
    spec.working_directory = workload.working_directory;
    spec.environment = workload.environment;
    spec.environment.emplace_back(
        "GAVEL_TRACE_FILE", StrCat(folder, "/", spec.name, ".trace.json"));
    spec.app = workload.type;
    spec.steps_total = jobs_[job].steps;
    std::string path = StrCat(folder, "/", spec.name, ".toml");
    GAVEL_RETURN_IF_ERROR(WriteFile(path, FormatJobSpec(spec)));
    return path;
  }

  absl::StatusOr<std::vector<LiveJob>> RunLive(const std::string& folder) {
    LocalOptions local;
    local.cluster_path = cluster_path_;
    local.state_directory = StrCat(folder, "/state");
    local.scheduling = Flags();
    local.quiet = options_.quiet;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      GAVEL_ASSIGN_OR_RETURN(std::string path, WriteJob(i, folder));
      local.job_paths.push_back(std::move(path));
      local.submit_at_s.push_back(jobs_[i].arrival_s);
    }
    const double wall_s = WallClockNow() - MonotonicNow();
    GAVEL_RETURN_IF_ERROR(RunLocal(local));
    const std::string journal = StrCat(local.state_directory, "/journal.db");
    HistoryFilter filter;
    GAVEL_ASSIGN_OR_RETURN(const Json rows, ReadHistoryFile(journal, filter));
    filter.table = "leases";
    GAVEL_ASSIGN_OR_RETURN(const Json leases, ReadHistoryFile(journal, filter));
    GAVEL_ASSIGN_OR_RETURN(auto jobs, ReadLiveJobs(rows, leases));
    for (LiveJob& job : jobs) {
      GAVEL_ASSIGN_OR_RETURN(
          job.steps,
          ReadWorkerTrace(StrCat(folder, "/", job.name, ".trace.json")));
      for (TracedStep& step : job.steps) {
        step.begin_s += wall_s;
        step.end_s += wall_s;
      }
    }
    return jobs;
  }

  absl::StatusOr<LiveFigures> Simulate(const std::string& overheads) {
    study::SimulationSpec spec;
    spec.policy = scheduling_.policy;
    spec.round_duration_s = scheduling_.engine.round_duration_s;
    spec.mechanism = MechanismName(scheduling_.engine.mechanism);
    spec.cluster.clear();
    for (const auto& [type, count] : counts_) {
      StrAppend(&spec.cluster, spec.cluster.empty() ? "" : ",", type, ":",
                count);
    }
    spec.trace = File("trace.toml");
    spec.throughputs = throughputs_path_;
    spec.overheads = overheads;
    GAVEL_ASSIGN_OR_RETURN(const study::SimulationInputs inputs,
                           inputs_.Load(spec));
    const study::Watched watched = study::RunSimulation(
        inputs, TraceSimulation::Create, study::RunControl());
    const SimulationResult& result = watched.run.result;
    if (!result.complete) {
      return absl::AbortedError(StrCat("the simulation of ", spec.trace,
                                       " did not end: ", watched.run.detail,
                                       result.stopped));
    }
    return LiveFigures{result.makespan_s, result.avg_jct_s, result.preemptions};
  }

  SchedulingFlags Flags() const {
    SchedulingFlags flags;
    flags.policy = options_.policy;
    flags.round_duration_s = options_.round_duration_s;
    flags.lease_duration_s = options_.round_duration_s / 2;
    if (!throughputs_path_.empty()) flags.throughputs = throughputs_path_;
    return flags;
  }

  const RealityOptions& options_;
  std::string cluster_path_;
  std::string throughputs_path_;
  ClusterSpec cluster_;
  Scheduling scheduling_;
  std::map<std::string, int> counts_;  // of accelerators, by type
  study::SimulationInputCache inputs_;
  Reality reality_;
  std::vector<RealityJob> jobs_;
};

}  // namespace

absl::StatusOr<Reality> RunReality(const RealityOptions& options) {
  return RealityRunner(options).Run();
}

// ---- the report

namespace {

constexpr char kInputs[] =
    "What was measured: steps/s, and the seconds that a job lost once at its "
    "start and end, and at each pause, resume and move.";

using Figure = double LiveFigures::*;

double DifferenceOf(const RealityRun& run, Figure figure) {
  return run.simulated.*figure / run.live.*figure - 1;
}

std::string Percent(double part) {
  return absl::StrFormat("%+.1f %%", 100 * part);
}

std::string Verdict(const Reality& reality) {
  const auto text = [&](const char* what, Figure figure) {
    const Difference difference = DifferenceIn(figure, reality.runs);
    return StrCat(what, " ", Percent(difference.median),
                  " off the live one in the median (from ",
                  Percent(difference.least), " to ", Percent(difference.most),
                  ")");
  };
  return StrCat(text("Simulated makespan", &LiveFigures::makespan_s), ", ",
                text("simulated average JCT", &LiveFigures::avg_jct_s), ".");
}

std::string Setting(const RealityOptions& options, const Reality& reality) {
  std::vector<std::string> accelerators;
  const RealityThroughputs& throughputs = reality.throughputs;
  for (size_t i = 0; i < throughputs.types.size(); ++i) {
    accelerators.push_back(
        StrCat(throughputs.counts[i], " ", throughputs.types[i]));
  }
  return absl::StrFormat(
      "%d jobs of %g to %g s (alone, on their fastest type), seed %d; %s; "
      "accelerators: %s; rounds of %g s.",
      options.trace.jobs, options.trace.duration_min_s,
      options.trace.duration_max_s, options.trace.seed, options.policy,
      absl::StrJoin(accelerators, ", "), options.round_duration_s);
}

// The mean overhead of the jobs of a type over the runs.
Overhead MeanOverhead(const Reality& reality, const std::string& type) {
  Overhead mean;
  const double runs = static_cast<double>(reality.runs.size());
  for (const RealityRun& run : reality.runs) {
    const auto found = run.overheads.by_type.find(type);
    const Overhead& one = found == run.overheads.by_type.end()
                              ? run.overheads.all
                              : found->second;
    mean.start_s += one.start_s / runs;
    mean.pause_s += one.pause_s / runs;
    mean.resume_s += one.resume_s / runs;
    mean.move_s += one.move_s / runs;
  }
  return mean;
}

study::ReportTable InputsTable(const RealityOptions& options,
                               const Reality& reality) {
  study::ReportTable table;
  table.titles = {"WORKLOAD"};
  for (const std::string& type : reality.throughputs.types) {
    table.titles.push_back(StrCat("STEPS/S, ", type));
  }
  table.titles.insert(table.titles.end(), {"START", "PAUSE", "RESUME", "MOVE"});
  for (size_t i = 0; i < options.workloads.size(); ++i) {
    const std::string& type = options.workloads[i].type;
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(type);
    for (const double rate : reality.throughputs.steps_per_s[i]) {
      row.push_back(FormatRate(rate));
    }
    const Overhead mean = MeanOverhead(reality, type);
    for (const double seconds :
         {mean.start_s, mean.pause_s, mean.resume_s, mean.move_s}) {
      row.push_back(absl::StrFormat("%.3f", seconds));
    }
  }
  return table;
}

study::ReportTable RunsTable(const Reality& reality) {
  study::ReportTable table;
  table.titles = {"RUN",        "MAKESPAN (s)", "SIMULATED",
                  "DIFFERENCE", "AVG JCT (s)",  "SIMULATED",
                  "DIFFERENCE", "PAUSES",       "SIMULATED"};
  for (const RealityRun& run : reality.runs) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(StrCat(table.rows.size()));
    for (const Figure figure :
         {&LiveFigures::makespan_s, &LiveFigures::avg_jct_s}) {
      row.push_back(absl::StrFormat("%.1f", run.live.*figure));
      row.push_back(absl::StrFormat("%.1f", run.simulated.*figure));
      row.push_back(Percent(DifferenceOf(run, figure)));
    }
    row.push_back(StrCat(run.live.pauses));
    row.push_back(StrCat(run.simulated.pauses));
  }
  return table;
}

// All columns but the first are numbers.
std::vector<bool> Aligned(const study::ReportTable& table) {
  std::vector<bool> right(table.titles.size(), true);
  right.front() = false;
  return right;
}

}  // namespace

Difference DifferenceIn(Figure figure, const std::vector<RealityRun>& runs) {
  std::vector<double> all;
  for (const RealityRun& run : runs) all.push_back(DifferenceOf(run, figure));
  return {Median(all), std::ranges::min(all), std::ranges::max(all)};
}

std::string RenderReality(const RealityOptions& options, const Reality& reality,
                          size_t width) {
  const study::ReportTable inputs = InputsTable(options, reality);
  const study::ReportTable runs = RunsTable(reality);
  return StrCat("Simulation against reality: ", Setting(options, reality),
                "\n\n", kInputs, "\n\n",
                study::RenderText(inputs, Aligned(inputs), width), "\n",
                study::RenderText(runs, Aligned(runs), width), "\n",
                Verdict(reality), "\n");
}

std::string RenderRealityMarkdown(const RealityOptions& options,
                                  const Reality& reality) {
  const study::ReportTable inputs = InputsTable(options, reality);
  const study::ReportTable runs = RunsTable(reality);
  return StrCat("### Simulation against reality (`reality`)\n\n",
                Setting(options, reality), "\n\n",
                study::RenderMarkdown(runs, Aligned(runs)), "\n",
                Verdict(reality), "\n\n", kInputs, "\n\n",
                study::RenderMarkdown(inputs, Aligned(inputs)));
}

absl::Status CheckReality(const Reality& reality, double limit) {
  const double makespan =
      DifferenceIn(&LiveFigures::makespan_s, reality.runs).median;
  const double jct = DifferenceIn(&LiveFigures::avg_jct_s, reality.runs).median;
  if (std::abs(makespan) <= limit && std::abs(jct) <= limit) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrFormat(
      "the simulation is off by %s (makespan) and %s (average JCT), more than "
      "%g %%; was the machine busy with something else? Run it again, or raise "
      "--limit",
      Percent(makespan), Percent(jct), 100 * limit));
}

// ---- `gavel reproduce preemption`.

namespace {

constexpr double kTurn_s = 0.002;
// For messages that a process sent just before it ended.
constexpr double kLastWords_s = 0.1;
constexpr size_t kJob = 0;

// One program through all rounds, which all end in the same way.
class RoundEndRun {
 public:
  RoundEndRun(const PreemptionOptions& options, const ProfileWorkload& workload,
              RoundEnd end, LeaseGranter& leases)
      : options_(options), workload_(workload), end_(end), leases_(leases) {}

  absl::StatusOr<PreemptionRecord> Run() {
    std::error_code error;
    fs::remove_all(options_.folder, error);
    GAVEL_RETURN_IF_ERROR(MakeDirectory(options_.folder));
    GAVEL_RETURN_IF_ERROR(Start());
    if (end_ == RoundEnd::kExtended) {
      GAVEL_RETURN_IF_ERROR(Train());
    } else {
      for (int round = 0; round < options_.rounds; ++round) {
        GAVEL_RETURN_IF_ERROR(Train());
        if (end_ == RoundEnd::kPaused) {
          GAVEL_RETURN_IF_ERROR(TakeBack(PauseTier::kPark));
          continue;
        }
        GAVEL_RETURN_IF_ERROR(TakeBack(PauseTier::kEvict));
        ++epoch_;
        GAVEL_RETURN_IF_ERROR(Start());
      }
    }
    GAVEL_RETURN_IF_ERROR(End());
    for (const std::string& trace : traces_) {
      GAVEL_ASSIGN_OR_RETURN(const auto steps, ReadWorkerTrace(trace));
      record_.steps.insert(record_.steps.end(), steps.begin(), steps.end());
    }
    return std::move(record_);
  }

 private:
  const LeasedJob& job() const { return leases_.jobs()[kJob]; }
  ChildProcess& child() const { return *children_.front(); }

  absl::Status Start() {
    LeasedJob one;
    one.terms.places = {options_.accelerator};
    one.epoch = epoch_;
    if (!children_.empty()) one.steps_done = job().steps_done;
    if (end_ == RoundEnd::kExtended) one.terms.duration_s = options_.round_s;
    LiveLaunch launch;
    launch.worker.server = "preemption";
    launch.worker.job_name = "preemption";
    launch.worker.checkpoint_directory = File("checkpoints");
    traces_.push_back(File(StrCat("trace-", traces_.size(), ".json")));
    // Only the round's end saves a checkpoint.
    launch.worker.environment = {{"GAVEL_CHECKPOINT_INTERVAL_S", "0"},
                                 {"GAVEL_TRACE_FILE", traces_.back()}};
    launch.worker.worker = {JobId(kJob + 1), 0, leases_.Begin({one})};
    launch.places = {options_.accelerator};
    launch.endpoint = leases_.endpoint();
    launch.run_directory = options_.folder;
    launch.output_path = File("job.log");
    children_.clear();
    return StartWorkload(workload_, std::move(launch), &children_);
  }

  // One round under one lease: from the grant, the first round from its first
  // step.
  absl::Status Train() {
    GAVEL_RETURN_IF_ERROR(Wait("request for a lease", options_.timeout_s,
                               [&] { return job().granted_at >= 0; }));
    const uint64_t steps = job().steps_done;
    const auto has_stepped = [&, steps] { return job().steps_done > steps; };
    Time from = job().granted_at;
    if (record_.preemptions.empty()) {
      GAVEL_RETURN_IF_ERROR(Wait("step", options_.timeout_s, has_stepped));
      from = MonotonicNow();
    } else {
      record_.preemptions.back().granted_s = from;
    }
    const double rounds = end_ == RoundEnd::kExtended ? options_.rounds : 1;
    GAVEL_RETURN_IF_ERROR(Wait("end of the round", kNever, [&] {
      return MonotonicNow() >= from + rounds * options_.round_s;
    }));
    return Wait("step", options_.timeout_s, has_stepped);
  }

  absl::Status TakeBack(PauseTier tier) {
    leases_.TakeBack(MonotonicNow(), kJob, tier);
    Preemption& one = record_.preemptions.emplace_back();
    one.asked_s = job().asked_at;
    GAVEL_RETURN_IF_ERROR(Wait("boundary", options_.timeout_s,
                               [&] { return job().released_at >= 0; }));
    one.released_s = job().released_at;
    if (tier == PauseTier::kPark) {
      leases_.GrantNext(kJob);
      return absl::OkStatus();
    }
    return CollectProcess();
  }

  // Under the last lease, until a step is made.
  absl::Status End() {
    const uint64_t steps = job().steps_done;
    GAVEL_RETURN_IF_ERROR(Wait("request for a lease", options_.timeout_s,
                               [&] { return job().granted_at >= 0; }));
    if (!record_.preemptions.empty()) {
      record_.preemptions.back().granted_s = job().granted_at;
      GAVEL_RETURN_IF_ERROR(Wait("step", options_.timeout_s,
                                 [&] { return job().steps_done > steps; }));
    }
    leases_.TakeBack(MonotonicNow(), kJob, PauseTier::kEvict);
    return CollectProcess();
  }

  absl::Status CollectProcess() {
    GAVEL_RETURN_IF_ERROR(
        Wait("end", options_.timeout_s, [&] { return child().Ended(); }));
    const int code = child().Collect();
    if (code == kExitEvicted) return absl::OkStatus();
    return Failed(StrCat("it ended with ", code, " in place of ", kExitEvicted,
                         " when it was evicted"));
  }

  // Turns until `done`; ABORTED with `what` when it takes too long.
  template <class Done>
  absl::Status Wait(const std::string& what, double timeout_s,
                    const Done& done) {
    const Time begin = MonotonicNow();
    while (!done()) {
      if (options_.stop != nullptr && *options_.stop) {
        return absl::CancelledError("stopped");
      }
      if (!job().error.empty()) return Failed(job().error);
      if (child().Ended() && job().released_at < 0) {
        leases_.Turn(MonotonicNow(), kLastWords_s);
        if (job().released_at >= 0 || done()) continue;
        const int code = child().Collect();
        return Failed(StrCat("it ended with ", code, " while it was to train",
                             code == 0 ? "; let it train for longer" : ""));
      }
      if (MonotonicNow() - begin > timeout_s) {
        return Failed(StrCat("no ", what, " within ", timeout_s,
                             " s; is its loop a gavel::Iterator?"));
      }
      leases_.Turn(MonotonicNow(), kTurn_s);
    }
    return absl::OkStatus();
  }

  absl::Status Failed(const std::string& why) const {
    return absl::AbortedError(StrCat(workload_.type, ", ", RoundEndName(end_),
                                     ": ", why, "; its output is in ",
                                     File("job.log")));
  }
  std::string File(const std::string& name) const {
    return StrCat(options_.folder, "/", name);
  }

  const PreemptionOptions& options_;
  const ProfileWorkload& workload_;
  const RoundEnd end_;
  LeaseGranter& leases_;
  LiveProcesses children_;  // the one of now
  std::vector<std::string> traces_;
  uint64_t epoch_ = 1;
  PreemptionRecord record_;
};

MeasuredRound RoundBetween(const PreemptionRecord& record, Time from, Time to) {
  MeasuredRound round{from, to, to - from};
  for (const TracedStep& step : record.steps) {
    round.lost_s -=
        std::max(0.0, std::min(step.end_s, to) - std::max(step.begin_s, from));
  }
  return round;
}

}  // namespace

std::string_view RoundEndName(RoundEnd end) {
  constexpr std::string_view kNames[] = {"extended", "paused", "relaunched"};
  return kNames[static_cast<size_t>(end)];
}

std::vector<MeasuredRound> RoundsOf(const PreemptionRecord& record, int rounds,
                                    double round_s) {
  std::vector<MeasuredRound> all;
  if (record.steps.empty()) return all;
  const auto count = static_cast<size_t>(rounds);
  Time from = record.steps.front().begin_s;
  if (record.preemptions.empty()) {
    for (; all.size() < count && from + round_s <= record.steps.back().end_s;
         from += round_s) {
      all.push_back(RoundBetween(record, from, from + round_s));
    }
    return all;
  }
  for (const Preemption& one : record.preemptions) {
    const auto next = std::ranges::lower_bound(record.steps, one.granted_s, {},
                                               &TracedStep::begin_s);
    if (next == record.steps.end() || next == record.steps.begin() ||
        all.size() == count) {
      break;
    }
    MeasuredRound& round =
        all.emplace_back(RoundBetween(record, from, next->begin_s));
    round.leaving_s = std::max(0.0, one.released_s - std::prev(next)->end_s);
    round.away_s = one.granted_s - one.released_s;
    round.resuming_s = next->begin_s - one.granted_s;
    from = next->begin_s;
  }
  return all;
}

absl::Status RunPreemption(const PreemptionOptions& options,
                           PreemptionRounds* all) {
  all->clear();
  GAVEL_ASSIGN_OR_RETURN(const auto leases, LeaseGranter::Open());
  const size_t count = options.workloads.size() * kRoundEnds.size();
  for (const ProfileWorkload& workload : options.workloads) {
    PreemptionRounds::value_type ends;
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      const std::string_view name = RoundEndName(kRoundEnds[end]);
      if (options.show) {
        options.show(all->size() * kRoundEnds.size() + end, count,
                     StrCat(workload.type, ", ", name));
      }
      PreemptionOptions one = options;
      one.folder = StrCat(options.folder, "/", all->size() + 1, "-", name);
      GAVEL_ASSIGN_OR_RETURN(
          const PreemptionRecord record,
          RoundEndRun(one, workload, kRoundEnds[end], *leases).Run());
      ends[end] = RoundsOf(record, options.rounds, options.round_s);
      if (!ends[end].empty()) continue;
      return absl::AbortedError(
          StrCat(workload.type, ", ", name,
                 ": it made no step in a round; give --round more seconds"));
    }
    all->push_back(std::move(ends));
  }
  return absl::OkStatus();
}

}  // namespace gavel
