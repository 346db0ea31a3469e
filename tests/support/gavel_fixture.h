// A folder with cluster and job files, and the `gavel` command to run on them.
#ifndef GAVEL_TESTS_SUPPORT_GAVEL_FIXTURE_H_
#define GAVEL_TESTS_SUPPORT_GAVEL_FIXTURE_H_

#include "nlohmann/json.hpp"
#include "tests/support/process.h"
#include "tests/support/team_keys.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {

struct Ended {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

class GavelTest : public Test {
 protected:
  const std::string& folder() const { return folder_.path(); }
  std::string state() const { return folder() + "/state"; }
  std::string Path(const std::string& name) const {
    return folder() + "/" + name;
  }
  std::string Write(const std::string& name, const std::string& text);

  // Makes this a team's cluster with these servers: from here on, job files lie
  // where the jobs' user can write, and client commands use a user's key. For
  // the coordinator and the agents see keys().
  void UseKeys(const std::vector<std::string>& servers);
  bool has_keys() const { return keys_ != nullptr; }
  const TeamKeys& keys() const { return *keys_; }
  // The path of a job file, or of a file that a job writes.
  std::string JobPath(const std::string& name) const {
    return (keys_ ? keys_->jobs() : folder()) + "/" + name;
  }

  // Writes a cluster file of one server "here" with `slots` equal CPU slots.
  std::string WriteCluster(int slots, double round_duration_s,
                           double lease_duration_s);
  // The path of the fake worker's program, where jobs can run it.
  std::string FakeWorker() const;
  // Writes a job file of the fake worker with these arguments.
  std::string WriteJob(const std::string& name,
                       const std::vector<std::string>& arguments,
                       const std::string& more_keys = "");
  // Writes a job file with this command.
  std::string WriteCommand(const std::string& name,
                           const std::vector<std::string>& command,
                           const std::string& more_keys = "");

  std::unique_ptr<Process> Start(const std::vector<std::string>& arguments);
  Ended Run(const std::vector<std::string>& arguments);

  // Start and run `gavel local` with folder()/cluster.toml and --state.
  std::unique_ptr<Process> StartLocal(const std::vector<std::string>& jobs,
                                      std::vector<std::string> options = {});
  Ended RunLocal(const std::vector<std::string>& jobs,
                 std::vector<std::string> options = {});
  nlohmann::json Summary() const;

  // Starts the agent of server "here" with folder()/cluster.toml and --state,
  // and with its keys if there are any.
  std::unique_ptr<Process> StartAgent(const std::string& endpoint,
                                      const std::vector<std::string>& options);

  // The endpoint of a `gavel local` or `gavel coordinator`; empty when it
  // prints none.
  static std::string EndpointOf(const Process& process);
  // The job's row of the queue; null when there is none.
  nlohmann::json QueueRow(const std::string& endpoint, const std::string& name);
  // Waits until the job has done that many steps.
  bool ReachesStep(const std::string& endpoint, const std::string& name,
                   uint64_t step);
  bool ReachesState(const std::string& endpoint, const std::string& name,
                    const std::string& letters);

  // Waits until an agent's accelerators are there and no job has them.
  bool HasIdleAccelerators(const std::string& endpoint);

  // The processes that the agent of server "here" has recorded.
  std::vector<pid_t> WorkerPids() const;
  // The output of a worker whose agent has its state in state(), or elsewhere;
  // empty when there is none yet.
  std::string LogOf(int job, int rank = 0) const;
  static std::string LogUnder(const std::string& agent_state, int job,
                              int rank = 0);
  // The last checkpoint of a job of the fake worker.
  struct FakeState {
    uint64_t steps = 0;
    uint64_t sum = 0;
  };
  FakeState CheckpointOf(const std::string& name) const;
  void ExpectEachStepOnce(const std::string& name, uint64_t steps) const;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<TeamKeys> keys_;
  int processes_ = 0;
};

// The same with a coordinator, which has the same endpoint when it is started
// again.
class GavelClusterTest : public GavelTest {
 protected:
  // Starts the coordinator with folder()/cluster.toml and --state, and with its
  // keys if there are any.
  void StartCoordinator(const std::vector<std::string>& flags = {});
  std::vector<std::string> CoordinatorArguments(
      const std::string& state_directory) const;
  void KillCoordinator();
  std::unique_ptr<Process> StartAgent(const std::vector<std::string>& flags = {
                                          "--jobs-as-root"}) {
    return GavelTest::StartAgent(endpoint_, flags);
  }
  // Runs a client's command.
  Ended Do(std::vector<std::string> arguments);
  nlohmann::json Json(std::vector<std::string> arguments);
  void Submit(const std::string& job);
  // Starts a coordinator with the policy fifo, and agent_ with that many slots.
  // Waits until they are idle.
  void StartCluster(int slots);

  std::string listen_ = "tcp://127.0.0.1:0";
  std::string endpoint_;
  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<Process> agent_;
};

void Append(const std::vector<std::string>& more,
            std::vector<std::string>* arguments);

// How often `part` is in `text`.
int Count(const std::string& text, const std::string& part);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_GAVEL_FIXTURE_H_
