// The subcommands of `gavel` that study schedules; coordinator/cli/commands.h
// says what an Add function does.
#ifndef GAVEL_STUDY_COMMANDS_H_
#define GAVEL_STUDY_COMMANDS_H_

namespace CLI {
class App;
}

namespace gavel::study {

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

}  // namespace gavel::study

#endif  // GAVEL_STUDY_COMMANDS_H_
