#include "coordinator/cli/doctor_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "coordinator/cli/files.h"
#include "coordinator/server/agent_environment.h"
#include "coordinator/server/agent_process.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(5);
// Steps of a small model take less than that; its next commit takes longer.
constexpr auto kKillPollInterval = std::chrono::microseconds(100);
constexpr size_t kReportBytesMax = 16 << 20;
constexpr int64_t kTailBytes = 2048;
constexpr size_t kTailLines = 10;
constexpr char kManifest[] = "manifest.json";

// Ours, but for what a job or a gang of its own would be told.
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

// The same, with words that suit a command line.
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

// "generation-...", or "generation-....1" after a failed attempt.
std::optional<DoctorCheckpoint> AsCheckpoint(const fs::path& path) {
  std::string name = path.filename().string();
  name = name.substr(0, name.find('.'));
  const std::optional<Generation> generation = ParseGenerationName(name);
  std::error_code error;
  if (!generation || !fs::exists(path / kManifest, error)) return std::nullopt;
  return DoctorCheckpoint{*generation, path.string()};
}

// Committed ones; the program may be writing and deleting others.
std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory) {
  std::optional<DoctorCheckpoint> last;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    auto one = AsCheckpoint(entry->path());
    if (one && (!last || one->generation > last->generation)) {
      last = std::move(one);
    }
  }
  return last;
}

// A running program, and what it started: killed when this goes.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    Kill();
    Collect();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool Ended() const {
    siginfo_t info{};
    return ended_ || (waitid(P_PID, static_cast<id_t>(pid_), &info,
                             WEXITED | WNOHANG | WNOWAIT) == 0 &&
                      info.si_pid == pid_);
  }
  void Kill() const {
    if (!ended_) kill(-pid_, SIGKILL);
  }
  // Waits for the end; what the program left behind ends, too.
  int Collect() {
    if (ended_) return exit_code_;
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) !=
               0 &&
           errno == EINTR) {
    }
    Kill();  // before its pid, and with it the group's number, is free again
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    ended_ = true;
    exit_code_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return exit_code_;
  }

 private:
  const pid_t pid_;
  bool ended_ = false;
  int exit_code_ = 0;
};

bool IsTimeToKill(const DoctorRunOptions& options,
                  const std::string& checkpoints) {
  const std::optional<DoctorCheckpoint> last = LastCheckpoint(checkpoints);
  return last && last->generation.step > 0 &&
         last->generation.step < options.kill_before_step;
}

// Until the program has ended or was killed.
absl::Status Watch(const DoctorProgram& program,
                   const DoctorRunOptions& options,
                   const std::string& checkpoints, Child* child,
                   DoctorRun* run) {
  const Clock::time_point begin = Clock::now();
  const bool kills = options.kill_before_step > 0;
  while (!child->Ended()) {
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    run->killed = kills && IsTimeToKill(options, checkpoints);
    run->timed_out = elapsed.count() > program.timeout_s;
    if (program.stop != nullptr && *program.stop) {
      return absl::CancelledError("interrupted; nothing is known yet");
    }
    if (run->killed || run->timed_out) {
      child->Kill();
      break;
    }
    if (kills) {
      std::this_thread::sleep_for(kKillPollInterval);
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  run->exit_code = child->Collect();
  run->duration_s = std::chrono::duration<double>(Clock::now() - begin).count();
  // It may have come to its end before the signal did.
  if (run->exit_code != -SIGKILL) run->killed = false;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DoctorRun> RunUnderDoctor(const DoctorProgram& program,
                                         const DoctorRunOptions& options) {
  const std::string checkpoints =
      StrCat(program.folder, "/", options.checkpoints);
  const std::string report =
      StrCat(program.folder, "/", options.name, ".report");
  DoctorRun run;
  run.log_path = StrCat(program.folder, "/", options.name, ".log");
  std::error_code error;
  fs::create_directories(checkpoints, error);

  ProcessSpec spec;
  spec.argv = program.argv;
  spec.output_path = run.log_path;
  spec.environment = EnvironmentOf({
      {"GAVEL_STEPS", StrCat(options.steps)},
      {"GAVEL_CHECKPOINT_DIRECTORY", checkpoints},
      {"GAVEL_CHECKPOINT_INTERVAL_STEPS",
       StrCat(options.checkpoint_interval_steps)},
      {"GAVEL_CHECKPOINT_INTERVAL_S", "0"},
      {"GAVEL_REPORT_FILE", report},
  });
  GAVEL_RETURN_IF_ERROR(CheckInPath(spec));
  GAVEL_ASSIGN_OR_RETURN(const pid_t pid, SpawnProcess(spec));
  Child child(pid);
  GAVEL_RETURN_IF_ERROR(Watch(program, options, checkpoints, &child, &run));

  run.last_checkpoint = LastCheckpoint(checkpoints);
  if (!fs::exists(report, error)) return run;
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(report, kReportBytesMax));
  run.values = ParseReport(text);
  return run;
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

uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const uint64_t size = entry->file_size(error);
    if (!error) bytes += size;
    error.clear();
  }
  return bytes;
}

}  // namespace gavel
