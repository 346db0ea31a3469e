// Runs a coordinator, agents and jobs as real processes with keys, with one or
// more servers on this machine and a network that can be made bad.
#ifndef GAVEL_TESTS_RELIABILITY_CLUSTER_FIXTURE_H_
#define GAVEL_TESTS_RELIABILITY_CLUSTER_FIXTURE_H_

#include "tests/reliability/chaos_proxy.h"
#include "tests/reliability/tenant.h"
#include "tests/reliability/worker_log.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {

class ClusterTest : public GavelTest {
 protected:
  void SetUp() override;
  // The servers have one slot each: here, left, right, near, far.
  void WriteServers(const std::vector<std::string>& servers,
                    double round_duration_s, double lease_duration_s);
  void StartCoordinator(const std::vector<std::string>& flags = {});
  int port() const;  // of the coordinator
  // The arguments of `gavel` that start the agent of that server.
  std::vector<std::string> AgentArguments(const std::string& server,
                                          const std::string& endpoint) const;
  // The agent connects to `endpoint`, or to the coordinator's own if it is
  // empty.
  Process& StartAgent(const std::string& server,
                      const std::string& endpoint = "",
                      const std::vector<std::string>& flags = {});
  // Submits a job of fake_worker, which logs its actions.
  void Submit(const std::string& name, std::vector<std::string> arguments);
  std::string WorkerLog(const std::string& name) const {
    return ReadText(JobPath(name + ".log"));
  }
  // Waits until the job's log holds `text` for the `times`-th time.
  bool Logs(const std::string& name, const std::string& text, int times = 1,
            double timeout_s = kPatience_s);
  // The process that wrote the job's last line with `word`.
  pid_t LastPid(const std::string& name, const std::string& word) const;
  // The key file that the agent of `server` made for a worker; it is deleted
  // when the process ends.
  std::string WorkersKeyFile(const std::string& server,
                             const WorkerKey& worker) const;
  // Speaks for a running worker, once it runs, with the worker's key; the test
  // chooses the messages.
  std::unique_ptr<WorkerVoice> VoiceOf(const std::string& server,
                                       const WorkerKey& worker) const;
  // Checks the logs of all submitted jobs.
  void ExpectNothingLostOrShared() const;
  Process& coordinator() { return *coordinator_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::unique_ptr<Process> coordinator_;
  std::string endpoint_ = "tcp://127.0.0.1:0";
  std::map<std::string, std::unique_ptr<Process>> agents_;
  std::vector<std::string> jobs_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_CLUSTER_FIXTURE_H_
