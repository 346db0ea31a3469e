#include "tests/support/gavel_fixture.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/generation.h"
#include "core/text.h"
#include "gavel_paths.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr char kGavel[] = GAVEL_BINARY_DIR "/gavel";
constexpr char kFakeWorker[] = GAVEL_BINARY_DIR "/tests/fake_worker";

Ended EndOf(Process& process) {
  const std::optional<int> code = process.Wait();
  return {code.value_or(-1), process.output(), process.errors()};
}

}  // namespace

std::string GavelTest::Write(const std::string& name, const std::string& text) {
  std::ofstream(Path(name)) << text;
  return Path(name);
}

void GavelTest::UseKeys(const std::vector<std::string>& servers) {
  keys_ = std::make_unique<TeamKeys>(folder(), servers);
}

std::string GavelTest::WriteCluster(int slots, double round_duration_s,
                                    double lease_duration_s) {
  return Write("cluster.toml",
               StrCat("[scheduling]\nround_duration_s = ", round_duration_s,
                      "\nlease_duration_s = ", lease_duration_s,
                      "\n[[server]]\nname = \"here\"\n"
                      "[[server.accelerator]]\ntype = \"cpu\"\ncount = ",
                      slots, "\n"));
}

std::string GavelTest::WriteCommand(const std::string& name,
                                    const std::vector<std::string>& command,
                                    const std::string& more_keys) {
  // A JSON array of strings is a TOML array of strings.
  const std::string path = JobPath(name + ".toml");
  std::ofstream(path) << "name = \"" << name
                      << "\"\ncommand = " << Json(command).dump() << "\n"
                      << more_keys;
  return path;
}

std::string GavelTest::WriteJob(const std::string& name,
                                const std::vector<std::string>& arguments,
                                const std::string& more_keys) {
  std::vector<std::string> command = {FakeWorker()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return WriteCommand(name, command, more_keys);
}

std::string GavelTest::FakeWorker() const {
  return keys_ ? keys_->Copy(kFakeWorker) : kFakeWorker;
}

std::unique_ptr<Process> GavelTest::Start(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {kGavel};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return std::make_unique<Process>(argv, Path(StrCat("out.", ++processes_)));
}

Ended GavelTest::Run(const std::vector<std::string>& arguments) {
  return EndOf(*Start(arguments));
}

std::unique_ptr<Process> GavelTest::StartLocal(
    const std::vector<std::string>& jobs, std::vector<std::string> options) {
  options.insert(options.begin(),
                 {"local", "--cluster", Path("cluster.toml"), "--state",
                  state(), "--summary", Path("summary.json")});
  options.insert(options.end(), jobs.begin(), jobs.end());
  return Start(options);
}

std::unique_ptr<Process> GavelTest::StartAgent(
    const std::string& endpoint, const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {
      "agent",     "--coordinator",      endpoint,   "--state", state(),
      "--cluster", Path("cluster.toml"), "--server", "here"};
  Append(options, &arguments);
  if (has_keys()) Append(keys().OfAgent("here"), &arguments);
  return Start(arguments);
}

Ended GavelTest::RunLocal(const std::vector<std::string>& jobs,
                          std::vector<std::string> options) {
  return EndOf(*StartLocal(jobs, std::move(options)));
}

Json GavelTest::Summary() const {
  return Json::parse(ReadText(Path("summary.json")), nullptr, false);
}

std::string GavelTest::EndpointOf(const Process& process) {
  constexpr std::string_view kMark = "listening on ";
  std::string endpoint;
  Eventually([&] {
    const std::string output = process.output();
    const size_t mark = output.find(kMark);
    const size_t end = output.find_first_of(",\n", mark);
    if (mark == std::string::npos || end == std::string::npos) return false;
    endpoint = output.substr(mark + kMark.size(), end - mark - kMark.size());
    return true;
  });
  return endpoint;
}

Json GavelTest::QueueRow(const std::string& endpoint, const std::string& name) {
  const Ended queue = Run({"queue", "--json", "--coordinator", endpoint});
  const Json rows = Json::parse(queue.output, nullptr, false);
  if (!rows.is_array()) return nullptr;
  for (const Json& row : rows) {
    if (row["name"] == name) return row;
  }
  return nullptr;
}

bool GavelTest::ReachesStep(const std::string& endpoint,
                            const std::string& name, uint64_t step) {
  return Eventually([&] {
    const Json row = QueueRow(endpoint, name);
    return row.is_object() && row["steps_done"] >= step;
  });
}

bool GavelTest::ReachesState(const std::string& endpoint,
                             const std::string& name,
                             const std::string& letters) {
  return Eventually([&] {
    const Json row = QueueRow(endpoint, name);
    return row.is_object() && row["state"] == letters;
  });
}

bool GavelTest::HasIdleAccelerators(const std::string& endpoint) {
  return Eventually([&] {
    return Run({"nodes", "--coordinator", endpoint}).output.find("idle") !=
           std::string::npos;
  });
}

std::vector<pid_t> GavelTest::WorkerPids() const {
  std::istringstream lines(ReadText(state() + "/agent-here.running"));
  std::string line;
  std::getline(lines, line);  // of the boot
  std::vector<pid_t> pids;
  int job = 0;
  int rank = 0;
  int incarnation = 0;
  pid_t pid = 0;
  while (lines >> job >> rank >> incarnation >> pid &&
         std::getline(lines, line)) {
    pids.push_back(pid);
  }
  return pids;
}

std::string GavelTest::LogOf(int job, int rank) const {
  return LogUnder(state(), job, rank);
}

std::string GavelTest::LogUnder(const std::string& agent_state, int job,
                                int rank) {
  std::error_code error;
  for (const auto& cluster :
       std::filesystem::directory_iterator(agent_state + "/logs", error)) {
    const std::string log =
        StrCat(cluster.path().string(), "/", job, ".", rank, "/0.log");
    if (std::filesystem::exists(log, error)) return ReadText(log);
  }
  return "";
}

GavelTest::FakeState GavelTest::CheckpointOf(const std::string& name) const {
  Generation latest;
  std::error_code error;
  const std::string checkpoints =
      (keys_ ? JobPath("gavel-state") : state()) + "/checkpoints";
  std::string directory;  // ID-NAME
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoints, error)) {
    if (entry.path().string().ends_with("-" + name)) directory = entry.path();
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    const auto one = ParseGenerationName(entry.path().filename().string());
    if (one && *one > latest) latest = *one;
  }
  FakeState found;
  std::ifstream(directory + "/" + GenerationName(latest)) >> found.steps >>
      found.sum;
  return found;
}

void GavelTest::ExpectEachStepOnce(const std::string& name,
                                   uint64_t steps) const {
  const FakeState found = CheckpointOf(name);
  EXPECT_EQ(found.steps, steps) << name;
  EXPECT_EQ(found.sum, steps * (steps + 1) / 2) << name;
}

void GavelClusterTest::StartCoordinator(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = CoordinatorArguments(state());
  Append(flags, &arguments);
  coordinator_ = Start(arguments);
  endpoint_ = EndpointOf(*coordinator_);
  ASSERT_NE(endpoint_, "") << coordinator_->errors();
  listen_ = endpoint_;
}

std::vector<std::string> GavelClusterTest::CoordinatorArguments(
    const std::string& state_directory) const {
  std::vector<std::string> arguments = {
      "coordinator", "--listen",          listen_, "--state", state_directory,
      "--cluster",   Path("cluster.toml")};
  if (has_keys()) Append(keys().OfCoordinator(), &arguments);
  return arguments;
}

void GavelClusterTest::KillCoordinator() {
  coordinator_->Signal(SIGKILL);
  EXPECT_EQ(coordinator_->Wait(), -SIGKILL);
}

Ended GavelClusterTest::Do(std::vector<std::string> arguments) {
  Append({"--coordinator", endpoint_}, &arguments);
  return Run(arguments);
}

nlohmann::json GavelClusterTest::Json(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const Ended ended = Do(std::move(arguments));
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  return nlohmann::json::parse(ended.output, nullptr, false);
}

void GavelClusterTest::Submit(const std::string& job) {
  const Ended submitted = Do({"submit", job});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
}

void GavelClusterTest::StartCluster(int slots) {
  WriteCluster(slots, 30, 20);
  StartCoordinator({"--policy", "fifo"});
  agent_ = StartAgent();
  ASSERT_TRUE(HasIdleAccelerators(endpoint_));
}

void Append(const std::vector<std::string>& more,
            std::vector<std::string>* arguments) {
  arguments->insert(arguments->end(), more.begin(), more.end());
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace gavel::testing
