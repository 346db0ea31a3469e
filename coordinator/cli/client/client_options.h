// What every command that talks to a coordinator takes.
#ifndef GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_

#include <string>
#include <vector>

#include "coordinator/cli/client/client.h"

namespace CLI {
class App;
}

namespace gavel {

struct Connection {
  std::string coordinator = kDefaultCoordinator;
  KeyFlags keys;
  auto Connect() const { return Client::Connect(coordinator, keys); }
};
struct ClientOptions : Connection {
  bool json = false;
};

// --coordinator (or GAVEL_COORDINATOR), --key, --coordinator-key.
void AddConnectionOptions(CLI::App& command, Connection* connection);
// These, and --json.
void AddClientOptions(CLI::App& command, ClientOptions* options);
// The jobs that a command is for.
void AddJobNames(CLI::App& command, std::vector<std::string>* jobs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
