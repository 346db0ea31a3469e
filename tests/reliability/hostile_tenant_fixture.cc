#include "tests/reliability/hostile_tenant_fixture.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/text.h"
#include "tests/support/eventually.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kRound_s = 600;
constexpr double kLease_s = 2;
constexpr std::chrono::milliseconds kProbeInterval(10);

// The limits that docs/security.md promises under these attacks, on a cluster
// that has nothing else to do.
constexpr double kStatus_s_max = 1;
constexpr uint64_t kCoordinatorBytesMax = uint64_t{256} << 20;
constexpr uint64_t kAgentBytesMax = uint64_t{128} << 20;
constexpr uint64_t kStateBytesMax = uint64_t{64} << 20;

// The peak resident memory of the process.
uint64_t PeakBytes(pid_t pid) {
  constexpr char kField[] = "VmHWM:";
  std::ifstream status(StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kField)) continue;
    uint64_t kilobytes = 0;
    std::istringstream(line.substr(sizeof kField)) >> kilobytes;
    return kilobytes << 10;
  }
  return 0;
}

}  // namespace

StatusProbe::StatusProbe(const std::string& endpoint, const CurveClient& keys)
    : thread_([this, endpoint, keys] { Ask(endpoint, keys); }) {}

void StatusProbe::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void StatusProbe::Ask(const std::string& endpoint, const CurveClient& keys) {
  Tenant alice(endpoint, keys);
  while (!stopping_) {
    const double asked = Seconds();
    QueryRequest request;
    request.kind = QueryKind::kStatus;
    const auto reply = alice.Ask<QueryReply>(request);
    longest_s_ = std::max<double>(longest_s_, Seconds() - asked);
    if (reply.error.empty()) ++answers_;
    std::this_thread::sleep_for(kProbeInterval);
  }
}

void HostileTenantTest::SetUp() {
  UseKeys({"here"});
  keys().AddUser(kMallory);
}

void HostileTenantTest::StartCluster(
    const std::vector<std::string>& coordinator_flags,
    const std::vector<std::string>& agent_flags) {
  WriteCluster(/*slots=*/3, kRound_s, kLease_s);
  StartCoordinator(coordinator_flags);
  agent_ = &StartAgent("here", "", agent_flags);
  ClusterTest::Submit("victim", {"--steps", "1000000", "--step-ms", "20",
                                 "--checkpoint-every", "20"});
  ASSERT_TRUE(Logs("victim", " commit ")) << agent_->errors();
  probe_ = std::make_unique<StatusProbe>(endpoint(),
                                         keys().Keys(keys().KeyFile("alice")));
}

uint64_t HostileTenantTest::VictimsSteps() const {
  return CheckpointOf("victim").steps;
}

void HostileTenantTest::ExpectOthersUnharmed() {
  const uint64_t steps = VictimsSteps();
  EXPECT_TRUE(Eventually([&] { return VictimsSteps() > steps; }))
      << coordinator().errors();
  const std::string log = WorkerLog("victim");
  EXPECT_EQ(Count(log, " take "), 1) << log;
  EXPECT_EQ(Count(log, " give "), 0) << log;
  probe_->Stop();
  EXPECT_GT(probe_->answers(), 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(probe_->longest_s(), kStatus_s_max);
  EXPECT_LT(PeakBytes(coordinator().pid()), kCoordinatorBytesMax);
  EXPECT_LT(PeakBytes(agent_->pid()), kAgentBytesMax);
#endif
  EXPECT_LT(BytesUnder(state()), kStateBytesMax);
  EXPECT_LT(BytesUnder(agent_state()), kStateBytesMax);
  std::printf(
      "a status call waited %.0f ms at most of %d; peak of the coordinator "
      "%.0f MiB, of the agent %.0f MiB; on disk %.1f and %.1f MiB\n",
      1e3 * probe_->longest_s(), probe_->answers(),
      static_cast<double>(PeakBytes(coordinator().pid())) / (1 << 20),
      static_cast<double>(PeakBytes(agent_->pid())) / (1 << 20),
      static_cast<double>(BytesUnder(state())) / (1 << 20),
      static_cast<double>(BytesUnder(agent_state())) / (1 << 20));
}

Ended HostileTenantTest::RunAsMallory(std::vector<std::string> arguments) {
  Append({"--coordinator", endpoint(), "--key", keys().KeyFile(kMallory)},
         &arguments);
  return Run(arguments);
}

SubmitReply HostileTenantTest::Submit(Tenant& mallory,
                                      const std::string& toml) const {
  return mallory.Ask<SubmitReply>(
      SubmitRequest{0, "job.toml", toml, keys().JobsOf(kMallory)});
}

JobId HostileTenantTest::SubmitCommand(const std::string& name,
                                       const std::vector<std::string>& command,
                                       const std::string& more_keys) {
  Tenant mallory = Mallory();
  const SubmitReply reply = Submit(
      mallory, StrCat("name = \"", name, "\"\ncommand = ", Json(command).dump(),
                      "\n", more_keys));
  EXPECT_EQ(reply.error, "");
  return reply.job;
}

void HostileTenantTest::CancelAll(const std::vector<JobId>& jobs) {
  Tenant mallory = Mallory();
  for (const JobId job : jobs) {
    CommandRequest cancel;
    cancel.kind = CommandKind::kCancel;
    cancel.job = job;
    mallory.Ask<CommandReply>(cancel);
  }
}

uint64_t HostileTenantTest::BytesUnder(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const uintmax_t size = it->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace gavel::testing
