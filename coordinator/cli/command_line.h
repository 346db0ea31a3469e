// The subcommands of `gavel`. Each Add function declares the options of a
// command and the action that runs when the command is chosen. MakeCommandLine
// calls all of them. The process ends with the exit code of the chosen command:
// 0 done, 1 failed (the reason is on stderr), 2 a wrong command line. Commands
// that wait for jobs end with the code of a job (job_commands.h).
#ifndef GAVEL_COORDINATOR_CLI_COMMAND_LINE_H_
#define GAVEL_COORDINATOR_CLI_COMMAND_LINE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace gavel {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // as shells have it: 128 + SIGINT
// Only daemons return the codes below; docs/daemons.md describes them.
inline constexpr int kExitAlreadyRuns = 3;
inline constexpr int kExitFenced = 4;
inline constexpr int kExitDiskFull = 5;
inline constexpr int kExitDamaged = 6;
inline constexpr char kDaemonExitCodes[] =
    "Exit codes: 0 stopped in order, 1 failed otherwise, 2 wrong options or "
    "configuration, 3 another one runs (state directory or port), 4 "
    "fenced: another one has taken over, or the coordinator does not take this "
    "agent, 5 a disk is full, 6 the journal is damaged.";

// Daemons. `typed`: the arguments behind the command's name, which are parsed
// again with the configuration file on a SIGHUP.
void AddCoordinatorCommand(CLI::App& app, std::vector<std::string> typed,
                           int* exit_code);
void AddAgentCommand(CLI::App& app, std::vector<std::string> typed,
                     int* exit_code);
void AddLocalCommand(CLI::App& app, int* exit_code);

// Whether a training program resumes exactly; needs no coordinator. `program`:
// with its arguments, which follow "--".
void AddDoctorCommand(CLI::App& app, std::vector<std::string> program,
                      int* exit_code);

// Searches hyperparameters on a coordinator. `program`: see AddDoctorCommand.
void AddTuneCommand(CLI::App& app, std::vector<std::string> program,
                    int* exit_code);

// submit, run. `program`: see AddDoctorCommand.
void AddSubmitCommands(CLI::App& app, const std::vector<std::string>& program,
                       int* exit_code);
// A terminal on an accelerator. `program`: see AddDoctorCommand.
void AddShellCommand(CLI::App& app, const std::vector<std::string>& program,
                     int* exit_code);
// cancel, release, hold, requeue, checkpoint, shutdown.
void AddClientCommands(CLI::App& app, int* exit_code);
// list, export, import, below checkpoint: files of a job's checkpoint
// directory.
void AddCheckpointFilesCommands(CLI::App& app, int* exit_code);

// drain, resume, update, notify.
void AddOperatorCommands(CLI::App& app, int* exit_code);

// queue, apps, goal, nodes, why, status.
void AddQueryCommands(CLI::App& app, int* exit_code);
// A link to the pages of a coordinator, with the right to act.
void AddDashboardCommand(CLI::App& app, int* exit_code);
// They watch jobs.
void AddLogsCommand(CLI::App& app, int* exit_code);
void AddWaitCommand(CLI::App& app, int* exit_code);

// They read the journal.
void AddHistoryCommand(CLI::App& app, int* exit_code);
void AddUsageCommand(CLI::App& app, int* exit_code);
void AddReplayCommand(CLI::App& app, int* exit_code);

// backup, restore.
void AddBackupCommands(CLI::App& app, int* exit_code);

// keygen, user, audit.
void AddKeyCommands(CLI::App& app, int* exit_code);

// Predictions for the jobs of a running coordinator: under another policy, or
// with one more job.
void AddPolicyCommand(CLI::App& app, int* exit_code);
void AddWhatIfCommand(CLI::App& app, int* exit_code);

// A policy on problems in a file; needs no coordinator.
void AddSolveCommand(CLI::App& app, int* exit_code);

// Measures throughputs of workloads on this machine.
void AddProfileCommand(CLI::App& app, int* exit_code);

// Makes and shows traces; needs no coordinator.
void AddTraceCommand(CLI::App& app, int* exit_code);

// Simulations: one, many into a database, their report, and the paper's
// results.
void AddSimulateCommand(CLI::App& app, int* exit_code);
void AddSweepCommand(CLI::App& app, int* exit_code);
void AddReportCommand(CLI::App& app, int* exit_code);
void AddReproduceCommand(CLI::App& app, int* exit_code);
// Below `gavel reproduce`: results that are measured live.
void AddRealityCommand(CLI::App& reproduce, int* exit_code);
void AddPreemptionCommand(CLI::App& reproduce, int* exit_code);

// Help, manual pages and completion, from all commands that were added.
void AddHelpCommands(CLI::App& app, int* exit_code);

// Writes "gavel: MESSAGE" to stderr unless `status` is OK; its exit code.
int ExitCodeOf(const absl::Status& status);
// The same of a command that says itself which exit code it ends with.
int ExitCodeOf(const absl::StatusOr<int>& exit_code);
// The same for a daemon, with the exit codes above.
int DaemonExitCodeOf(const absl::Status& status);
// For CLI::Option::check: the error, or empty for a number above 0. The checks
// of CLI11 itself would print the largest double in their messages.
std::string CheckAboveZero(const std::string& text);
// Writes a line "gavel: note: NOTICE" to stderr for each.
void PrintNotices(const std::vector<std::string>& notices);

// ---- The whole command line, and advice on a wrong one
//
// The nearest command, ours for a word of other schedulers, and our option for
// a flag of the original Gavel. main() runs the command line; tests make its
// parser. The advice is pure and thread-safe.

// `version`: "gavel 0.1.0". `program`: what follows "--" (gavel doctor). The
// command that was chosen leaves its exit code in `exit_code`, which is
// borrowed. `typed`: what follows the name of a daemon.
std::unique_ptr<CLI::App> MakeCommandLine(
    const std::string& version, std::vector<std::string> program,
    int* exit_code, const std::vector<std::string>& typed = {});

// Does what the arguments say; the exit code of the process.
int RunCommandLine(const std::string& version, int argc, char** argv);

// The command directly below `app`; null: there is none of this name.
const CLI::App* FindSubcommand(const CLI::App& app, const std::string& name);

// Empty: the words up to the first flag are commands of `app`, as far as there
// are commands below them. Else the error, with the nearest commands.
std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& words);

// The error for words and flags that the chosen command does not take, in the
// order in which they were typed; empty if there are none. `app` has parsed.
// `advised`: another message already says what to write instead.
std::string UnexpectedWords(const CLI::App& app, bool advised = false);

// The help of the chosen command, if one of the commands below it is required
// and missing; else "". `app`: has parsed.
std::string MissingCommand(const CLI::App& app);

// A line for each flag among the words that the command lacks and the original
// Gavel has.
std::string FlagsOfOriginal(const CLI::App& app,
                            const std::vector<std::string>& words);

// ---- The commands as data
//
// They are taken from the parser that runs them. Texts are made of them and of
// the keys of the files that they read: completion in shells, and
// docs/files.md. Pure, thread-safe.

struct CommandOption {
  std::vector<std::string> names = {};  // "--policy"; none: it has a place
  std::string place = "";               // "jobs", of one that goes by its place
  std::string argument = "";            // "NAME"; empty: a flag
  std::string meaning = "";
  std::string default_value = "";
  std::string variable = "";             // of the environment; empty: none
  std::vector<std::string> values = {};  // all that it takes; empty: anything
  bool required = false;
  bool repeated = false;
};

struct Command {
  std::string words = "";  // "gavel user add"; "gavel" of the program itself
  std::string meaning = "";
  std::vector<CommandOption> options = {};
  std::string footer = "";                 // of its help: exit codes
  std::vector<std::string> commands = {};  // below it: "add", "list", "revoke"
};

// The program first, then each command followed by those below it.
std::vector<Command> ListCommands(const CLI::App& app);

// Scripts with the commands, the options and the values of options that have a
// list of them; elsewhere the shell completes file names. The script for bash
// goes to share/bash-completion/completions/gavel, the one for zsh to _gavel in
// $fpath.
std::string BashCompletion(const std::vector<Command>& commands);
std::string ZshCompletion(const std::vector<Command>& commands);

// docs/files.md, from the table of keys that the parsers use (file_keys.h).
std::string FilesDocument();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_COMMAND_LINE_H_
