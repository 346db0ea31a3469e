// What is made of the commands of `gavel` and of the keys of its files: manual
// pages, completion in shells, and docs/files.md. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_
#define GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_

#include <string>
#include <vector>

#include "coordinator/command/command_list.h"

namespace gavel {

struct ManPage {
  std::string file;  // "gavel-user-add.1"
  std::string text;  // roff
};
// One for each command. `version`: "gavel 0.1.0".
std::vector<ManPage> MakeManPages(const std::vector<Command>& commands,
                                  const std::string& version);

// Scripts with the commands, the options and the values of options that have a
// list of them; elsewhere the shell completes file names. Of bash for
// share/bash-completion/completions/gavel, of zsh for _gavel in $fpath.
std::string BashCompletion(const std::vector<Command>& commands);
std::string ZshCompletion(const std::vector<Command>& commands);

// docs/files.md, from the table of keys that the parsers use (file_keys.h).
std::string FilesDocument();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_COMMAND_PAGES_H_
