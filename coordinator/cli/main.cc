#include <cstdio>
#include <exception>

#include "coordinator/cli/command_line.h"

int main(int argc, char** argv) {
  try {
    return gavel::RunCommandLine("gavel " GAVEL_VERSION, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gavel: %s\n", error.what());
    return gavel::kExitFailed;
  }
}
