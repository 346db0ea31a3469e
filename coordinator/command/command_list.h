// The commands of `gavel` as data, taken from the parser that runs them: so
// that no page (command_pages.h) has an option that the parser lacks. Pure,
// thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_LIST_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_LIST_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gavel {

struct CommandOption {
  std::vector<std::string> names = {};  // "--policy"; none: it has a place
  std::string place = "";               // "jobs", of one that goes by its place
  std::string argument = "";            // "NAME"; empty: a flag
  std::string meaning = "";
  std::string default_value = "";
  std::string variable = "";             // of the environment; empty: none
  std::vector<std::string> values = {};  // all that it takes; empty: anything
  bool required = false;
  bool repeated = false;
};

struct Command {
  std::string words = "";  // "gavel user add"; "gavel" of the program itself
  std::string meaning = "";
  std::vector<CommandOption> options = {};
  std::string footer = "";                 // of its help: exit codes
  std::vector<std::string> commands = {};  // below it: "add", "list", "revoke"
};

// The program first, then each command followed by those below it.
std::vector<Command> ListCommands(const CLI::App& app);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_LIST_H_
