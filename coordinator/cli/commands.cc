#include "coordinator/cli/commands.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/cli/daemon_options.h"
#include "core/text.h"

namespace gavel {

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  std::fprintf(stderr, "gavel: %s\n", message.c_str());
  return kExitFailed;
}

int ExitCodeOf(const absl::StatusOr<int>& exit_code) {
  return exit_code.ok() ? *exit_code : ExitCodeOf(exit_code.status());
}

std::string CheckAboveZero(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == '\0' && value > 0 &&
                    value < std::numeric_limits<double>::infinity();
  return good ? "" : StrCat(text, " is not a number above 0");
}

void PrintNotices(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) {
    std::fprintf(stderr, "gavel: note: %s\n", notice.c_str());
  }
}

int DaemonExitCodeOf(const absl::Status& status) {
  ExitCodeOf(status);
  return DaemonCodeOf(status);
}

}  // namespace gavel
