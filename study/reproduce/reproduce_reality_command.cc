#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "study/commands.h"
#include "study/profile/live_workloads.h"
#include "study/reproduce/reality_report.h"
#include "study/reproduce/reality_run.h"

namespace gavel::study {
namespace {

struct RealityFlags {
  std::string workloads;
  std::vector<std::string> only;
  std::vector<double> durations = {10, 40};
  double limit_percent = 10;
  bool markdown = false;
  RealityOptions run;
};
// The examples with short steps.
constexpr const char* kShortSteps[] = {"ResNet-18", "LM", "Recommendation",
                                       "GPT"};

absl::Status Run(RealityFlags flags) {
  RealityOptions& options = flags.run;
  if (flags.workloads.empty() && flags.only.empty()) {
    flags.only.assign(std::begin(kShortSteps), std::end(kShortSteps));
  }
  GAVEL_ASSIGN_OR_RETURN(options.workloads,
                         FindWorkloads(flags.workloads, flags.only));
  options.trace.duration_min_s = flags.durations.front();
  options.trace.duration_max_s = flags.durations.back();
  if (options.trace.duration_min_s > options.trace.duration_max_s) {
    return absl::InvalidArgumentError(
        "--durations: the first is the shorter one, e.g. 10 40");
  }
  options.folder = std::filesystem::absolute(options.folder).string();
  const Terminal terminal;
  options.quiet = flags.markdown || !terminal.is_terminal();
  options.show = [](const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
  };
  GAVEL_ASSIGN_OR_RETURN(const Reality reality, RunReality(options));
  std::fputs(
      (flags.markdown ? RenderRealityMarkdown(options, reality)
                      : RenderReality(options, reality, terminal.width()))
          .c_str(),
      stdout);
  if (!flags.markdown) {
    std::printf(
        "Trace, throughputs and overheads are in %s, for `gavel simulate`.\n",
        options.folder.c_str());
  }
  return CheckReality(reality, flags.limit_percent / 100);
}

}  // namespace

void AddRealityCommand(CLI::App& reproduce, int* exit_code) {
  auto [command, flags] = AddCommand<RealityFlags>(
      reproduce, exit_code, "reality",
      "Runs a trace of small jobs live on this machine, and the same in the "
      "simulator with the throughputs and overheads that were measured: how "
      "far are makespan and average JCT apart?",
      Run);
  RealityOptions& options = flags.run;
  options.folder = "gavel-reality";
  command.footer(
      "gavel reproduce reality                      # 20 jobs, three times\n"
      "gavel reproduce reality --jobs 6 --runs 1    # a few minutes\n"
      "gavel reproduce reality --workloads my.toml --cluster cluster.toml");
  AddOption(
      command, "--workloads", flags.workloads, "FILE.toml",
      "programs, as for `gavel profile`; without it examples of this project");
  command.add_option("--only", flags.only, "of these types of workloads")
      ->type_name("TYPE");
  AddOption(command, "--cluster", options.cluster_path, "FILE.toml",
            "accelerators of this machine; without it two slots of its CPU, of "
            "which one is made slower");
  AddOption(
      command, "--throughputs", options.throughputs, "FILE.json",
      "of `gavel profile --busy --output`; without it they are measured first");
  AddOption(command, "--state", options.folder, "", "directory of all files");
  AddOption(command, "--policy", options.policy, "", "of both");
  AddOption(command, "--round", options.round_duration_s, "SECONDS", "of both")
      ->check(CLI::Range(0.5, 1e5));
  AddOption(command, "--jobs", options.trace.jobs, "", "of the trace")
      ->check(CLI::Range(1, 10'000));
  AddOption(
      command, "--durations", flags.durations, "SECONDS",
      "of the shortest and the longest job, alone on its fastest accelerator")
      ->expected(2)
      ->check(CLI::Range(0.1, 1e6));
  AddOption(command, "--runs", options.runs, "", "live runs of the trace")
      ->check(CLI::Range(1, 100));
  AddOption(command, "--seed", options.trace.seed, "", "of the trace");
  AddOption(command, "--measure", options.measure_s, "SECONDS",
            "that each workload is measured for on each type")
      ->check(CLI::Range(0.1, 1e5));
  AddOption(command, "--limit", flags.limit_percent, "PERCENT",
            "difference in the median that is a failure")
      ->check(CLI::Range(0.0, 1e4));
  command.add_flag("--markdown", flags.markdown,
                   "prints a document in place of tables");
}

}  // namespace gavel::study
