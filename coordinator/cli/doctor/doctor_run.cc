#include "coordinator/cli/doctor/doctor_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/cli/child_process.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/stopwatch.h"
#include "runtime/transport/lease_granter.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

// A step of a small model takes about this long, its next commit longer.
constexpr auto kPollInterval = std::chrono::microseconds(100);
// Shorter steps can't be told apart at that interval.
constexpr double kStepMin_s = 1e-3;
constexpr size_t kReportBytesMax = 16 << 20;
constexpr int64_t kTailBytes = 2048;
constexpr size_t kTailLines = 10;
constexpr size_t kJob = 0;  // of the granter: the program's

// Our own environment without the variables of a job or a gang.
std::vector<std::string> EnvironmentOf(
    const std::map<std::string, std::string>& run) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : OwnEnvironment()) {
    const bool of_gang = name == "RANK" || name == "WORLD_SIZE";
    const bool of_job = name.starts_with("GAVEL_") && name != "GAVEL_DEVICE";
    if (!of_gang && !of_job) environment.push_back(StrCat(name, "=", value));
  }
  for (const auto& [name, value] : run) {
    environment.push_back(StrCat(name, "=", value));
  }
  return environment;
}

// Fails as SpawnProcess would, with a message that suits a command line.
absl::Status CheckInPath(const ProcessSpec& spec) {
  const std::string& program = spec.argv.front();
  for (const std::string& path : ProgramCandidates(spec)) {
    std::error_code error;
    if (fs::exists(path, error)) return absl::OkStatus();
  }
  return absl::NotFoundError(
      StrCat(program, ": command not found; ",
             program.find('/') == std::string::npos
                 ? StrCat("give a path, such as ./", program)
                 : std::string("build it, or correct the path")));
}

// Reads what a program reports while it runs, for the times of its steps.
class ReportTail {
 public:
  explicit ReportTail(std::string path) : path_(std::move(path)) {}

  void Read(double now_s) {
    if (!file_.is_open()) file_.open(path_, std::ios::binary);
    if (!file_.is_open()) return;
    file_.clear();  // the end of file of the last read
    for (std::string part; std::getline(file_, part);) {
      line_ += part;
      if (file_.eof()) return;  // the rest of the line is to come
      Take(line_ + "\n", now_s);
      line_.clear();
    }
  }
  const std::vector<StepTime>& times() const { return times_; }

 private:
  void Take(const std::string& line, double now_s) {
    for (const ReportedValue& value : ParseReport(line)) {
      if (times_.empty() || value.step > times_.back().step) {
        times_.push_back({value.step, now_s});
      }
    }
  }

  const std::string path_;
  std::ifstream file_;
  std::string line_;
  std::vector<StepTime> times_;
};

// One program from its start to its end.
class Watch {
 public:
  Watch(const DoctorProgram& program, const DoctorRunOptions& options)
      : program_(program),
        options_(options),
        report_path_(StrCat(program.folder, "/", options.name, ".report")),
        account_path_(StrCat(program.folder, "/", options.name, ".account")),
        tail_(report_path_) {
    run_.checkpoint_directory =
        StrCat(program.folder, "/", options.checkpoints);
    run_.log_path = StrCat(program.folder, "/", options.name, ".log");
  }

  absl::StatusOr<DoctorRun> Run() {
    std::error_code error;
    fs::create_directories(run_.checkpoint_directory, error);
    GAVEL_RETURN_IF_ERROR(OpenLeases());
    const ProcessSpec spec = Spec();
    GAVEL_RETURN_IF_ERROR(CheckInPath(spec));
    GAVEL_ASSIGN_OR_RETURN(const pid_t pid, SpawnProcess(spec));
    ChildProcess child(pid);
    GAVEL_RETURN_IF_ERROR(WaitForEnd(&child));

    run_.last_checkpoint = LastCheckpoint(run_.checkpoint_directory);
    run_.step_times = tail_.times();
    if (fs::exists(account_path_, error)) {
      GAVEL_ASSIGN_OR_RETURN(const std::string account,
                             ReadFile(account_path_, kReportBytesMax));
      run_.account = ParseAccount(account);
    }
    if (!fs::exists(report_path_, error)) return run_;
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(report_path_, kReportBytesMax));
    run_.values = ParseReport(text);
    return run_;
  }

 private:
  ProcessSpec Spec() const {
    std::map<std::string, std::string> variables = {
        {"GAVEL_STEPS", StrCat(options_.steps)},
        {"GAVEL_CHECKPOINT_DIRECTORY", run_.checkpoint_directory},
        {"GAVEL_CHECKPOINT_INTERVAL_STEPS",
         StrCat(options_.checkpoint_interval_steps)},
        {"GAVEL_CHECKPOINT_INTERVAL_S", "0"},
        {"GAVEL_CHECKPOINTS_KEPT", StrCat(options_.checkpoints_kept)},
        {"GAVEL_REPORT_FILE", report_path_},
        {"GAVEL_EXAMINATION_FILE", account_path_},
        {"GAVEL_DEVICE", program_.device},
        {"OMP_NUM_THREADS", StrCat(program_.threads)},
        {"OMP_WAIT_POLICY", "PASSIVE"},
    };
    if (granter_ != nullptr) {
      variables.merge(std::map<std::string, std::string>{
          {"GAVEL_WORKER_COORDINATOR", granter_->endpoint()},
          {"GAVEL_JOB", "1"},
          {"GAVEL_INCARNATION", "1"},
          {"GAVEL_RANK", "0"},
          {"GAVEL_WORLD_SIZE", "1"},
          {"GAVEL_RUN_DIRECTORY", program_.folder},
      });
    }
    ProcessSpec spec;
    spec.argv = program_.argv;
    spec.output_path = run_.log_path;
    spec.environment = EnvironmentOf(variables);
    return spec;
  }

  // Until the program has ended or was killed.
  absl::Status WaitForEnd(ChildProcess* child) {
    const uint64_t kill_at = options_.kill_at_step;
    const double timeout_s =
        options_.timeout_s > 0 ? options_.timeout_s : program_.timeout_s;
    while (!child->Ended()) {
      const double now_s = Now_s();
      tail_.Read(now_s);
      TurnLeases(now_s);
      MayInterrupt(now_s);
      const uint64_t committed = kill_at > 0 ? StepsCommitted() : 0;
      run_.killed = committed > 0 && committed <= kill_at;
      run_.timed_out = now_s > timeout_s;
      if (program_.stop != nullptr && *program_.stop) {
        return absl::CancelledError("interrupted; nothing is known yet");
      }
      if (run_.killed || run_.timed_out) {
        child->Kill();
        break;
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    run_.exit_code = child->Collect();
    run_.duration_s = Now_s();
    tail_.Read(run_.duration_s);
    TurnLeases(run_.duration_s);
    // It may have ended before the signal arrived.
    if (run_.exit_code != -SIGKILL) run_.killed = false;
    return absl::OkStatus();
  }

  absl::Status OpenLeases() {
    if (!options_.leases) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(granter_, LeaseGranter::Open());
    LeasedJob job;
    job.terms.places = {options_.leases->front()};
    granter_->Begin({job});
    return absl::OkStatus();
  }

  void TurnLeases(double now_s) {
    if (granter_ == nullptr) return;
    granter_->Turn(now_s, 0);
    const LeasedJob& job = granter_->jobs()[kJob];
    DoctorLeases& leases = run_.leases;
    leases.asked = job.heard;
    leases.granted |= job.granted_at >= 0;
    leases.lost_s = job.pausing_s;
    if (leases.released) {
      leases.resumed |= job.runs;
    } else if (job.released_at >= 0) {
      leases.released = true;
      leases.paused_after_step = job.steps_done;
      if (leases.interrupted) leases.pause_s = job.released_at - job.asked_at;
      granter_->terms(kJob).places = {options_.leases->back()};
      granter_->GrantNext(kJob);
    }
  }

  void MayInterrupt(double now_s) {
    DoctorLeases& leases = run_.leases;
    if (!leases.granted || leases.interrupted || leases.released ||
        StepsDone() < options_.interrupt_after_step) {
      return;
    }
    leases.interrupted = true;
    granter_->TakeBack(now_s, kJob, PauseTier::kPark);
  }

  uint64_t StepsCommitted() const {
    const auto last = LastCheckpoint(run_.checkpoint_directory);
    return last ? last->generation.step : 0;
  }

  // A step reports before it is counted: a value at step 9 is of the tenth
  // step.
  uint64_t StepsDone() const {
    const uint64_t reported =
        tail_.times().empty() ? 0 : tail_.times().back().step + 1;
    return std::max(reported, StepsCommitted());
  }
  double Now_s() const { return clock_.elapsed_s(); }

  const DoctorProgram& program_;
  const DoctorRunOptions& options_;
  const std::string report_path_;
  const std::string account_path_;
  const Stopwatch clock_;
  ReportTail tail_;
  std::unique_ptr<LeaseGranter> granter_;  // null: it runs alone
  DoctorRun run_;
};

}  // namespace

std::optional<double> DoctorRun::StepDuration_s(uint64_t end_step) const {
  std::vector<double> durations_s;
  for (size_t i = 2; i < step_times.size(); ++i) {
    const StepTime& last = step_times[i - 1];
    const StepTime& one = step_times[i];
    if (one.step == last.step + 1 && one.step < end_step) {
      durations_s.push_back(one.at_s - last.at_s);
    }
  }
  if (durations_s.empty()) return std::nullopt;
  const auto middle =
      durations_s.begin() + static_cast<int64_t>(durations_s.size() / 2);
  std::nth_element(durations_s.begin(), middle, durations_s.end());
  if (*middle < kStepMin_s) return std::nullopt;
  return *middle;
}

absl::StatusOr<DoctorRun> RunUnderDoctor(const DoctorProgram& program,
                                         const DoctorRunOptions& options) {
  return Watch(program, options).Run();
}

std::string TailOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  file.seekg(std::max<int64_t>(0, size - kTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  const size_t begin =
      lines.size() > kTailLines ? lines.size() - kTailLines : 0;
  std::string tail;
  for (size_t i = begin; i < lines.size(); ++i) {
    StrAppend(&tail, "    | ", lines[i], "\n");
  }
  return tail;
}

}  // namespace gavel
