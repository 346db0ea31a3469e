// Manual pages of `gavel`, in roff. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_COMMAND_MAN_PAGE_H_
#define GAVEL_COORDINATOR_COMMAND_MAN_PAGE_H_

#include <string>
#include <vector>

#include "coordinator/command/command_list.h"

namespace gavel {

struct ManPage {
  std::string file;  // "gavel-user-add.1"
  std::string text;
};

// One for each command. `version`: "gavel 0.1.0".
std::vector<ManPage> MakeManPages(const std::vector<Command>& commands,
                                  const std::string& version);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_COMMAND_MAN_PAGE_H_
