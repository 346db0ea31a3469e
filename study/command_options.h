// One way to declare an option of a command. Called by the commands of study/.
// Stateless, thread-safe.
#ifndef GAVEL_STUDY_COMMAND_OPTIONS_H_
#define GAVEL_STUDY_COMMAND_OPTIONS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace gavel::study {

// An option whose help shows its default, unless that is an empty string.
// `value`: outlives the command. `type`: what the help calls the value; empty:
// the name of its C++ type.
template <class T>
CLI::Option* AddOption(CLI::App& command, const std::string& names, T& value,
                       const std::string& type, const std::string& help) {
  CLI::Option* const option = command.add_option(names, value, help);
  if (!type.empty()) option->type_name(type);
  return option->capture_default_str();
}

}  // namespace gavel::study

#endif  // GAVEL_STUDY_COMMAND_OPTIONS_H_
