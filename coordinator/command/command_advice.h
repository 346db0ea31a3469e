// Advice on a wrong command line: the nearest command, ours for a word of other
// schedulers, and our option for a flag of the original Gavel. Pure,
// thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gavel {

// The command directly below `app`; null: there is none of this name.
const CLI::App* FindSubcommand(const CLI::App& app, const std::string& name);

// Empty: the words up to the first flag are commands of `app`, as far as there
// are commands below them. Else the error, with the nearest commands.
std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& words);

// The error for words and flags that the chosen command does not take, in the
// order in which they were typed; "": there are none. `app`: has parsed.
// `advised`: the user is told elsewhere what to write instead.
std::string UnexpectedWords(const CLI::App& app, bool advised = false);

// The help of the chosen command, if one of the commands below it is required
// and missing; else "". `app`: has parsed.
std::string MissingCommand(const CLI::App& app);

// A line for each flag among the words that the command lacks and the original
// Gavel has.
std::string FlagsOfOriginal(const CLI::App& app,
                            const std::vector<std::string>& words);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_
