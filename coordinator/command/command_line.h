// The whole command line of `gavel`. main() runs it; tests make its parser.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_LINE_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_LINE_H_

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gavel {

// `version`: "gavel 0.1.0". `program`: what follows "--" (gavel doctor). The
// command that was chosen leaves its exit code in `exit_code`, which is
// borrowed. `typed`: what follows the name of a daemon.
std::unique_ptr<CLI::App> MakeCommandLine(
    const std::string& version, std::vector<std::string> program,
    int* exit_code, const std::vector<std::string>& typed = {});

// Does what the arguments say; the exit code of the process.
int RunCommandLine(const std::string& version, int argc, char** argv);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_LINE_H_
