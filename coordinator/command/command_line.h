// The whole command line of `gavel`, and advice on a wrong one: the nearest
// command, ours for a word of other schedulers, and our option for a flag of
// the original Gavel. main() runs the command line; tests make its parser. The
// advice is pure and thread-safe.
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

// The command directly below `app`; null: there is none of this name.
const CLI::App* FindSubcommand(const CLI::App& app, const std::string& name);

// Empty: the words up to the first flag are commands of `app`, as far as there
// are commands below them. Else the error, with the nearest commands.
std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& words);

// The error for words and flags that the chosen command does not take, in the
// order in which they were typed; empty if there are none. `app` has parsed.
// `advised`: another message already says what to write instead.
std::string UnexpectedWords(const CLI::App& app, bool advised = false);

// The help of the chosen command, if one of the commands below it is required
// and missing; else "". `app`: has parsed.
std::string MissingCommand(const CLI::App& app);

// A line for each flag among the words that the command lacks and the original
// Gavel has.
std::string FlagsOfOriginal(const CLI::App& app,
                            const std::vector<std::string>& words);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_LINE_H_
