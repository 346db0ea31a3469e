// The logs of the daemons: lines of text for people, or of JSON for programs,
// written off the caller's thread (line_thread.h).
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_LOG_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_LOG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace CLI {
class App;
}
namespace spdlog {
class logger;
}

namespace gavel {

struct LogOptions {
  std::string format = "text";  // or "json"
  std::string level = "info";   // the least that is logged
};

// --log-format and --log-level.
void AddDaemonLogFlags(CLI::App& command, LogOptions* options);

// What `level` means to spdlog; of what is no level, "info".
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

// Of a SIGHUP to a daemon without --config, as a terminal that closes sends it.
inline constexpr char kHungUp[] =
    "SIGHUP, and no --config to read again: it stops in order";

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_LOG_H_
