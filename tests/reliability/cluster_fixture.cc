#include "tests/reliability/cluster_fixture.h"

#include <sstream>

#include "core/text.h"
#include "tests/reliability/agent_arguments.h"

namespace gavel::testing {

void ClusterTest::WriteServers(const std::vector<std::string>& servers,
                               double round_duration_s,
                               double lease_duration_s) {
  std::string text =
      StrCat("[scheduling]\nround_duration_s = ", round_duration_s,
             "\nlease_duration_s = ", lease_duration_s, "\n");
  for (const std::string& server : servers) {
    StrAppend(&text, "[[server]]\nname = \"", server,
              "\"\n[[server.accelerator]]\ntype = \"cpu\"\n");
  }
  Write("cluster.toml", text);
}

void ClusterTest::SetUp() { UseKeys({"here", "left", "right", "near", "far"}); }

void ClusterTest::StartCoordinator(const std::vector<std::string>& flags) {
  // Lost servers are noticed soon, and nobody is waited for long.
  std::vector<std::string> arguments = {"coordinator",
                                        "--listen",
                                        endpoint_,
                                        "--state",
                                        state(),
                                        "--cluster",
                                        Path("cluster.toml"),
                                        "--agent-timeout",
                                        "4",
                                        "--pause-grace",
                                        "3"};
  Append(keys().OfCoordinator(), &arguments);
  Append(flags, &arguments);
  coordinator_ = Start(arguments);
  endpoint_ = EndpointOf(*coordinator_);
  ASSERT_FALSE(endpoint_.empty()) << coordinator_->errors();
}

int ClusterTest::port() const {
  return std::stoi(endpoint_.substr(endpoint_.rfind(':') + 1));
}

std::vector<std::string> ClusterTest::AgentArguments(
    const std::string& server, const std::string& endpoint) const {
  auto arguments = testing::AgentArguments(folder(), endpoint, server);
  Append(keys().OfAgent(server), &arguments);
  return arguments;
}

Process& ClusterTest::StartAgent(const std::string& server,
                                 const std::string& endpoint,
                                 const std::vector<std::string>& flags) {
  std::vector<std::string> arguments =
      AgentArguments(server, endpoint.empty() ? endpoint_ : endpoint);
  Append(flags, &arguments);
  agents_[server] = Start(arguments);
  return *agents_[server];
}

void ClusterTest::Submit(const std::string& name,
                         std::vector<std::string> arguments) {
  jobs_.push_back(name);
  arguments.insert(arguments.end(), {"--log", JobPath(name + ".log")});
  const Ended submitted =
      Run({"submit", "--coordinator", endpoint_,
           WriteJob(name, arguments, "retries_max = 100\n")});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
}

bool ClusterTest::Logs(const std::string& name, const std::string& text,
                       int times, double timeout_s) {
  return Eventually([&] { return Count(WorkerLog(name), text) >= times; },
                    timeout_s);
}

pid_t ClusterTest::LastPid(const std::string& name,
                           const std::string& word) const {
  std::istringstream lines(WorkerLog(name));
  pid_t found = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    int64_t now_ns = 0;
    pid_t pid = 0;
    std::string what;
    words >> now_ns >> pid >> what;
    if (what == word) found = pid;
  }
  return found;
}

std::string ClusterTest::WorkersKeyFile(const std::string& server,
                                        const WorkerKey& worker) const {
  return StrCat(Path("agent-" + server), "/keys-", server, "/",
                worker.job.value(), "-", worker.rank, "-", worker.incarnation,
                ".key");
}

std::unique_ptr<WorkerVoice> ClusterTest::VoiceOf(
    const std::string& server, const WorkerKey& worker) const {
  const std::string file = WorkersKeyFile(server, worker);
  const bool runs = Eventually(
      [&] { return ReadText(file).find("secret_key") != std::string::npos; });
  if (!runs) return nullptr;
  return std::make_unique<WorkerVoice>(endpoint_, keys().Keys(file), worker);
}

void ClusterTest::ExpectNothingLostOrShared() const {
  std::map<std::string, std::string> logs;
  for (const std::string& job : jobs_) logs[job] = WorkerLog(job);
  const Findings found = CheckWorkerLogs(logs);
  EXPECT_GT(found.commits, 0);
  EXPECT_EQ(found.lost_steps, 0);
  EXPECT_EQ(found.shared, 0);
  EXPECT_THAT(found.details, ::testing::IsEmpty());
}

}  // namespace gavel::testing
