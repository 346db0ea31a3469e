#include "study/reproduce/reality_run.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/daemon/local_run.h"
#include "coordinator/cli/daemon/stop_flag.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history/history_file.h"
#include "coordinator/server/wall_clock.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/stopwatch.h"
#include "study/profile/profile_run.h"
#include "study/simulation/simulation_inputs.h"
#include "study/simulation/simulation_run.h"

namespace gavel::study {
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
    SimulationSpec spec;
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
    GAVEL_ASSIGN_OR_RETURN(const SimulationInputs inputs, inputs_.Load(spec));
    const Watched watched =
        RunSimulation(inputs, TraceSimulation::Create, RunControl());
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
  SimulationInputCache inputs_;
  Reality reality_;
  std::vector<RealityJob> jobs_;
};

}  // namespace

absl::StatusOr<Reality> RunReality(const RealityOptions& options) {
  return RealityRunner(options).Run();
}

}  // namespace gavel::study
