// Real processes, really killed: a coordinator, two agents and jobs of
// fake_worker (tests/support) run while SIGKILL hits workers, the coordinator
// and agents, until so many of each have died. The verdict comes from sources
// that the coordinator does not write: the workers' own logs (worker_log.h),
// the locks of the kernel, the process table.
//
//   kill_loop [--workers N] [--coordinators N] [--agents N] [--keys] [--chaos]
//             [--policy NAME] [--seed N] [--seconds S]
//
// Kills that many (2000, 500, 20), or as many as S seconds allow. --keys runs
// the cluster as a team has to, encrypted and with each job as its owner;
// --chaos puts a bad network between them. The first job is a gang of two.
// Exits with 1, and keeps its folder, when a step was lost, an accelerator had
// two owners, or a process was left over.
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/text.h"
#include "tests/reliability/agent_arguments.h"
#include "tests/reliability/chaos_proxy.h"
#include "tests/reliability/worker_log.h"
#include "tests/support/process.h"
#include "tests/support/team_keys.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kSlotsPerServer = 3;
constexpr int kJobs = 8;  // more than there are accelerators: rounds swap them
constexpr int kGang = 0;  // one of them, of two ranks
constexpr double kWorkerKillGap_s = 0.12;
constexpr double kCoordinatorUp_s = 0.5;
constexpr double kComesBack_s = 60;

struct Options {
  int workers = 2000;
  int coordinators = 500;
  int agents = 20;
  bool keys = false;
  bool chaos = false;
  std::string policy = "max_min_fairness_perf";
  uint64_t seed = 1;
  double seconds = 1e9;
};

struct Killed {
  int workers = 0;
  int coordinators = 0;
  int agents = 0;
};

void Append(const std::vector<std::string>& more,
            std::vector<std::string>* arguments) {
  arguments->insert(arguments->end(), more.begin(), more.end());
}

void Pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Processes whose command line names `program` and `text`, by the kernel's
// table.
std::vector<pid_t> ProcessesNaming(const std::string& program,
                                   const std::string& text) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = ReadText(entry.path() / "cmdline");
    if (command.find(program) == std::string::npos ||
        command.find(text) == std::string::npos) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    if (IsAlive(pid)) pids.push_back(pid);
  }
  return pids;
}

class KillLoop {
 public:
  explicit KillLoop(const Options& options)
      : options_(options), random_(options.seed) {
    folder_ = fs::temp_directory_path() / "gavel-kills-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) std::perror("mkdtemp");
    bin_ = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
    worker_ = bin_ + "/tests/fake_worker";
    jobs_ = folder_;
    if (!options.keys) return;
    keys_ =
        std::make_unique<TeamKeys>(folder_, std::vector<std::string>{"a", "b"});
    worker_ = keys_->Copy(worker_);
    jobs_ = keys_->jobs();
  }

  int Run() {
    WriteCluster();
    StartCoordinator();
    if (options_.chaos) MakeProxy();
    for (const char* server : {"a", "b"}) StartAgent(server);
    for (int job = 0; job < kJobs; ++job) Submit(job);
    AllGoOn("at the start");
    const Clock::time_point start = Clock::now();
    while (More() && Elapsed(start) < options_.seconds && complaints_.empty()) {
      KillSomething();
    }
    const double took_s = Elapsed(start);
    if (proxy_) proxy_->Set({});
    AllGoOn("after the last kill");
    EndAll();
    return Report(took_s);
  }

 private:
  static double Elapsed(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  }
  double Uniform(double max) {
    return std::uniform_real_distribution<double>(0, max)(random_);
  }
  void Complain(const std::string& what) {
    complaints_.push_back(what);
    std::fprintf(stderr, "kill_loop: %s\n", what.c_str());
  }
  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  std::string LogPath(int job) const { return StrCat(jobs_, "/log-", job); }

  void WriteCluster() const {
    std::ofstream file(Path("cluster.toml"));
    file << "[scheduling]\nround_duration_s = 3\nlease_duration_s = 2\n";
    for (const char* server : {"a", "b"}) {
      file << "[[server]]\nname = \"" << server
           << "\"\n[[server.accelerator]]\ntype = \"cpu\"\ncount = "
           << kSlotsPerServer << "\n";
    }
  }

  std::unique_ptr<Process> Gavel(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), bin_ + "/gavel");
    return std::make_unique<Process>(arguments, Path(StrCat("out.", ++runs_)));
  }

  void StartCoordinator() {
    std::vector<std::string> arguments = {
        "coordinator", "--listen", endpoint_, "--state", Path("state"),
        "--cluster", Path("cluster.toml"),
        // Snapshots are frequent, so that most starts read one.
        "--snapshot-rows", "50", "--policy", options_.policy};
    if (keys_) Append(keys_->OfCoordinator(), &arguments);
    coordinator_ = Gavel(arguments);
    const bool listens = Eventually(
        [&] { return coordinator_->output().find('\n') != std::string::npos; },
        kComesBack_s);
    if (!listens) {
      return Complain("the coordinator does not start: " +
                      coordinator_->errors());
    }
    const std::string line = coordinator_->output();
    endpoint_ = line.substr(line.find("tcp://"));
    endpoint_.resize(endpoint_.find_first_of(",\n"));
  }

  void MakeProxy() {
    const int port = std::stoi(endpoint_.substr(endpoint_.rfind(':') + 1));
    proxy_ = std::make_unique<ChaosProxy>("127.0.0.1", port, options_.seed);
    proxy_->Set({.cuts_per_s = 0.05,
                 .silences_per_s = 0.02,
                 .silence_s = 3,
                 .delay_s_max = 0.02});
  }

  void StartAgent(const std::string& server) {
    auto arguments = AgentArguments(
        folder_, proxy_ ? proxy_->endpoint() : endpoint_, server);
    arguments.push_back("--jobs-as-root");
    if (keys_) Append(keys_->OfAgent(server), &arguments);
    agents_[server] = Gavel(arguments);
  }

  void Submit(int job) {
    const std::string name = StrCat("job-", job);
    const std::string file = StrCat(jobs_, "/", name, ".toml");
    std::ofstream(file)
        << "name = \"" << name << "\"\ncommand = [\"" << worker_
        << "\", \"--steps\", \"1000000000\", \"--step-ms\", "
           "\"4\", \"--checkpoint-every\", \"20\", \"--log\", \""
        << LogPath(job)
        << "\"]\nretries_max = 1000\nscale_factor = " << (job == kGang ? 2 : 1)
        << "\n";
    const auto submit = Gavel({"submit", "--coordinator", endpoint_, file});
    if (submit->Wait() != 0) Complain("submit: " + submit->errors());
  }

  // Waits until each job has committed again.
  void AllGoOn(const std::string& when) {
    std::vector<uint64_t> before;
    for (int job = 0; job < kJobs; ++job) before.push_back(CommitsOf(job));
    for (int job = 0; job < kJobs; ++job) {
      const auto goes_on = [&] {
        return CommitsOf(job) > before[static_cast<size_t>(job)];
      };
      // A job whose launches have cost two agents is held until an operator
      // releases it. The command is refused where the job is not held.
      Gavel({"release", "--coordinator", endpoint_, StrCat("job-", job)})
          ->Wait();
      if (!Eventually(goes_on, kComesBack_s)) {
        Complain(StrCat("job-", job, " does not go on ", when));
      }
    }
  }
  uint64_t CommitsOf(int job) const {
    return CheckWorkerLogs({{"", ReadText(LogPath(job))}}).commits;
  }

  bool More() const {
    return killed_.workers < options_.workers ||
           killed_.coordinators < options_.coordinators ||
           killed_.agents < options_.agents;
  }

  // Kills a worker, the coordinator or an agent, drawn in proportion to the
  // kills that remain.
  void KillSomething() {
    const int workers = options_.workers - killed_.workers;
    const int coordinators = options_.coordinators - killed_.coordinators;
    const int agents = options_.agents - killed_.agents;
    const double drawn = Uniform(workers + coordinators + agents);
    if (drawn < workers) return KillWorker();
    if (drawn < workers + coordinators) return KillCoordinator();
    KillAgent();
  }

  void KillWorker() {
    std::vector<pid_t> alive;
    const bool some =
        Eventually([&] { return !(alive = Workers()).empty(); }, kComesBack_s);
    if (!some) return Complain("no worker comes back");
    // The worker may have ended by itself in between.
    if (kill(alive[random_() % alive.size()], SIGKILL) == 0) ++killed_.workers;
    Pause(Uniform(2 * kWorkerKillGap_s));
  }

  void KillCoordinator() {
    coordinator_->Signal(SIGKILL);
    coordinator_->Wait();
    ++killed_.coordinators;
    Pause(Uniform(0.2));
    StartCoordinator();
    Pause(Uniform(2 * kCoordinatorUp_s));
  }

  void KillAgent() {
    const std::string server = random_() % 2 == 0 ? "a" : "b";
    agents_[server]->Signal(SIGKILL);
    agents_[server]->Wait();
    ++killed_.agents;
    Pause(Uniform(0.5));
    StartAgent(server);
  }

  std::vector<pid_t> Workers() const {
    return ProcessesNaming("fake_worker", folder_);
  }

  // Kills the agents, which must not leave any worker behind.
  void EndAll() {
    for (const auto& [server, agent] : agents_) {
      agent->Signal(SIGKILL);
      agent->Wait();
    }
    if (!Eventually([&] { return Workers().empty(); }, 5)) {
      orphans_ = Workers().size();
    }
    coordinator_->Signal(SIGTERM);
    if (coordinator_->Wait() != 0) {
      Complain("the coordinator does not end in order: " +
               coordinator_->errors());
    }
  }

  int Report(double took_s) {
    std::map<std::string, std::string> logs;
    for (int job = 0; job < kJobs; ++job) {
      logs[StrCat("job-", job)] = ReadText(LogPath(job));
    }
    const Findings found = CheckWorkerLogs(logs);
    for (const std::string& detail : found.details) Complain(detail);
    std::printf(
        "killed in %.0f s: %d workers, %d coordinators, %d agents (seed %llu)\n"
        "%llu incarnations, %llu leases taken (%llu beside another job), %llu "
        "checkpoints\n"
        "lost steps: %llu\naccelerators with two owners: %llu\norphans: %zu\n",
        took_s, killed_.workers, killed_.coordinators, killed_.agents,
        static_cast<unsigned long long>(options_.seed),
        static_cast<unsigned long long>(found.incarnations),
        static_cast<unsigned long long>(found.takes),
        static_cast<unsigned long long>(found.takes_beside),
        static_cast<unsigned long long>(found.commits),
        static_cast<unsigned long long>(found.lost_steps),
        static_cast<unsigned long long>(found.shared), orphans_);
    if (proxy_) {
      std::printf("network: %llu connections, %llu cut, %llu fell silent\n",
                  static_cast<unsigned long long>(proxy_->connections()),
                  static_cast<unsigned long long>(proxy_->cuts()),
                  static_cast<unsigned long long>(proxy_->silences()));
    }
    const bool good = complaints_.empty() && orphans_ == 0 &&
                      found.lost_steps == 0 && found.shared == 0;
    if (good) {
      fs::remove_all(folder_);
    } else {
      std::printf("NOT GOOD; what is left is in %s\n", folder_.c_str());
    }
    return good ? 0 : 1;
  }

  Options options_;
  std::mt19937_64 random_;
  std::string folder_;
  std::string bin_;
  std::string worker_;  // the program of jobs
  std::string jobs_;    // where they lie
  std::unique_ptr<TeamKeys> keys_;
  std::string endpoint_ = "tcp://127.0.0.1:0";
  int runs_ = 0;
  std::unique_ptr<ChaosProxy> proxy_;
  std::unique_ptr<Process> coordinator_;
  std::map<std::string, std::unique_ptr<Process>> agents_;
  Killed killed_;
  size_t orphans_ = 0;
  std::vector<std::string> complaints_;
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--chaos" || name == "--keys") {
      (name == "--keys" ? options->keys : options->chaos) = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    if (name == "--policy") {
      options->policy = argv[++i];
      continue;
    }
    const double value = std::atof(argv[++i]);
    if (value < 0) return false;
    if (name == "--workers") {
      options->workers = static_cast<int>(value);
    } else if (name == "--coordinators") {
      options->coordinators = static_cast<int>(value);
    } else if (name == "--agents") {
      options->agents = static_cast<int>(value);
    } else if (name == "--seed") {
      options->seed = static_cast<uint64_t>(value);
    } else if (name == "--seconds") {
      options->seconds = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace gavel::testing

int main(int argc, char** argv) {
  gavel::testing::Options options;
  if (!gavel::testing::Parse(argc, argv, &options)) {
    std::fprintf(
        stderr,
        "usage: %s [--workers N] [--coordinators N] [--agents N] "
        "[--keys] [--chaos] [--policy NAME] [--seed N] [--seconds S]\n",
        argv[0]);
    return 2;
  }
  return gavel::testing::KillLoop(options).Run();
}
