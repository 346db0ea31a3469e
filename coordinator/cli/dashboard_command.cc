// The command `dashboard`: a link to the coordinator's pages.
#include <cstdio>
#include <string>

#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

absl::Status ShowLink(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(Json link, client->Query(QueryKind::kDashboard));
  // Browsers send what follows "#" to nobody.
  const std::string url =
      StrCat(link.value("url", ""), "#token=", link.value("token", ""));
  if (options.json) {
    link["url"] = url;
    std::printf("%s\n", link.dump(2).c_str());
    return absl::OkStatus();
  }
  std::printf("%s\n", url.c_str());
  PrintNotices({StrCat("for ", link.value("valid_s", 0.0) / 3600,
                       " hours this link has your rights; give it to nobody")});
  return absl::OkStatus();
}

}  // namespace

void AddDashboardCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<ClientOptions>(
      app, exit_code, "dashboard",
      "Prints a link to the dashboard of a coordinator with --http; by it a "
      "browser acts with your rights for twelve hours",
      ShowLink);
  AddClientOptions(command, &options);
}

}  // namespace gavel
