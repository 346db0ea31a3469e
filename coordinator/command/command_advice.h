// What is said of a command line that is wrong: the nearest command, ours for a
// word that other schedulers have, and our option for a flag of the original
// Gavel. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gavel {

// Empty: the words up to the first flag are commands of `app`, as far as there
// are commands below them. Else what is wrong, and what there is.
std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& words);

// What is said of words and flags that the chosen command does not take, in the
// order in which they were typed. `app`: has parsed. `advised`: what was meant
// is told otherwise. "": there are none.
std::string UnexpectedWords(const CLI::App& app, bool advised = false);

// The commands below the chosen one, as its help, where one is to be chosen and
// none was; "" elsewhere. `app`: has parsed.
std::string MissingCommand(const CLI::App& app);

// A line for each flag among the words that the command lacks and the original
// Gavel has, mostly none.
std::string FlagsOfOriginal(const CLI::App& app,
                            const std::vector<std::string>& words);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_ADVICE_H_
