#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

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

// Takes "-- PROGRAM ARGUMENTS..." off the end of `gavel doctor`: none of that
// is for our parser, which would take "[a,b]" for two arguments.
std::vector<std::string> TakeProgram(int* argc, char** argv) {
  if (*argc < 2 || std::string_view(argv[1]) != "doctor") return {};
  char** const end = argv + *argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  *argc = static_cast<int>(dashes - argv);
  if (dashes == end) return {};
  return {dashes + 1, end};
}

// A word that is no command would be told as a missing one.
bool IsUnknownCommand(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  const std::string word = argv[1];
  const auto named = [&word](const CLI::App* command) {
    return command->get_name() == word;
  };
  if (!app.get_subcommands(named).empty()) return false;
  std::fprintf(stderr,
               "gavel: there is no command \"%s\"; `gavel --help` lists them\n",
               word.c_str());
  return true;
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "gavel");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("gavel ") + GAVEL_VERSION);
  app.require_subcommand(1);
  int exit_code = kExitOk;
  AddLocalCommand(app, &exit_code);
  AddDoctorCommand(app, TakeProgram(&argc, argv), &exit_code);
  AddCoordinatorCommand(app, &exit_code);
  AddAgentCommand(app, &exit_code);
  AddClientCommands(app, &exit_code);
  AddOperatorCommands(app, &exit_code);
  AddPolicyCommand(app, &exit_code);
  AddQueryCommands(app, &exit_code);
  AddLogsCommand(app, &exit_code);
  AddHistoryCommand(app, &exit_code);
  AddUsageCommand(app, &exit_code);
  AddReplayCommand(app, &exit_code);
  AddWhatIfCommand(app, &exit_code);
  AddKeyCommands(app, &exit_code);
  AddSolveCommand(app, &exit_code);
  AddProfileCommand(app, &exit_code);
  AddTraceCommand(app, &exit_code);
  AddSimulateCommand(app, &exit_code);
  AddSweepCommand(app, &exit_code);
  AddReportCommand(app, &exit_code);
  AddReproduceCommand(app, &exit_code);
  if (IsUnknownCommand(app, argc, argv)) return kExitUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace

}  // namespace gavel

int main(int argc, char** argv) {
  try {
    return gavel::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gavel: %s\n", error.what());
    return gavel::kExitFailed;
  }
}
