#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "study/what_if/policy_preview.h"

namespace gavel {
namespace {

struct PolicyOptions : ClientOptions {
  std::string name;
  bool preview = false;
};

absl::Status Set(const PolicyOptions& options, Client& client) {
  CommandRequest command;
  command.kind = CommandKind::kPolicy;
  command.target = options.name;
  GAVEL_RETURN_IF_ERROR(client.Command(std::move(command)));
  if (options.json) {
    std::printf("%s\n", Json({{"policy", options.name}}).dump(2).c_str());
  } else {
    std::printf("Policy %s decides from now on\n", options.name.c_str());
  }
  return absl::OkStatus();
}

absl::Status ShowPreview(const PolicyOptions& options, Client& client,
                         LiveState live) {
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, client.Query(QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(const Json jobs, client.Query(QueryKind::kForecast));
  live.nodes = ParseNodes(nodes);
  live.jobs = ParseForecast(jobs);
  GAVEL_ASSIGN_OR_RETURN(const PolicyPreview preview,
                         Preview(live, options.name));
  const std::string text =
      options.json ? PreviewJson(preview).dump(2) + "\n"
                   : RenderPreview(preview, Terminal().table_width());
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Run(const PolicyOptions& options) {
  if (options.preview && options.name.empty()) {
    return absl::InvalidArgumentError(
        "--preview of which policy? Name it: gavel policy NAME --preview");
  }
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  if (!options.name.empty() && !options.preview) return Set(options, *client);
  LiveState live;
  GAVEL_ASSIGN_OR_RETURN(const Json status, client->Query(QueryKind::kStatus));
  live.status = ParseStatus(status);
  if (options.preview) return ShowPreview(options, *client, std::move(live));
  const std::string policy = live.status.policy;
  const std::string own = live.status.policy_option.value_or(policy);
  if (options.json) {
    const Json json = {{"policy", policy}, {"policy_option", own}};
    std::printf("%s\n", json.dump(2).c_str());
  } else if (own == policy) {
    std::printf("%s\n", policy.c_str());
  } else {
    std::printf("%s, set in place of %s (--policy of the coordinator)\n",
                policy.c_str(), own.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddPolicyCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<PolicyOptions>();
  CLI::App* command = app.add_subcommand(
      "policy",
      "Shows which policy decides, or sets another one; jobs that it keeps go "
      "on");
  AddClientOptions(*command, options.get());
  command->add_option("name", options->name, "the policy to set")
      ->type_name("POLICY");
  command->add_flag("--preview", options->preview,
                    "sets nothing: says who would gain and lose which share");
  command->callback(
      [options, exit_code] { *exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace gavel
