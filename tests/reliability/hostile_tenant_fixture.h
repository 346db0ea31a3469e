// Alice's job trains, and mallory, who has a key of her own, does what she
// likes: nobody else loses a lease or waits for an answer, and what she makes
// the daemons take of memory and disk is bounded (docs/security.md).
#ifndef GAVEL_TESTS_RELIABILITY_HOSTILE_TENANT_FIXTURE_H_
#define GAVEL_TESTS_RELIABILITY_HOSTILE_TENANT_FIXTURE_H_

#include <atomic>
#include <thread>

#include "tests/reliability/cluster_fixture.h"
#include "tests/reliability/tenant.h"

namespace gavel::testing {

// Asks for the status again and again, on a thread, until it goes.
class StatusProbe {
 public:
  StatusProbe(const std::string& endpoint, const CurveClient& keys);
  ~StatusProbe() { Stop(); }
  StatusProbe(const StatusProbe&) = delete;
  StatusProbe& operator=(const StatusProbe&) = delete;

  void Stop();
  // That one of them waited.
  double longest_s() const { return longest_s_; }
  int answers() const { return answers_; }

 private:
  void Ask(const std::string& endpoint, const CurveClient& keys);

  std::atomic<bool> stopping_{false};
  std::atomic<double> longest_s_{0};
  std::atomic<int> answers_{0};
  std::thread thread_;
};

class HostileTenantTest : public ClusterTest {
 protected:
  static constexpr char kMallory[] = "mallory";
  static constexpr uint64_t kMost = ~uint64_t{0};

  void SetUp() override;
  // Coordinator, the agent of "here" with three slots, and alice's job on one
  // of them, in a round that does not end.
  void StartCluster(const std::vector<std::string>& coordinator_flags = {},
                    const std::vector<std::string>& agent_flags = {});
  // At the end of an attack.
  void ExpectOthersUnharmed();

  CurveClient MallorysKeys() const {
    return keys().Keys(keys().KeyFile(kMallory));
  }
  Tenant Mallory() const { return {endpoint(), MallorysKeys()}; }
  // As hers, on the command line.
  Ended RunAsMallory(std::vector<std::string> arguments);
  // The answer to a job file of hers, whose paths are relative to her own
  // directory.
  SubmitReply Submit(Tenant& mallory, const std::string& toml) const;
  // A job of hers with this command; invalid: it was refused.
  JobId SubmitCommand(const std::string& name,
                      const std::vector<std::string>& command,
                      const std::string& more_keys = "");
  void CancelAll(const std::vector<JobId>& jobs);

  std::string agent_state() const { return Path("agent-here"); }
  uint64_t VictimsSteps() const;
  static uint64_t BytesUnder(const std::string& folder);

 private:
  Process* agent_ = nullptr;
  std::unique_ptr<StatusProbe> probe_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_HOSTILE_TENANT_FIXTURE_H_
