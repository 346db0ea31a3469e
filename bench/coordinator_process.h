// A real `gavel coordinator` in a process of its own, its jobs, and single
// questions to it. Used by the programs of this folder that measure that
// process. Not thread-safe.
#ifndef GAVEL_BENCH_COORDINATOR_PROCESS_H_
#define GAVEL_BENCH_COORDINATOR_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/messages.h"
#include "nlohmann/json.hpp"
#include "runtime/transport/dealer_router.h"
#include "tests/support/process.h"

namespace gavel::bench {

inline constexpr double kPatience_s = 240;

// Has a state of its own in `folder`, and can be started, killed and started
// again at the same endpoint.
class CoordinatorProcess {
 public:
  // `scheduling`: the lines of that table of its cluster file. `arguments` are
  // added to its command line.
  CoordinatorProcess(const std::string& folder, const std::string& scheduling,
                     std::vector<std::string> arguments);
  // Returns the seconds until it listens.
  double Start();
  void Kill();
  pid_t pid() const { return process_->pid(); }
  const std::string& endpoint() const { return endpoint_; }
  // The end of its log.
  std::string errors() const;

 private:
  const std::string folder_;
  const std::vector<std::string> arguments_;
  std::string endpoint_ = "tcp://127.0.0.1:0";
  int starts_ = 0;
  std::optional<testing::Process> process_;
};

// A connection that has been accepted; ends the program without one.
std::unique_ptr<Dealer> ConnectClient(const std::string& endpoint,
                                      const DealerOptions& options = {});

// Submits as many jobs, whose files `toml` writes by their numbers from 0.
void SubmitJobs(Dealer& client, int jobs,
                const std::function<std::string(int)>& toml);

// The first page of the answer; ends the program where there is none.
nlohmann::json Query(Dealer& client, QueryKind kind);

// Waits until the coordinator has carried out the command; ends the program
// where it refuses.
void Command(Dealer& client, const CommandRequest& command);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_COORDINATOR_PROCESS_H_
