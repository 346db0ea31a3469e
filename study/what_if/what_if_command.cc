#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/files.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"
#include "study/what_if/what_if.h"

namespace gavel {
namespace {

struct WhatIfOptions : ClientOptions {
  std::string job;
  double wall_limit_s = 20;
};

absl::Status Run(const WhatIfOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<JobFile> files,
                         ReadJobFiles({options.job}));
  GAVEL_ASSIGN_OR_RETURN(const JobSpec spec,
                         ParseJobSpec(files.front().text, options.job));
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  GAVEL_ASSIGN_OR_RETURN(const Json status, client->Query(QueryKind::kStatus));
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, client->Query(QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(const Json jobs, client->Query(QueryKind::kForecast));
  const LiveState live{ParseStatus(status), ParseNodes(nodes),
                       ParseForecast(jobs)};
  absl::StatusOr<WhatIf> answer = Predict(live, spec, options.wall_limit_s);
  GAVEL_RETURN_IF_ERROR(Annotate(answer.status(), options.job));
  const std::string text = options.json ? WhatIfJson(*answer).dump(2) + "\n"
                                        : RenderWhatIf(*answer, WallClockNow());
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddWhatIfCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<WhatIfOptions>();
  CLI::App* command = app.add_subcommand(
      "what-if",
      "Predicts when a job would start and finish, and what it does to the "
      "others; submits nothing");
  AddClientOptions(*command, options.get());
  command->add_option("job", options->job, "as for `gavel submit`")
      ->required()
      ->type_name("JOB.toml");
  command
      ->add_option("--time-limit", options->wall_limit_s,
                   "for the simulation, on this machine")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->callback(
      [options, exit_code] { *exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace gavel
