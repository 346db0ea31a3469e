// What every command that talks to a coordinator takes.
#ifndef GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_

#include <string>

#include "coordinator/cli/client/client.h"

namespace CLI {
class App;
}

namespace gavel {

struct ClientOptions {
  std::string coordinator = kDefaultCoordinator;
  KeyFlags keys;
  bool json = false;
};

// --coordinator (or GAVEL_COORDINATOR), --key, --coordinator-key, --json.
void AddClientOptions(CLI::App& command, ClientOptions* options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
