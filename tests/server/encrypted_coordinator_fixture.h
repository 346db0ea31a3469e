// A coordinator with keys, over real sockets, and principals of each role.
#ifndef GAVEL_TESTS_SERVER_ENCRYPTED_COORDINATOR_FIXTURE_H_
#define GAVEL_TESTS_SERVER_ENCRYPTED_COORDINATOR_FIXTURE_H_

#include <filesystem>

#include "coordinator/server/principals.h"
#include "tests/server/fake_peers.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {

class EncryptedCoordinator : public Test {
 protected:
  void SetUp() override {
    Allow("alice", Role::kUser);
    Allow("bob", Role::kUser);
    Allow("olga", Role::kOperator);
    Allow("vera", Role::kViewer);
    Allow("here", Role::kNode);
    Allow("there", Role::kNode);
    Start();
  }
  void Start() {
    CoordinatorServerOptions options = QuietOptions(StatePath());
    options.endpoint = "tcp://0.0.0.0:0";
    options.keys = own_;
    options.principals_path = Path();
    options.quota.jobs_max = 3;
    options.quota.requests_per_s_max = requests_per_s_max_;
    options.dashboard = dashboard_;
    coordinator_ = std::make_unique<RunningCoordinator>(options);
    ASSERT_OK(coordinator_->created());
  }

  std::string StatePath() const { return folder_.path() + "/state"; }
  static void Copy(const std::string& from, const std::string& to) {
    std::filesystem::remove_all(to);
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(to, std::filesystem::perms::owner_all);
  }
  std::string Path() const { return folder_.path() + "/principals.toml"; }
  void Allow(const std::string& name, Role role) {
    keys_[name] = NewCurveKeyPair().value();
    const bool runs = role == Role::kUser || role == Role::kOperator;
    principals_[name] = {role, runs ? name : "", keys_[name].public_key};
    ASSERT_OK(WritePrincipals(Path(), principals_));
  }
  void Revoke(const std::string& name) {
    principals_.erase(name);
    ASSERT_OK(WritePrincipals(Path(), principals_));
  }
  CurveClient As(const CurveKeyPair& keys) const {
    return {keys, own_.public_key};
  }
  CurveClient As(const std::string& name) const { return As(keys_.at(name)); }
  std::string Endpoint() const {
    const std::string& bound = coordinator_->endpoint();
    return "127.0.0.1" + bound.substr(bound.rfind(':'));
  }
  FakeClient Client(const std::string& name) const {
    return FakeClient(Endpoint(), As(name));
  }
  // The worker of a job that alice submits, launched by `agent` of server
  // "here" and vouched for.
  struct Launched {
    LaunchWorker launch;
    CurveKeyPair keys = NewCurveKeyPair().value();
    std::unique_ptr<FakeWorker> worker;
  };
  Launched LaunchOne(FakePeer& agent) const {
    Launched launched;
    EXPECT_EQ(Client("alice").SubmitNamed("a").error, "");
    const auto launch = agent.Receive<LaunchWorker>();
    EXPECT_TRUE(launch.has_value());
    if (!launch) return launched;
    launched.launch = *launch;
    agent.Send(
        WorkerLaunched{"here", launch->worker, 5, launched.keys.public_key});
    launched.worker = std::make_unique<FakeWorker>(Endpoint(), launch->worker,
                                                   As(launched.keys));
    EXPECT_TRUE(launched.worker->Hello());
    return launched;
  }
  // Started again with the journal that was copied to "before", the coordinator
  // ends when an agent shows a position of after it.
  void ExpectHaltAfterSetBack(JournalPosition seen, const std::string& error) {
    EXPECT_OK(coordinator_->Stop());
    Copy(folder_.path() + "/before", StatePath());
    Start();
    FakePeer agent(Endpoint(), As("here"));
    agent.Send(AgentHeartbeat{"here", 1, seen});
    EXPECT_THAT(coordinator_->Wait(), StatusIs(kAborted, error));
  }
  // Ends the coordinator: then all of it is on disk.
  std::string Audit() {
    coordinator_.reset();
    return AuditSoFar();
  }
  // It is written by a thread; waits until it says so.
  bool IsAudited(const std::string& text) const {
    return Eventually(
        [&] { return AuditSoFar().find(text) != std::string::npos; });
  }
  std::string AuditSoFar() const {
    return ReadText(folder_.path() + "/state/audit.log");
  }

  // As in CoordinatorServerOptions.
  std::function<absl::StatusOr<std::string>(const Requester&)> dashboard_;
  int requests_per_s_max_ = QuotaOptions().requests_per_s_max;
  TemporaryFolder folder_;
  const CurveKeyPair own_ = NewCurveKeyPair().value();
  std::map<std::string, CurveKeyPair> keys_;
  Principals principals_;
  std::unique_ptr<RunningCoordinator> coordinator_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SERVER_ENCRYPTED_COORDINATOR_FIXTURE_H_
