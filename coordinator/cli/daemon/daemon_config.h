// The configuration file of `gavel coordinator` and `gavel agent`: a TOML file
// whose keys are the options' names without "--". What is typed on the command
// line counts more.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "coordinator/cli/daemon/daemon_log.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {

// --config; `path` gets what it says.
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

// Keys of the file with another value than `before`, as ParseAgain gave both;
// but for those of `reloaded`.
std::vector<std::string> ChangedKeys(const std::vector<std::string>& before,
                                     const std::vector<std::string>& now,
                                     const std::vector<std::string>& reloaded);

// What a daemon does on a SIGHUP: reads its configuration again. `Options` has
// `log`; AddOptions declares it. Borrows the log.
template <class Options>
class ConfigReload {
 public:
  // `typed`: the arguments at the start.
  ConfigReload(void (*add_options)(CLI::App*, Options*),
               const std::vector<std::string>& typed, spdlog::logger& log)
      : add_options_(add_options), typed_(typed), log_(log) {
    Options again;
    CLI::App command;
    add_options_(&command, &again);
    last_ = WithConfigFile(command, typed).value_or(typed);
  }

  // Sets the log's level and calls `take` with all options. `what`: of the keys
  // `reloaded`, for the log; all others wait for the next start.
  template <class Take>
  void Read(const char* what, const std::vector<std::string>& reloaded,
            const Take& take) {
    Options now;
    CLI::App command;
    add_options_(&command, &now);
    absl::StatusOr<std::vector<std::string>> read = ParseAgain(command, typed_);
    if (!read.ok()) {
      log_.error("nothing is changed: {}", ToStd(read.status().message()));
      return;
    }
    SetLogLevel(log_, now.log.level);
    take(now);
    log_.info("configuration read again: {}", what);
    for (const std::string& key : ChangedKeys(last_, *read, reloaded)) {
      log_.warn(
          "{} has changed in the configuration; it is read at the next start",
          key);
    }
    last_ = *std::move(read);
  }

 private:
  void (*const add_options_)(CLI::App*, Options*);
  const std::vector<std::string> typed_;
  spdlog::logger& log_;
  std::vector<std::string> last_;  // the arguments as they were read last
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_
