#include "coordinator/command/command_line.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/daemon_config.h"
#include "coordinator/command/command_advice.h"
#include "study/commands.h"

namespace gavel {
namespace {

constexpr char kDescription[] =
    "Gavel for C++: schedules training jobs over accelerators in rounds.";

constexpr char kFooter[] =
    "JOB is an id or a name. `gavel COMMAND --help` tells the options of each "
    "command.\n"
    "Exit codes: 0 done, 1 failed (the reason is on stderr), 2 a wrong command "
    "line.";

// Takes "-- PROGRAM ARGUMENTS..." off the end of `gavel doctor`: CLI11 would
// read
// "[a,b]" as two arguments.
std::vector<std::string> TakeProgram(int* argc, char** argv) {
  if (*argc < 2 || std::string_view(argv[1]) != "doctor") return {};
  char** const end = argv + *argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  *argc = static_cast<int>(dashes - argv);
  if (dashes == end) return {};
  return {dashes + 1, end};
}

bool IsDaemon(const std::string& command) {
  return command == "coordinator" || command == "agent";
}

// `words` with those of a daemon's configuration file.
absl::StatusOr<std::vector<std::string>> WithConfig(
    const CLI::App& app, const std::vector<std::string>& words,
    const std::vector<std::string>& typed) {
  if (words.empty() || !IsDaemon(words[0])) return words;
  absl::StatusOr<std::vector<std::string>> all =
      WithConfigFile(*app.get_subcommand(words[0]), typed);
  if (all.ok()) all->insert(all->begin(), words[0]);
  return all;
}

// Also of --help and --version, which CLI11 has as errors.
int TellWrongLine(CLI::App& app, const std::vector<std::string>& words,
                  const CLI::ParseError& error) {
  const auto type = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool required = type == CLI::ExitCodes::RequiredError;
  const std::string originals = FlagsOfOriginal(app, words);
  std::string unexpected;
  std::string missing;
  // What is missing may be what was mistyped.
  if (required || type == CLI::ExitCodes::ExtrasError) {
    unexpected = UnexpectedWords(app, /*advised=*/!originals.empty());
  }
  if (required) missing = MissingCommand(app);
  if (!unexpected.empty()) {
    std::fprintf(stderr, "gavel: %s\n", unexpected.c_str());
  } else if (!missing.empty()) {
    std::fputs(missing.c_str(), stderr);
  } else if (app.exit(error) == 0) {
    return kExitOk;
  }
  std::fputs(originals.c_str(), stderr);
  return kExitUsage;
}

}  // namespace

std::unique_ptr<CLI::App> MakeCommandLine(
    const std::string& version, std::vector<std::string> program,
    int* exit_code, const std::vector<std::string>& typed) {
  auto app = std::make_unique<CLI::App>(kDescription, "gavel");
  app->footer(kFooter);
  app->set_version_flag("--version", version);
  app->require_subcommand(1);
  AddLocalCommand(*app, exit_code);
  AddDoctorCommand(*app, std::move(program), exit_code);
  AddCoordinatorCommand(*app, typed, exit_code);
  AddAgentCommand(*app, typed, exit_code);
  AddClientCommands(*app, exit_code);
  AddOperatorCommands(*app, exit_code);
  study::AddPolicyCommand(*app, exit_code);
  AddQueryCommands(*app, exit_code);
  AddLogsCommand(*app, exit_code);
  AddHistoryCommand(*app, exit_code);
  AddUsageCommand(*app, exit_code);
  AddReplayCommand(*app, exit_code);
  study::AddWhatIfCommand(*app, exit_code);
  AddBackupCommands(*app, exit_code);
  AddKeyCommands(*app, exit_code);
  study::AddSolveCommand(*app, exit_code);
  study::AddProfileCommand(*app, exit_code);
  study::AddTraceCommand(*app, exit_code);
  study::AddSimulateCommand(*app, exit_code);
  study::AddSweepCommand(*app, exit_code);
  study::AddReportCommand(*app, exit_code);
  study::AddReproduceCommand(*app, exit_code);
  AddHelpCommands(*app, version, exit_code);
  return app;
}

int RunCommandLine(const std::string& version, int argc, char** argv) {
  int exit_code = kExitOk;
  std::vector<std::string> program = TakeProgram(&argc, argv);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::vector<std::string> typed(words.begin() + (words.empty() ? 0 : 1),
                                       words.end());
  const std::unique_ptr<CLI::App> app =
      MakeCommandLine(version, std::move(program), &exit_code, typed);
  // CLI11 reports an unknown command as a missing one.
  const std::string unknown = UnknownCommand(*app, words);
  if (!unknown.empty()) {
    std::fprintf(stderr, "gavel: %s\n", unknown.c_str());
    return kExitUsage;
  }
  absl::StatusOr<std::vector<std::string>> all = WithConfig(*app, words, typed);
  if (!all.ok()) return DaemonExitCodeOf(all.status());
  std::ranges::reverse(*all);  // as CLI11 wants them
  try {
    app->parse(*std::move(all));
  } catch (const CLI::ParseError& error) {
    return TellWrongLine(*app, words, error);
  }
  return exit_code;
}

}  // namespace gavel
