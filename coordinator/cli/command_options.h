// One way to declare a command and its options. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_COMMAND_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_COMMAND_OPTIONS_H_

#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "coordinator/cli/command_line.h"

namespace gavel {

// A command below `app`, and its options, which live as long as it does: it
// leaves the exit code of `run(options)`, a Status or a StatusOr<int>.
template <class Options, class Run>
std::pair<CLI::App&, Options&> AddCommand(CLI::App& app, int* exit_code,
                                          const std::string& name,
                                          const std::string& help, Run run) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(name, help);
  command.callback([options, exit_code, run] {
    *exit_code = ExitCodeOf(run(std::as_const(*options)));
  });
  return {command, *options};
}

// An option whose help shows its default, unless that is empty or nothing.
// `value`: outlives the command. `type`: what the help calls the value; empty:
// the name of its C++ type.
template <class T>
CLI::Option* AddOption(CLI::App& command, const std::string& names, T& value,
                       const std::string& type, const std::string& help) {
  CLI::Option* const option = command.add_option(names, value, help);
  if (!type.empty()) option->type_name(type);
  bool empty = false;
  if constexpr (requires { value.empty(); }) empty = value.empty();
  if constexpr (requires { value.has_value(); }) empty = !value.has_value();
  return empty ? option : option->capture_default_str();
}

// A check that refuses an empty value, such as that of an unset variable of a
// script, where it would choose everything.
inline std::string CheckNonEmpty(const std::string& value) {
  return value.empty() ? "is empty; give a value, or leave the option out" : "";
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_COMMAND_OPTIONS_H_
