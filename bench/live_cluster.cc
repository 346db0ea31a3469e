#include "bench/live_cluster.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "core/text.h"

namespace gavel::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kStart_s_max = 20;    // until the agents have joined
constexpr double kCommand_s_max = 60;  // of one command
constexpr std::chrono::milliseconds kLookAgain(500);

void WaitForStart(Clock::time_point started, const std::string& errors) {
  if (SecondsSince(started) > kStart_s_max) {
    Die("the cluster does not start: " + errors);
  }
  std::this_thread::sleep_for(kLookAgain);
}

}  // namespace

LiveCluster::LiveCluster(const LiveClusterOptions& options)
    : bin_(fs::read_symlink("/proc/self/exe").parent_path()) {
  coordinator_.emplace(
      std::vector<std::string>{bin_ + "/gavel", "coordinator", "--listen",
                               "tcp://127.0.0.1:0", "--state", Path("head"),
                               "--policy", options.policy, "--round-duration",
                               std::to_string(options.round_s)},
      Path("coordinator.log"));
  const auto started = Clock::now();
  while (Endpoint().empty()) WaitForStart(started, coordinator_->errors());
  endpoint_ = Endpoint();
  for (int server = 0; server < options.servers; ++server) {
    const std::string name = StrCat("node-", server);
    std::ofstream cluster(Path(name + ".toml"));
    cluster << "[[server]]\nname = \"" << name
            << "\"\n[[server.accelerator]]\ntype = \"cpu\"\ncount = "
            << options.slots << "\n";
    cluster.close();
    agents_.push_back(std::make_unique<testing::Process>(
        std::vector<std::string>{bin_ + "/gavel", "agent", "--coordinator",
                                 endpoint_, "--cluster", Path(name + ".toml"),
                                 "--server", name, "--state", Path(name),
                                 "--jobs-as-root"},
        Path(name + ".log")));
  }
  while (true) {
    const std::optional<Json> nodes = RunForJson({"nodes", "--json"});
    if (nodes && nodes->size() == agents_.size()) break;
    WaitForStart(started, agents_.front()->errors() + errors_);
  }
}

std::string LiveCluster::WriteJob(const std::string& name,
                                  const std::vector<std::string>& command,
                                  uint64_t steps_total,
                                  double throughput) const {
  const std::string path = Path(name + ".toml");
  std::ofstream(path) << "name = \"" << name
                      << "\"\ncommand = " << Json(command).dump()
                      << "\nsteps_total = " << steps_total
                      << "\ncheckpoint_directory = \"" << Path(name)
                      << "\"\n[throughputs]\ncpu = " << throughput << "\n";
  return path;
}

std::optional<int> LiveCluster::Run(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& program) {
  std::vector<std::string> argv = {bin_ + "/gavel"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.insert(argv.end(), {"--coordinator", endpoint_});
  argv.insert(argv.end(), program.begin(), program.end());
  testing::Process process(argv, Path(StrCat("command-", ++commands_)));
  const std::optional<int> code = process.Wait(kCommand_s_max);
  output_ = process.output();
  errors_ = process.errors();
  return code;
}

std::optional<Json> LiveCluster::RunForJson(
    const std::vector<std::string>& arguments) {
  if (Run(arguments) != 0) return std::nullopt;
  Json json = Json::parse(output_, nullptr, false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

Json LiveCluster::MustRun(const std::vector<std::string>& arguments) {
  std::optional<Json> json = RunForJson(arguments);
  if (!json) Die(StrCat("`gavel ", arguments[0], "` failed: ", errors_));
  return *std::move(json);
}

std::string LiveCluster::Path(const std::string& name) const {
  return StrCat(folder_.path(), "/", name);
}

std::string LiveCluster::Endpoint() const {
  const std::string line = coordinator_->output();
  const size_t at = line.find("tcp://");
  if (at == std::string::npos || line.find('\n') == std::string::npos) {
    return "";
  }
  return line.substr(at, line.find_first_of(",\n", at) - at);
}

}  // namespace gavel::bench
