// The configuration file of `gavel coordinator` and `gavel agent`: a TOML file
// whose keys are the options' names without "--". What is typed on the command
// line counts more.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}

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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_CONFIG_H_
