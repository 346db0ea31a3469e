// How light the `gavel` daemons are: memory when idle, and time until the
// coordinator listens. The peer is a process with a bare ZeroMQ ROUTER, started
// and measured in the same way and run. Medians of several starts.
//
//   bench_footprint [--out FILE.json]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/table.h"
#include "tests/support/process.h"
#include "zmq.hpp"

namespace {

using gavel::bench::Clock;
using gavel::bench::Folder;
using gavel::bench::Median;
using gavel::bench::OutFile;
using gavel::bench::Report;
using gavel::bench::ResidentKb;
using gavel::bench::Row;
using gavel::bench::SecondsSince;
using gavel::bench::ValueAtMost;

namespace fs = std::filesystem;

constexpr int kStarts = 7;
constexpr std::chrono::milliseconds kSettle(500);  // until memory is idle's
constexpr char kPeer[] = "bare ZeroMQ ROUTER process";

// A process that prints a line when it listens.
class Daemon {
 public:
  Daemon(const std::vector<std::string>& argv, const std::string& output)
      : started_(Clock::now()), process_(argv, output) {}
  // Milliseconds from the start until its first line.
  double WaitForLine() const {
    while (line().find('\n') == std::string::npos) {
      if (!gavel::testing::IsAlive(process_.pid())) {
        gavel::bench::Die(process_.errors());
      }
      usleep(100);
    }
    return SecondsSince(started_) * 1e3;
  }
  std::string line() const { return process_.output(); }
  double ResidentMb() const { return ResidentKb(process_.pid()) / 1024; }

 private:
  Clock::time_point started_;
  gavel::testing::Process process_;
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

std::string EndpointIn(const std::string& line) {
  const size_t at = line.find("tcp://");
  return at == std::string::npos
             ? ""
             : line.substr(at, line.find_first_of(",\n", at) - at);
}

void Measure(const std::string& bin, Samples* coordinator, Samples* agent,
             Samples* peer) {
  const Folder folder;
  std::ofstream(folder.path() + "/cluster.toml")
      << "[[server]]\nname = \"here\"\n[[server.accelerator]]\n"
         "type = \"cpu\"\n";
  const Daemon bare({bin + "/bench_footprint", "--peer"}, folder.path() + "/1");
  peer->listening_ms.push_back(bare.WaitForLine());
  const Daemon head({bin + "/gavel", "coordinator", "--listen",
                     "tcp://127.0.0.1:0", "--state", folder.path() + "/head"},
                    folder.path() + "/2");
  coordinator->listening_ms.push_back(head.WaitForLine());
  const Daemon node(
      {bin + "/gavel", "agent", "--coordinator", EndpointIn(head.line()),
       "--cluster", folder.path() + "/cluster.toml", "--state",
       folder.path() + "/node", "--jobs-as-root"},
      folder.path() + "/3");
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
