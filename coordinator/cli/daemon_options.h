// The options that the daemons share: how to schedule, merged with a cluster
// file; the configuration file; and the log.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_OPTIONS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/workload/cluster_spec.h"
#include "runtime/files/files.h"

namespace CLI {
class App;
}
namespace spdlog {
class logger;
}

namespace gavel {

inline constexpr char kDefaultState[] = "./gavel-state";

// How to schedule: what is given here counts more than the cluster file.
struct SchedulingFlags {
  std::optional<std::string> policy;
  std::optional<std::string> mechanism;
  std::optional<std::string> queue;
  std::optional<std::string> throughputs;
  std::optional<double> round_duration_s;
  std::optional<double> lease_duration_s;
  std::optional<double> start_timeout_s;
  std::optional<double> pause_grace_s;
  std::optional<double> stop_grace_s;
  std::optional<double> agent_timeout_s;
  std::optional<double> hang_timeout_s;
  std::optional<double> profiling_percentage;
  std::optional<int> reference_models;
  std::optional<int> interactive_max;
  bool introspection = false;  // true counts more than the cluster file
};
void AddSchedulingFlags(CLI::App& command, SchedulingFlags* flags);

struct Scheduling {
  std::string policy;
  std::map<std::string, double> prices;
  EngineOptions engine;
};
// INVALID_ARGUMENT: a lease longer than the round, a name that means nothing,
// a throughput file that is none. NOT_FOUND: no such file.
absl::StatusOr<Scheduling> MergeScheduling(const SchedulingSpec& spec,
                                           const SchedulingFlags& flags);

// Where the lock files of `accelerators` lie. GPUs belong to the machine: a
// folder that all of this user's agents share. CPU slots are made up by a
// cluster file: the state directory (empty).
std::string DefaultRunDirectory(
    const std::vector<AcceleratorInfo>& accelerators);

// ---- The configuration file ----
//
// A TOML file for `gavel coordinator` and `gavel agent`, whose keys are the
// options' names without "--". Options on the command line take precedence.

// Declares --config, whose value is stored in `path`.
void AddConfigFlag(CLI::App& command, std::string* path);

// `typed` are the arguments of `command`: with those of the file that --config
// among them names; as they are when none does. INVALID_ARGUMENT, naming file,
// line and remedy: a key that is no option, or a value that can't be one.
// NOT_FOUND: there is no such file.
absl::StatusOr<std::vector<std::string>> WithConfigFile(
    const CLI::App& command, const std::vector<std::string>& typed);

// Parses such arguments anew, on a SIGHUP: `command` is a fresh App with the
// same options. The arguments with those of the file. INVALID_ARGUMENT also for
// what the options refuse, with file and line.
absl::StatusOr<std::vector<std::string>> ParseAgain(
    CLI::App& command, const std::vector<std::string>& typed);

// The keys of the file whose values differ from `before`, except those of
// `reloaded`. ParseAgain gave both lists.
std::vector<std::string> ChangedKeys(const std::vector<std::string>& before,
                                     const std::vector<std::string>& now,
                                     const std::vector<std::string>& reloaded);

// ---- The log ----
//
// Lines of text for people, or of JSON for programs, written off the caller's
// thread (audit_log.h).

struct LogOptions {
  std::string format = "text";  // or "json"
  std::string level = "info";   // the least that is logged
};

// --log-format and --log-level.
void AddDaemonLogFlags(CLI::App& command, LogOptions* options);

// Sets the level of this name; an unknown name means "info".
void SetLogLevel(spdlog::logger& log, const std::string& level);

std::shared_ptr<spdlog::logger> MakeLog(Descriptor to,
                                        const LogOptions& options);
std::shared_ptr<spdlog::logger> MakeStderrLog(const LogOptions& options);
// INTERNAL when it can't be written.
absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeFileLog(
    const std::string& path);

// Why a daemon has ended, as its last line: "gavel: MESSAGE", or JSON. OK:
// none. Its exit code.
int TellEnd(const absl::Status& status, const LogOptions& options);
// The exit code alone.
int DaemonCodeOf(const absl::Status& status);

// The log line for a SIGHUP to a daemon without --config, which a terminal
// sends when it closes.
inline constexpr char kHungUp[] =
    "SIGHUP, and no --config to read again: it stops in order";

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_OPTIONS_H_
