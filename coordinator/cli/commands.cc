#include "coordinator/cli/commands.h"

#include <cstdio>
#include <string>

namespace gavel {

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  std::fprintf(stderr, "gavel: %s\n", message.c_str());
  return kExitFailed;
}

}  // namespace gavel
