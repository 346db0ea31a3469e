#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon/stop_flag.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "study/commands.h"
#include "study/profile/live_workloads.h"
#include "study/reproduce/preemption_report.h"
#include "study/reproduce/preemption_run.h"

namespace gavel::study {
namespace {

struct PreemptionFlags {
  std::string workloads;
  std::vector<std::string> only;
  std::string cluster;  // file; empty: a slot of the CPU
  std::string page;
  bool markdown = false;
  PreemptionOptions run;
};

absl::StatusOr<AcceleratorInfo> FindAccelerator(const PreemptionFlags& flags) {
  std::vector<AcceleratorInfo> all;
  if (!flags.cluster.empty()) {
    GAVEL_ASSIGN_OR_RETURN(const ClusterSpec cluster,
                           ReadClusterFile(flags.cluster));
    for (const ServerSpec& server : cluster.servers) {
      all.insert(all.end(), server.accelerators.begin(),
                 server.accelerators.end());
    }
    if (all.empty()) {
      return absl::InvalidArgumentError(
          StrCat(flags.cluster,
                 ": there is no accelerator; declare one with "
                 "[[server]] and its [[server.accelerator]]"));
    }
  } else {
    AcceleratorInfo& slot = all.emplace_back();
    slot.type = "cpu";
    slot.uuid = "preemption-cpu-0";
  }
  GAVEL_RETURN_IF_ERROR(FillFromGpus(&all));
  return all.front();
}

absl::Status Run(PreemptionFlags flags) {
  PreemptionOptions& options = flags.run;
  GAVEL_ASSIGN_OR_RETURN(options.workloads,
                         FindWorkloads(flags.workloads, flags.only));
  GAVEL_ASSIGN_OR_RETURN(options.accelerator, FindAccelerator(flags));
  if (!flags.page.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(flags.page));
  }
  options.folder = std::filesystem::absolute(options.folder).string();
  const StopFlag stop;
  options.stop = stop.get();
  options.show = [](size_t done, size_t all, const std::string& what) {
    std::fprintf(stderr, "%zu of %zu: %s\n", done + 1, all, what.c_str());
  };
  PreemptionRounds rounds;
  const absl::Status status = RunPreemption(options, &rounds);
  // Shows what was measured, even if the rest failed.
  if (rounds.empty()) return status;
  const std::string text =
      flags.markdown ? RenderPreemptionMarkdown(options, rounds)
                     : RenderPreemption(options, rounds, Terminal().width());
  std::fputs(text.c_str(), stdout);
  if (flags.page.empty()) return status;
  const absl::Status written =
      WriteFile(flags.page, RenderPage(PreemptionPage(options, rounds)));
  return status.ok() ? written : status;
}

}  // namespace

void AddPreemptionCommand(CLI::App& reproduce, int* exit_code) {
  auto [command, flags] = AddCommand<PreemptionFlags>(
      reproduce, exit_code, "preemption",
      "What the end of a round costs real training programs on this machine: "
      "with the lease extended, paused and resumed, and ended and started "
      "again as the original Gavel's",
      Run);
  PreemptionOptions& options = flags.run;
  options.folder = "gavel-preemption";
  command.footer(
      "gavel reproduce preemption                  # eight examples: minutes\n"
      "gavel reproduce preemption --only LM --rounds 3\n"
      "gavel reproduce preemption --html preemption.html   # the time line");
  AddOption(command, "--workloads", flags.workloads, "FILE.toml",
            "programs, as for `gavel profile`; without it the examples "
            "of this project");
  command.add_option("--only", flags.only, "of these types of workloads")
      ->type_name("TYPE");
  AddOption(command, "--cluster", flags.cluster, "FILE.toml",
            "its first accelerator is used; without it a slot of the CPU, of "
            "one thread");
  AddOption(command, "--state", options.folder, "", "directory of all files");
  AddOption(command, "--rounds", options.rounds, "", "of each workload and way")
      ->check(CLI::Range(1, 10'000));
  AddOption(command, "--round", options.round_s, "SECONDS", "that a lease runs")
      ->check(CLI::Range(0.1, 1e5));
  AddOption(command, "--timeout", options.timeout_s, "SECONDS",
            "for a program's next step, or its end")
      ->check(CLI::Range(1.0, 1e5));
  command.add_flag("--markdown", flags.markdown,
                   "prints a document in place of tables");
  AddOption(command, "--html", flags.page, "FILE",
            "writes a page with the table and the time line");
}

}  // namespace gavel::study
