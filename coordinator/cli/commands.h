// The subcommands of `gavel`. Each Add function declares the options of a
// command and the action that runs when the command is chosen. MakeCommandLine
// calls all of them. The process ends with the exit code of the chosen command:
// 0 done, 1 failed (the reason is on stderr), 2 a wrong command line. Commands
// that wait for jobs end with the code of a job (job_output.h).
#ifndef GAVEL_COORDINATOR_CLI_COMMANDS_H_
#define GAVEL_COORDINATOR_CLI_COMMANDS_H_

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

// Searches hyperparameters on a coordinator. `program`: as of doctor.
void AddTuneCommand(CLI::App& app, std::vector<std::string> program,
                    int* exit_code);

// submit, run. `program`: as of doctor.
void AddSubmitCommands(CLI::App& app, const std::vector<std::string>& program,
                       int* exit_code);
// A terminal on an accelerator. `program`: as of doctor.
void AddShellCommand(CLI::App& app, const std::vector<std::string>& program,
                     int* exit_code);
// cancel, release, hold, requeue, checkpoint, shutdown.
void AddClientCommands(CLI::App& app, int* exit_code);
// list, export, import, below checkpoint: files of a job's checkpoint
// directory.
void AddCheckpointFilesCommands(CLI::App& app, int* exit_code);

// drain, resume, update, notify.
void AddOperatorCommands(CLI::App& app, int* exit_code);

// queue, apps, nodes, why, status.
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
// For CLI::Option::check, whose own checks print the largest double there is.
// Empty: fine.
std::string CheckAboveZero(const std::string& text);
// Writes a line "gavel: note: NOTICE" to stderr for each.
void PrintNotices(const std::vector<std::string>& notices);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_COMMANDS_H_
