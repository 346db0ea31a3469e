#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"
#include "study/commands.h"
#include "study/what_if/what_if.h"

namespace gavel::study {
namespace {

struct WhatIfOptions : ClientOptions {
  std::string job;
  double wall_limit_s = 20;
};

absl::Status Run(const WhatIfOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto files, ReadJobFiles({options.job}));
  GAVEL_ASSIGN_OR_RETURN(const JobSpec spec,
                         ParseJobSpec(files.front().text, options.job));
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const LiveState live, QueryLiveState(*client));
  absl::StatusOr<WhatIf> answer = Predict(live, spec, options.wall_limit_s);
  GAVEL_RETURN_IF_ERROR(Annotate(answer.status(), options.job));
  const std::string text = options.json ? WhatIfJson(*answer).dump(2) + "\n"
                                        : RenderWhatIf(*answer, WallClockNow());
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddWhatIfCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<WhatIfOptions>(
      app, exit_code, "what-if",
      "Predicts when a job would start and finish, and what it does to the "
      "others; submits nothing",
      Run);
  AddClientOptions(command, &options);
  AddOption(command, "job", options.job, "JOB.toml", "as for `gavel submit`")
      ->required();
  AddOption(command, "--time-limit", options.wall_limit_s, "SECONDS",
            "for the simulation, on this machine")
      ->check(CLI::Range(0.1, 3600.0));
}

}  // namespace gavel::study
