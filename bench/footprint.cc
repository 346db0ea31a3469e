// How light the `gavel` daemons are: memory when idle, and time until the
// coordinator listens. The peer is a process with a bare ZeroMQ ROUTER, started
// and measured in the same way and run. Medians of several starts.
//
//   bench_footprint [--out FILE.json]
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/table.h"
#include "zmq.hpp"

namespace {

using gavel::bench::Median;
using gavel::bench::OutFile;
using gavel::bench::Report;
using gavel::bench::Row;
using gavel::bench::ValueAtMost;

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kStarts = 7;
constexpr std::chrono::milliseconds kSettle(500);  // until memory is idle's
constexpr char kPeer[] = "bare ZeroMQ ROUTER process";

// A process whose stdout is read here.
class Daemon {
 public:
  explicit Daemon(const std::vector<std::string>& argv)
      : started_(Clock::now()) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) std::perror("pipe");
    output_ = ends[0];
    pid_ = fork();
    if (pid_ == 0) Exec(argv, ends[1]);
    close(ends[1]);
  }
  ~Daemon() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(output_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Milliseconds from the start until its first line.
  double WaitForLine() {
    char c = 0;
    while (read(output_, &c, 1) == 1 && c != '\n') line_ += c;
    const std::chrono::duration<double, std::milli> took =
        Clock::now() - started_;
    return took.count();
  }
  const std::string& line() const { return line_; }

  double ResidentMb() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string word;
    double kilobytes = 0;
    while (status >> word) {
      if (word == "VmRSS:") status >> kilobytes;
    }
    return kilobytes / 1024;
  }

 private:
  [[noreturn]] static void Exec(const std::vector<std::string>& argv,
                                int output) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    std::vector<char*> pointers;
    for (const std::string& word : argv) {
      pointers.push_back(const_cast<char*>(word.c_str()));
    }
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }

  Clock::time_point started_;
  pid_t pid_ = 0;
  int output_ = -1;
  std::string line_;
};

[[noreturn]] void RunPeer() {
  zmq::context_t context;
  zmq::socket_t router(context, zmq::socket_type::router);
  router.bind("tcp://127.0.0.1:*");
  std::puts("listening");
  std::fflush(stdout);
  while (true) {
    zmq::message_t message;
    if (!router.recv(message)) continue;
  }
}

struct Samples {
  std::vector<double> resident_mb;
  std::vector<double> listening_ms;
};

// Fresh folders for the daemons' state.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "gavel-footprint-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::perror("mkdtemp");
    std::ofstream(path_ + "/cluster.toml")
        << "[[server]]\nname = \"here\"\n[[server.accelerator]]\n"
           "type = \"cpu\"\n";
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string EndpointIn(const std::string& line) {
  const size_t at = line.find("tcp://");
  return at == std::string::npos ? "" : line.substr(at);
}

void Measure(const std::string& bin, Samples* coordinator, Samples* agent,
             Samples* peer) {
  const Folder folder;
  Daemon bare({bin + "/bench_footprint", "--peer"});
  peer->listening_ms.push_back(bare.WaitForLine());
  Daemon head({bin + "/gavel", "coordinator", "--listen", "tcp://127.0.0.1:0",
               "--state", folder.path() + "/head"});
  coordinator->listening_ms.push_back(head.WaitForLine());
  const Daemon node({bin + "/gavel", "agent", "--coordinator",
                     EndpointIn(head.line()), "--cluster",
                     folder.path() + "/cluster.toml", "--state",
                     folder.path() + "/node", "--jobs-as-root"});
  std::this_thread::sleep_for(kSettle);
  peer->resident_mb.push_back(bare.ResidentMb());
  coordinator->resident_mb.push_back(head.ResidentMb());
  agent->resident_mb.push_back(node.ResidentMb());
}

std::vector<Row> Rows(const std::string& bin) {
  Samples coordinator;
  Samples agent;
  Samples peer;
  for (int i = 0; i < kStarts; ++i) Measure(bin, &coordinator, &agent, &peer);
  const double peer_mb = Median(peer.resident_mb);
  return {
      {"coordinator, idle, resident", Median(coordinator.resident_mb), "MB",
       kPeer, peer_mb, ValueAtMost(30)},
      {"agent, idle, resident", Median(agent.resident_mb), "MB", kPeer, peer_mb,
       ValueAtMost(30)},
      {"coordinator, start until it listens", Median(coordinator.listening_ms),
       "ms", kPeer, Median(peer.listening_ms), ValueAtMost(200)}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--peer") == 0) RunPeer();
  const std::string out = OutFile(argc, argv);
  const std::string bin = fs::read_symlink("/proc/self/exe").parent_path();
  return Report(Rows(bin), out);
}
