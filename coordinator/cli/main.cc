#include <cstdio>
#include <exception>
#include <string>

#include "CLI/CLI.hpp"
#include "coordinator/cli/commands.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kDescription[] =
    "Gavel for C++: schedules training jobs over accelerators in rounds.";
constexpr char kFooter[] =
    "JOB is an id or a name. `gavel COMMAND --help` tells the options of each "
    "command.\n"
    "Exit codes: 0 done, 1 failed (the reason is on stderr), 2 a wrong command "
    "line.";

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "gavel");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("gavel ") + GAVEL_VERSION);
  app.require_subcommand(1);
  int exit_code = kExitOk;
  AddLocalCommand(app, &exit_code);
  AddCoordinatorCommand(app, &exit_code);
  AddAgentCommand(app, &exit_code);
  AddClientCommands(app, &exit_code);
  AddQueryCommands(app, &exit_code);
  AddLogsCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  std::fprintf(stderr, "gavel: %s\n", message.c_str());
  return kExitFailed;
}

}  // namespace gavel

int main(int argc, char** argv) {
  try {
    return gavel::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gavel: %s\n", error.what());
    return gavel::kExitFailed;
  }
}
