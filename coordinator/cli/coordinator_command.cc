#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/stop_signals.h"
#include "coordinator/server/coordinator_server.h"
#include "core/status.h"

namespace gavel {
namespace {

struct CoordinatorOptions {
  std::string listen = "tcp://127.0.0.1:7077";
  std::string state = kDefaultState;
  std::optional<std::string> cluster;
  SchedulingFlags scheduling;
};

absl::Status Run(const CoordinatorOptions& options) {
  ClusterSpec cluster;
  if (options.cluster) {
    GAVEL_ASSIGN_OR_RETURN(cluster, ReadClusterFile(*options.cluster));
  }
  GAVEL_ASSIGN_OR_RETURN(
      const Scheduling scheduling,
      MergeScheduling(cluster.scheduling, options.scheduling));
  CoordinatorServerOptions server_options;
  server_options.endpoint = options.listen;
  server_options.state_directory = options.state;
  server_options.engine = scheduling.engine;
  server_options.policy = scheduling.policy;
  server_options.prices = scheduling.prices;
  server_options.log = MakeStderrLog();
  server_options.announce = stdout;

  // First, so that the server's threads do not take the signals.
  StopSignals signals;
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorServer> server,
                         CoordinatorServer::Create(std::move(server_options)));
  signals.Attach([&server] { server->Stop(); });
  const absl::Status ended = server->Run();
  signals.Attach(nullptr);
  return ended;
}

}  // namespace

void AddCoordinatorCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<CoordinatorOptions>();
  CLI::App* command = app.add_subcommand(
      "coordinator", "Runs the coordinator; agents and clients connect to it");
  command
      ->add_option("--listen", options->listen,
                   "loopback address; port 0 for a free one")
      ->capture_default_str();
  command
      ->add_option("--state", options->state,
                   "directory of the journal and of checkpoints")
      ->capture_default_str();
  command->add_option("--cluster", options->cluster,
                      "takes the policy and durations of this cluster file");
  AddSchedulingFlags(*command, &options->scheduling);
  command->callback(
      [options, exit_code] { *exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace gavel
