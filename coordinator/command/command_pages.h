// The commands of `gavel` as data, taken from the parser that runs them, and
// the texts that are made of them and of the keys of its files: completion in
// shells, and docs/files.md. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_

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

// Scripts with the commands, the options and the values of options that have a
// list of them; elsewhere the shell completes file names. The script for bash
// goes to share/bash-completion/completions/gavel, the one for zsh to _gavel in
// $fpath.
std::string BashCompletion(const std::vector<Command>& commands);
std::string ZshCompletion(const std::vector<Command>& commands);

// docs/files.md, from the table of keys that the parsers use (file_keys.h).
std::string FilesDocument();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_
