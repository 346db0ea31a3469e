#include <memory>

#include "CLI/CLI.hpp"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/daemon/local_run.h"

namespace gavel {

void AddLocalCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<LocalOptions>();
  CLI::App* command = app.add_subcommand(
      "local",
      "Coordinator and agents in this process: runs JOBs on this machine, ends "
      "when all have; serves until Ctrl-C when there are none");
  command
      ->add_option("--cluster", options->cluster_path,
                   "cluster file: servers, accelerators, scheduling")
      ->required();
  command->add_option("jobs", options->job_paths, "job files")
      ->type_name("JOB.toml");
  command
      ->add_option("--state", options->state_directory,
                   "journal, checkpoints, logs; what is unfinished there goes "
                   "on")
      ->default_val(kDefaultState);
  command->add_option("--summary", options->summary_path,
                      "writes the end of all jobs to this file, as JSON");
  command
      ->add_option("--listen", options->listen,
                   "loopback address for other `gavel` commands")
      ->capture_default_str();
  AddSchedulingFlags(*command, &options->scheduling);
  command->callback(
      [options, exit_code] { *exit_code = ExitCodeOf(RunLocal(*options)); });
}

}  // namespace gavel
