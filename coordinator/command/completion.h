// Completion of `gavel` in shells: scripts with the commands, the options and
// the values of options that have a list of them; elsewhere the shell completes
// file names. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMPLETION_H_
#define GAVEL_COORDINATOR_COMMAND_COMPLETION_H_

#include <string>
#include <vector>

#include "coordinator/command/command_list.h"

namespace gavel {

// For share/bash-completion/completions/gavel.
std::string BashCompletion(const std::vector<Command>& commands);
// For _gavel in a folder of $fpath.
std::string ZshCompletion(const std::vector<Command>& commands);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMPLETION_H_
