// What every command that talks to a coordinator takes.
#ifndef GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/cli/client/client.h"
#include "core/text.h"

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
// Sends the command for each of them, and prints "DONE job 3", or JSON.
absl::Status CommandJobs(const ClientOptions& options,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done);

// Calls `each` for every one, also behind one that fails, but without a
// coordinator for none. The first error, with the messages of the others as
// lines of their own.
template <class T, class Each>
absl::Status ForEach(const std::vector<T>& all, const Each& each) {
  absl::Status failed;
  for (const T& one : all) {
    const absl::Status status = each(one);
    if (status.ok()) continue;
    failed = failed.ok() ? status
                         : absl::Status(failed.code(),
                                        StrCat(failed.message(),
                                               "\ngavel: ", status.message()));
    if (absl::IsUnavailable(status)) break;
  }
  return failed;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_OPTIONS_H_
