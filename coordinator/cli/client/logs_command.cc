#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/rows.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kFollowInterval_s = 0.3;

struct LogsOptions {
  std::string coordinator = kDefaultCoordinator;
  KeyFlags keys;
  std::string job;
  int rank = 0;
  bool follow = false;
  bool json = false;
};

// As it is, or as a line of JSON: {"offset": bytes before it, "data": text}.
void Print(const LogReply& reply, uint64_t offset, bool json) {
  if (!json) {
    std::fwrite(reply.data.data(), 1, reply.data.size(), stdout);
  } else if (!reply.data.empty()) {
    const Json line = {{"offset", offset}, {"data", reply.data}};
    // A program may write bytes that are no text.
    std::puts(
        line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }
  std::fflush(stdout);
}

absl::StatusOr<bool> HasEnded(Client& client, JobId job) {
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(QueryKind::kQueue, job));
  const std::vector<QueueRow> rows = ParseQueue(json);
  return rows.empty() || rows.front().Ended();
}

absl::Status Run(const LogsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(options.job));
  const WorkerId worker{job, options.rank};
  uint64_t offset = 0;
  while (true) {
    // Asked before the log, so that what was written until then is read.
    bool ended = true;
    if (options.follow) {
      GAVEL_ASSIGN_OR_RETURN(ended, HasEnded(*client, job));
    }
    GAVEL_ASSIGN_OR_RETURN(const LogReply reply, client->Log(worker, offset));
    if (!reply.error.empty() && ended) {
      return absl::FailedPreconditionError(reply.error);
    }
    Print(reply, offset, options.json);
    offset = reply.next_offset > offset ? reply.next_offset : offset;
    if (!reply.data.empty()) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (ended) return absl::OkStatus();
    client->Sleep(kFollowInterval_s);
  }
}

}  // namespace

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command =
      app.add_subcommand("logs", "Shows the output of a job's worker");
  command->add_option("--coordinator", options->coordinator, "its address")
      ->envname("GAVEL_COORDINATOR")
      ->capture_default_str();
  AddKeyFlags(*command, &options->keys);
  command->add_option("job", options->job, "id or name")
      ->type_name("JOB")
      ->required();
  command->add_option("--rank", options->rank, "which worker of a gang")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("-f,--follow", options->follow,
                    "goes on until the job has ended");
  command->add_flag("--json", options->json, "lines of JSON");
  command->callback(
      [options, exit_code] { *exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace gavel
