
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/daemon/local_run.h"

namespace gavel {

void AddLocalCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LocalOptions>(
      app, exit_code, "local",
      "Coordinator and agents in this process: runs JOBs on this machine, ends "
      "when all have; serves until Ctrl-C when there are none",
      RunLocal);
  AddOption(command, "--cluster", options.cluster_path, "",
            "cluster file: servers, accelerators, scheduling")
      ->required();
  AddOption(command, "jobs", options.job_paths, "JOB.toml", "job files");
  options.state_directory = kDefaultState;
  AddOption(command, "--state", options.state_directory, "",
            "journal, checkpoints, logs; what is unfinished there goes on");
  AddOption(command, "--summary", options.summary_path, "",
            "writes the end of all jobs to this file, as JSON");
  AddOption(command, "--listen", options.listen, "",
            "loopback address for other `gavel` commands");
  AddSchedulingFlags(command, &options.scheduling);
}

}  // namespace gavel
