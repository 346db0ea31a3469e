#include "iterator/environment.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "core/generation.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

namespace internal {
namespace {

// Set by the agent, for workers alone. GAVEL_COORDINATOR is the default of
// clients: a user who exports it goes on running programs alone.
constexpr char kCoordinator[] = "GAVEL_WORKER_COORDINATOR";

bool FromText(const std::string& text, std::string* value) {
  *value = text;
  return true;
}
bool FromText(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value >= 0;
}
bool FromText(const std::string& text, bool* value) {
  *value = text == "1";
  return text == "0" || text == "1";
}
bool FromText(const std::string& text, Gradients* value) {
  if (text == "detect") *value = Gradients::kDetect;
  if (text == "always") *value = Gradients::kSaveAlways;
  if (text == "never") *value = Gradients::kSaveNever;
  return text == "detect" || text == "always" || text == "never";
}
template <class Integer>
bool FromText(const std::string& text, Integer* value) {
  return absl::SimpleAtoi(text, value) && *value >= 0;
}

template <class T>
const char* const kExpected = "a number >= 0";
template <>
const char* const kExpected<bool> = "0 or 1";
template <>
const char* const kExpected<Gradients> = "detect, always or never";

template <class T>
absl::Status Read(const char* variable, T* value) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return absl::OkStatus();
  T read{};
  if (!FromText(std::string(text), &read)) {
    return absl::InvalidArgumentError(StrCat(variable, "=", text, " is not ",
                                             kExpected<T>,
                                             "; correct it or unset it"));
  }
  *value = read;
  return absl::OkStatus();
}

// torchrun keeps its store over restarts of the workers, hence their count in
// the name.
absl::Status ReadStore(GangOptions* gang) {
  std::string host;
  int port = 0;
  std::string run;
  std::string restarts;
  std::string launcher_hosts;
  GAVEL_RETURN_IF_ERROR(Read("MASTER_ADDR", &host));
  GAVEL_RETURN_IF_ERROR(Read("MASTER_PORT", &port));
  GAVEL_RETURN_IF_ERROR(Read("TORCHELASTIC_RUN_ID", &run));
  GAVEL_RETURN_IF_ERROR(Read("TORCHELASTIC_RESTART_COUNT", &restarts));
  GAVEL_RETURN_IF_ERROR(Read("TORCHELASTIC_USE_AGENT_STORE", &launcher_hosts));
  if (port > 65535) {
    return absl::InvalidArgumentError(
        StrCat("MASTER_PORT=", port, " is no port; correct it or unset it"));
  }
  if (!host.empty() && port > 0) gang->store = StrCat(host, ":", port);
  gang->name = StrCat(run, "/", restarts);
  gang->launcher_hosts = launcher_hosts == "True";
  return absl::OkStatus();
}

// torchrun's names count when ours are not set.
absl::Status ReadGang(SessionOptions* options) {
  GAVEL_RETURN_IF_ERROR(Read("RANK", &options->rank));
  GAVEL_RETURN_IF_ERROR(Read("WORLD_SIZE", &options->world_size));
  GAVEL_RETURN_IF_ERROR(Read("LOCAL_RANK", &options->gang.local_rank));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_ADDRESS", &options->address));
  GAVEL_RETURN_IF_ERROR(ReadStore(&options->gang));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_RANK", &options->rank));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_WORLD_SIZE_MIN", &options->world_size_min));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_WORLD_SIZE_MAX", &options->world_size_max));
  return Read("GAVEL_WORLD_SIZE", &options->world_size);
}

absl::Status ReadAll(SessionOptions* options) {
  GAVEL_RETURN_IF_ERROR(Read(kCoordinator, &options->coordinator));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_CLUSTER", &options->cluster));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_JOB_NAME", &options->job_name));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_JOB", &options->job));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_INCARNATION", &options->incarnation));
  GAVEL_RETURN_IF_ERROR(ReadGang(options));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_RUN_DIRECTORY", &options->run_directory));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_CHECKPOINT_DIRECTORY", &options->checkpoint_directory));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_CHECKPOINT_INTERVAL_S", &options->checkpoint_interval_s));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_FAILURE_INTERVAL_S", &options->failure_interval_s));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_PAUSE_GRACE_S", &options->pause_grace_s));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_CHECKPOINT_INTERVAL_STEPS",
                             &options->checkpoint_interval_steps));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_CHECKPOINTS_KEPT", &options->checkpoints_kept));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_CHECKPOINTS_KEPT_EVERY_STEPS",
                             &options->checkpoints_kept_every_steps));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_CHECKPOINTS_KEPT_BEST", &options->checkpoints_kept_best));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_GRADIENTS", &options->gradients));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_PARTIAL_RESTORE", &options->partial_restore));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_KEEP_PROGRAM_OPTIONS", &options->keep_program_options));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_STEPS", &options->steps_total));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_DEVICE", &options->device));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_PROGRESS_BAR", &options->progress_bar));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_PINNED_MEMORY_BYTES", &options->pinned_memory_bytes));
  GAVEL_RETURN_IF_ERROR(Read("GAVEL_TRACE_FILE", &options->trace_file));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_TENSORBOARD_DIRECTORY", &options->tensorboard_directory));
  GAVEL_RETURN_IF_ERROR(
      Read("GAVEL_EXAMINATION_FILE", &options->examination_file));
  return Read("GAVEL_REPORT_FILE", &options->report_file);
}

// The agent gives a worker all of these variables or none.
absl::Status CheckIdentity(const SessionOptions& options) {
  if (options.coordinator.empty() && options.incarnation != 0) {
    return absl::InvalidArgumentError(
        StrCat("GAVEL_INCARNATION is set, but not ", kCoordinator,
               ": the agent is older than this program's runtime; update it, "
               "or unset GAVEL_INCARNATION to run alone"));
  }
  if (options.coordinator.empty()) return absl::OkStatus();
  if (options.job == 0 || options.incarnation == 0) {
    return absl::InvalidArgumentError(
        StrCat(kCoordinator,
               " is set, but not GAVEL_JOB or GAVEL_INCARNATION; start this "
               "program by `gavel submit`, or unset ",
               kCoordinator,
               " to run alone (GAVEL_COORDINATOR is the clients' default, and "
               "makes no worker)"));
  }
  return absl::OkStatus();
}

absl::Status CheckKept(const SessionOptions& options) {
  if (options.checkpoints_kept < 2) {
    return absl::InvalidArgumentError(
        StrCat("SessionOptions::checkpoints_kept (GAVEL_CHECKPOINTS_KEPT) is ",
               options.checkpoints_kept, "; keep at least 2"));
  }
  if (options.checkpoints_kept_every_steps < 0) {
    return absl::InvalidArgumentError(
        StrCat("SessionOptions::checkpoints_kept_every_steps "
               "(GAVEL_CHECKPOINTS_KEPT_EVERY_STEPS) is ",
               options.checkpoints_kept_every_steps, "; give 0 or more"));
  }
  if (ParseBestBy(options.checkpoints_kept_best)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("SessionOptions::checkpoints_kept_best "
             "(GAVEL_CHECKPOINTS_KEPT_BEST) is \"",
             options.checkpoints_kept_best,
             "\"; give min:NAME or max:NAME of a scalar that is reported, such "
             "as min:loss"));
}

}  // namespace

absl::Status CheckOptions(const SessionOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckKept(options));
  if (std::isnan(options.checkpoint_interval_s) ||
      !(options.failure_interval_s > 0) || !(options.pause_grace_s >= 0) ||
      options.checkpoint_interval_steps < 0 || options.steps_total < 0) {
    return absl::InvalidArgumentError(
        "SessionOptions: checkpoint_interval_s must be a number, "
        "failure_interval_s > 0, pause_grace_s, checkpoint_interval_steps and "
        "steps_total >= 0");
  }
  if (options.world_size < 1 || options.rank < 0 ||
      options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        StrCat("rank ", options.rank, " of ", options.world_size,
               " workers; GAVEL_RANK must be below GAVEL_WORLD_SIZE"));
  }
  if (!(options.gang_wait_s > 0)) {
    return absl::InvalidArgumentError(
        StrCat("SessionOptions::gang_wait_s is ", options.gang_wait_s,
               "; ranks need some time to write their parts"));
  }
  return CheckIdentity(options);
}

}  // namespace internal

Status ReadEnvironment(SessionOptions* options) {
  return internal::ToPublic(internal::ReadAll(options));
}

}  // namespace gavel

namespace gavel::internal {
namespace {

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

// Moves a terminal's cursor to the begin of its line, and clears that line.
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

void Log::ShowLastLine(const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_line_ = line;
  std::fprintf(stderr, "%s%s", kClearLine, line.c_str());
}

void Log::EndLastLine() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (last_line_.empty()) return;
  last_line_.clear();
  std::fprintf(stderr, "\n");
}

void Log::Write(LogLevel level, const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!sink_) {
    std::fprintf(stderr, "%sgavel: %s%s\n%s",
                 last_line_.empty() ? "" : kClearLine, NameOf(level),
                 line.c_str(), last_line_.c_str());
    return;
  }
  try {
    sink_(level, line);
  } catch (...) {
    sink_ = nullptr;  // a sink that throws is not called again
    std::fprintf(stderr, "gavel: error: the log callback threw an exception\n");
  }
}

}  // namespace gavel::internal
