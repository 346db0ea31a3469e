#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/profile_run.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/user_files.h"

namespace gavel {
namespace {

struct ProfileFlags {
  std::string workloads;
  std::string cluster;  // file; empty: the GPUs of this machine
  bool alone = false;
  bool busy = false;
  ProfileOptions run;
};

absl::StatusOr<std::vector<ServerSpec>> FindServers(const ProfileFlags& flags) {
  std::vector<ServerSpec> servers;
  if (flags.cluster.empty()) {
    ServerSpec& server = servers.emplace_back();
    server.name = "here";
    GAVEL_ASSIGN_OR_RETURN(server.accelerators, DetectAccelerators());
    return servers;
  }
  GAVEL_ASSIGN_OR_RETURN(const auto cluster, ReadClusterFile(flags.cluster));
  servers = cluster.servers;
  for (ServerSpec& server : servers) {
    GAVEL_RETURN_IF_ERROR(FillFromGpus(&server.accelerators));
  }
  return servers;
}

absl::Status Run(ProfileFlags flags) {
  GAVEL_ASSIGN_OR_RETURN(const auto workloads, ReadWorkloads(flags.workloads));
  GAVEL_ASSIGN_OR_RETURN(const auto servers, FindServers(flags));
  std::vector<std::string> left_out;
  std::vector<ProfileCell> cells =
      CellsOf(workloads, servers, !flags.alone, &left_out);
  if (flags.busy) KeepOthersBusy(servers, &cells);
  for (const std::string& what : left_out) {
    std::fprintf(stderr, "gavel: left out: %s\n", what.c_str());
  }
  if (cells.empty()) {
    return absl::InvalidArgumentError(
        "there is nothing to measure on these accelerators; lower "
        "scale_factors, or declare more with --cluster");
  }
  GAVEL_RETURN_IF_ERROR(CheckWritable(flags.run.table));
  if (!flags.run.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(flags.run.output));
  }
  const StopFlag stop;
  flags.run.stop = stop.get();
  Terminal terminal;
  const Stopwatch clock;
  flags.run.show = [&](size_t done, size_t all, const std::string& what) {
    terminal.Show(
        terminal.is_terminal()
            ? RenderBar("profiling",
                        static_cast<double>(done) / static_cast<double>(all),
                        clock.elapsed_s(), what, terminal.width())
            : StrCat(done + 1, " of ", all, ": ", what, "\n"));
  };
  flags.run.folder = std::filesystem::absolute(flags.run.folder).string();
  size_t figures = 0;
  const absl::Status status = RunProfile(workloads, cells, flags.run, &figures);
  if (terminal.is_terminal()) terminal.Show("");
  std::printf("%zu figures in %s%s%s\n", figures, flags.run.table.c_str(),
              flags.run.output.empty() ? "" : ", as Gavel's JSON in ",
              flags.run.output.c_str());
  return status;
}

}  // namespace

void AddProfileCommand(CLI::App& app, int* exit_code) {
  auto [command, flags] = AddCommand<ProfileFlags>(
      app, exit_code, "profile",
      "Measures the throughputs of workloads on this machine's accelerators: "
      "alone, by scale factor, and in pairs. Stopped, the same command goes on",
      Run);
  flags.run.table = "profile.csv";
  flags.run.folder = "gavel-profile";
  AddOption(command, "workloads", flags.workloads, "WORKLOADS.toml",
            "file of [[workload]]")
      ->required();
  AddOption(command, "--cluster", flags.cluster, "",
            "declares the accelerators; without it the GPUs of this machine "
            "are detected");
  AddOption(command, "--table", flags.run.table, "FILE.csv",
            "the figures with their confidence intervals; what it has is not "
            "measured again");
  AddOption(command, "--output", flags.run.output, "FILE.json",
            "the same as Gavel's JSON, for --throughputs of simulate and "
            "coordinator");
  AddOption(command, "--state", flags.run.folder, "",
            "directory of the programs' output and checkpoints");
  command.add_flag("--alone", flags.alone, "no pairs");
  command.add_flag("--busy", flags.busy,
                   "meanwhile each other accelerator trains a copy of the "
                   "workload: what jobs do on a machine that is full");
  const auto seconds = [&](const char* name, double* value, double least,
                           const char* help) {
    AddOption(command, name, *value, "SECONDS", help)
        ->check(CLI::Range(least, 1e6));
  };
  seconds("--warm-up", &flags.run.warm_up_s, 0,
          "of training that is discarded");
  seconds("--measure", &flags.run.measure_s, 0.1,
          "that a cell is measured for");
  seconds("--timeout", &flags.run.timeout_s, 1,
          "from a program's start to its first steps");
  AddOption(command, "--precision", flags.run.precision, "",
            "a cell is measured for up to three times as long until half of "
            "its 95 % confidence interval is this part of it")
      ->check(CLI::Range(1e-6, 1.0));
}

}  // namespace gavel
