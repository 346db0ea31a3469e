#include <cstdio>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "study/commands.h"
#include "study/what_if/policy_preview.h"

namespace gavel::study {
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

absl::Status ShowPreview(const PolicyOptions& options, Client& client) {
  GAVEL_ASSIGN_OR_RETURN(const LiveState live, QueryLiveState(client));
  GAVEL_ASSIGN_OR_RETURN(const auto preview, Preview(live, options.name));
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
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  if (options.preview) return ShowPreview(options, *client);
  if (!options.name.empty()) return Set(options, *client);
  GAVEL_ASSIGN_OR_RETURN(const Json json, client->Query(QueryKind::kStatus));
  const StatusRow status = ParseStatus(json);
  const std::string policy = status.policy;
  const std::string own = status.policy_option.value_or(policy);
  if (options.json) {
    const Json shown = {{"policy", policy}, {"policy_option", own}};
    std::printf("%s\n", shown.dump(2).c_str());
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
  auto [command, options] = AddCommand<PolicyOptions>(
      app, exit_code, "policy",
      "Shows which policy decides, or sets another one; jobs that it keeps go "
      "on",
      Run);
  AddClientOptions(command, &options);
  AddOption(command, "name", options.name, "POLICY", "the policy to set");
  command.add_flag("--preview", options.preview,
                   "sets nothing: says who would gain and lose which share");
}

}  // namespace gavel::study
