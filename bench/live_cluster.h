// Real processes of a coordinator and of agents with CPU slots, in a folder of
// their own, and the commands of a user. Not thread-safe.
#ifndef GAVEL_BENCH_LIVE_CLUSTER_H_
#define GAVEL_BENCH_LIVE_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/program.h"
#include "nlohmann/json.hpp"
#include "tests/support/process.h"

namespace gavel::bench {

struct LiveClusterOptions {
  int servers = 1;
  int slots = 4;  // of each server
  std::string policy = "fifo";
  double round_s = 5;
};

class LiveCluster {
 public:
  // Returns once all agents have joined.
  explicit LiveCluster(const LiveClusterOptions& options);

  // The folder of this program, of `gavel` and of the examples.
  const std::string& bin() const { return bin_; }
  // Writes a job file and returns its path. `throughput` is in steps per
  // second.
  std::string WriteJob(const std::string& name,
                       const std::vector<std::string>& command,
                       uint64_t steps_total, double throughput) const;

  // Runs `gavel` with these arguments, then "--coordinator", then `program`.
  // Returns its exit code, or nothing after a minute.
  std::optional<int> Run(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& program = {});
  // The errors of the last command.
  const std::string& errors() const { return errors_; }
  // The JSON that it prints; nothing if it failed.
  std::optional<nlohmann::json> RunForJson(
      const std::vector<std::string>& arguments);
  // The same. A failure ends the program.
  nlohmann::json MustRun(const std::vector<std::string>& arguments);

 private:
  std::string Path(const std::string& name) const;
  // The address in the coordinator's first line; empty before that.
  std::string Endpoint() const;

  const Folder folder_;
  const std::string bin_;
  std::string endpoint_;
  std::string output_;
  std::string errors_;
  int commands_ = 0;
  std::optional<testing::Process> coordinator_;
  std::vector<std::unique_ptr<testing::Process>> agents_;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_LIVE_CLUSTER_H_
