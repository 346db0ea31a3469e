// Measures whether one coordinator carries thousands of workers: how long a
// renewal takes during rounds, how much memory a worker costs, how fast all
// workers are back after the coordinator was killed, and how fast it recovers
// its jobs. A real `gavel coordinator`, killed with SIGKILL, serves a fleet in
// processes of this program (load_processes.h). First the same fleet runs
// against a bare ROUTER that grants every request, which shows the share of the
// generator, the network and the machine.
//
//   bench_load [--workers N] [--gang N] [--round S] [--lease S] [--rounds N]
//              [--report S] [--start-scatter S] [--policy NAME]
//              [--processes N] [--no-keys] [--check] [--out FILE.json]
//
// --start-scatter: a worker connects one second after its launch plus a random
// time of up to S. With 0, all workers of a fleet that were launched together
// connect at once. --check asserts what must hold on any machine (all are
// granted, all are back, no accelerator has two workers), and judges no times.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/coordinator_process.h"
#include "bench/load_fleet.h"
#include "bench/load_processes.h"
#include "bench/table.h"
#include "coordinator/server/principals.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/transport/curve.h"
#include "runtime/transport/dealer_router.h"
#include "runtime/transport/socket_options.h"

namespace gavel::bench {
namespace {

// Nine of ten workers hold an accelerator; the others wait for theirs.
constexpr double kAcceleratorsPerWorker = 0.9;
constexpr double kStart_s = 1;  // of a worker's process

struct Options {
  int workers = 10'000;
  int gang = 10;
  int processes = 4;  // of the fleet
  double round_s = 60;
  double lease_s = 30;
  double rounds = 2;  // that are measured
  double report_s = 1;
  std::string policy = "max_min_fairness_perf";
  double start_scatter_s = 0;
  bool keys = true;
  bool check = false;
  std::string out;
  double span_s() const { return rounds * round_s; }
  int jobs() const { return workers / gang; }
  int accelerators() const {
    const int wanted = static_cast<int>(workers * kAcceleratorsPerWorker);
    return std::max(wanted / gang, 1) * gang;
  }
};

// The descriptors that a process needs beside one for each connection.
constexpr int kOtherDescriptors = 512;

// The coordinator has all the connections, and inherits this process's limit.
void DemandDescriptors(int workers) {
  transport::RaiseDescriptorLimit();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(workers + kOtherDescriptors);
  if (limit.rlim_cur >= needed) return;
  Die(StrCat("the limit of open files is ", limit.rlim_cur, ", ", workers,
             " workers need ", needed,
             ": raise it (ulimit -Hn, as root) or give fewer --workers"));
}

double LoadAverage() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : 0;
}

// A key pair for the coordinator, for a user and for every server. Empty
// without keys.
struct Keys {
  CurveKeyPair coordinator;
  CurveKeyPair user;
  std::vector<CurveKeyPair> servers;

  explicit Keys(const Options& options) {
    if (!options.keys) return;
    coordinator = NewCurveKeyPair().value();
    user = NewCurveKeyPair().value();
    // The bare peer has an accelerator for each worker.
    for (int left = options.workers; left > 0; left -= kAcceleratorsPerServer) {
      servers.push_back(NewCurveKeyPair().value());
    }
  }
  DealerOptions OfUser() const {
    if (servers.empty()) return {};
    return {CurveClient{user, coordinator.public_key}};
  }
  // Writes the key files to `folder`. Returns the coordinator's arguments.
  std::vector<std::string> Write(const std::string& folder) const {
    if (servers.empty()) return {};
    Principals principals;
    principals["user"] = {Role::kOperator, "nobody", user.public_key};
    for (size_t i = 0; i < servers.size(); ++i) {
      principals[FleetServerName(static_cast<int>(i))] = {
          Role::kNode, "", servers[i].public_key};
    }
    Demand(WritePrincipals(folder + "/principals.toml", principals).ok() &&
               WriteKeyFile(folder + "/coordinator.key", coordinator).ok(),
           "files of keys");
    return {"--key", folder + "/coordinator.key", "--principals",
            folder + "/principals.toml"};
  }
};

void Submit(const std::string& endpoint, const Keys& keys,
            const Options& options) {
  const auto client = ConnectClient(endpoint, keys.OfUser());
  SubmitJobs(*client, options.jobs(), [&](int number) {
    return StrCat("name = \"job-", number, "\"\ncommand = [\"./train\"]\n",
                  "scale_factor = ", options.gang,
                  "\n[throughputs]\nv100 = ", 10 + number % 7, "\n");
  });
}

uint64_t RoundsSoFar(const std::string& endpoint, const Keys& keys) {
  const auto client = ConnectClient(endpoint, keys.OfUser());
  const nlohmann::json status = Query(*client, QueryKind::kStatus);
  Demand(status.contains("rounds"), "a status");
  return status["rounds"];
}

FleetOptions FleetOf(const Options& options, const Keys& keys,
                     int accelerators) {
  FleetOptions fleet;
  fleet.accelerators = accelerators;
  fleet.report_interval_s = options.report_s;
  fleet.start_s = kStart_s;
  fleet.start_scatter_s = options.start_scatter_s;
  fleet.coordinator_public_key = keys.coordinator.public_key;
  fleet.server_keys = keys.servers;
  return fleet;
}

// A worker's part of a process's resident memory, beyond what the process had
// when it was idle.
struct Memory {
  double first_kb = 0;  // after one round
  double last_kb = 0;   // after all of them
};

// Waits until all rounds are over.
Memory WaitForRounds(const Options& options, pid_t pid, double idle_kb,
                     FleetProcesses& fleet) {
  const auto kb = [&] { return (ResidentKb(pid) - idle_kb) / options.workers; };
  Memory memory;
  const double first_s = std::min(options.round_s, options.span_s());
  fleet.Wait(first_s, [] { return false; });
  memory.first_kb = kb();
  fleet.Wait(options.span_s() - first_s, [] { return false; });
  memory.last_kb = kb();
  return memory;
}

constexpr char kBare[] = "the same fleet at a bare ROUTER";

// The results of the same generator without a coordinator.
struct Baseline {
  double all_granted_s = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double longest_ms = 0;
  double per_s = 0;
  Memory memory;
};

Baseline MeasureBaseline(const Options& options, const BarePeer& peer,
                         FleetProcesses& fleet) {
  const std::string endpoint = peer.endpoint();
  const double idle_kb = ResidentKb(peer.pid());
  const Clock::time_point start = Clock::now();
  fleet.Start(endpoint);
  const bool all_there = fleet.Wait(
      kPatience_s, [&] { return fleet.running() >= options.workers; });
  Demand(all_there, StrCat("the bare ROUTER grants all: ", fleet.running()));
  const double all_granted_s = SecondsSince(start);
  // The measurement takes as long as at the coordinator, because libzmq's
  // queues of a connection take more memory with every message, up to some
  // hundred of them.
  fleet.ClearRenewals();
  const Memory memory = WaitForRounds(options, peer.pid(), idle_kb, fleet);
  std::vector<double> renewals = fleet.renewals_s();
  return {all_granted_s,
          Percentile(renewals, 50) * 1e3,
          Percentile(renewals, 99) * 1e3,
          Percentile(renewals, 100) * 1e3,
          static_cast<double>(renewals.size()) / options.span_s(),
          memory};
}

// Measures renewals, and the cost of a worker, while rounds continue.
void MeasureRounds(const Options& options, const Keys& keys,
                   const CoordinatorProcess& coordinator, double idle_kb,
                   const Baseline& bare, FleetProcesses& fleet,
                   std::vector<Row>* rows) {
  fleet.ClearRenewals();
  const uint64_t rounds_before = RoundsSoFar(coordinator.endpoint(), keys);
  const uint64_t pauses_before = fleet.pauses();
  const double processor_before_s = ProcessorSeconds(coordinator.pid());
  const double span_s = options.span_s();
  const Memory memory =
      WaitForRounds(options, coordinator.pid(), idle_kb, fleet);
  const double processor_s =
      ProcessorSeconds(coordinator.pid()) - processor_before_s;
  const uint64_t rounds =
      RoundsSoFar(coordinator.endpoint(), keys) - rounds_before;
  Demand(rounds > 0, "rounds go on");
  std::vector<double> renewals = fleet.renewals_s();
  const double count = static_cast<double>(renewals.size());
  Demand(count > 0, "leases are renewed");
  Add(rows, {"rounds meanwhile", static_cast<double>(rounds), ""});
  Add(rows, {"workers paused by them",
             static_cast<double>(fleet.pauses() - pauses_before), ""});
  Add(rows, {"coordinator's processor", processor_s / span_s, "cores"});
  Add(rows, {"renewals answered", count / span_s, "1/s", kBare, bare.per_s});
  Add(rows, {"renewal, p50", Percentile(renewals, 50) * 1e3, "ms", kBare,
             bare.p50_ms});
  Add(rows, {"renewal, p99", Percentile(renewals, 99) * 1e3, "ms", kBare,
             bare.p99_ms, ValueAtMost(100)});
  Add(rows, {"renewal, longest", Percentile(renewals, 100) * 1e3, "ms", kBare,
             bare.longest_ms});
  Add(rows, {"memory, jobs included, after a round", memory.first_kb,
             "KB/worker", kBare, bare.memory.first_kb, ValueAtMost(40)});
  Add(rows, {StrCat("memory, jobs included, after ", options.rounds, " rounds"),
             memory.last_kb, "KB/worker", kBare, bare.memory.last_kb,
             ValueAtMost(40)});
}

void MeasureRecovery(const Options& options, CoordinatorProcess& coordinator,
                     FleetProcesses& fleet, std::vector<Row>* rows) {
  const uint64_t ended_before = fleet.leases_ended();
  const uint64_t term = fleet.term();
  const int workers_before = fleet.workers();
  coordinator.Kill();
  const Clock::time_point start = Clock::now();
  Add(rows, {StrCat("recovery of ", options.jobs(), " jobs"),
             coordinator.Start(), "s", "", 0, ValueAtMost(2)});
  const bool all_back = fleet.Wait(kPatience_s, [&] {
    return fleet.heard_of_term(term + 1) >= workers_before;
  });
  Demand(all_back, StrCat("all are back: ", fleet.heard_of_term(term + 1),
                          " of ", workers_before, coordinator.errors()));
  Add(rows, {"all back after SIGKILL of the coordinator", SecondsSince(start),
             "s", "", 0, ValueAtMost(20)});
  Add(rows, {"leases that ended meanwhile",
             static_cast<double>(fleet.leases_ended() - ended_before), ""});
  const bool all_run = fleet.Wait(2 * options.round_s, [&] {
    return fleet.running() == options.accelerators();
  });
  Demand(all_run, "the accelerators are in use again");
  Demand(fleet.shared_accelerators() == 0, "no accelerator has two workers");
  Demand(fleet.workers() == workers_before, "no worker was lost");
}

// Fills `rows`; ends the program where something is wrong.
void Measure(const Options& options, std::vector<Row>* rows) {
  const Keys keys(options);
  std::optional<CurveKeyPair> peer_keys;
  if (options.keys) peer_keys = keys.coordinator;
  // All of them are forked before this process has threads.
  auto peer = std::make_unique<BarePeer>(peer_keys, options.lease_s);
  auto bare_fleet = std::make_unique<FleetProcesses>(
      options.processes, FleetOf(options, keys, options.workers));
  FleetProcesses fleet(options.processes,
                       FleetOf(options, keys, options.accelerators()));
  const Baseline bare = MeasureBaseline(options, *peer, *bare_fleet);
  bare_fleet.reset();
  peer.reset();

  const Folder folder;
  CoordinatorProcess coordinator(
      folder.path(),
      StrCat("policy = \"", options.policy, "\"\nround_duration_s = ",
             options.round_s, "\nlease_duration_s = ", options.lease_s, "\n"),
      keys.Write(folder.path()));
  coordinator.Start();
  const double idle_kb = ResidentKb(coordinator.pid());
  Clock::time_point start = Clock::now();
  Submit(coordinator.endpoint(), keys, options);
  Add(rows, {StrCat("submissions, ", options.jobs(), " jobs of ", options.gang),
             options.jobs() / SecondsSince(start), "jobs/s"});
  const double jobs_kb = ResidentKb(coordinator.pid());
  Add(rows,
      {"memory, of jobs", (jobs_kb - idle_kb) / options.jobs(), "KB/job"});

  start = Clock::now();
  fleet.Start(coordinator.endpoint());
  // A job has no processes before its first turn.
  const bool all_there =
      fleet.Wait(std::max(kPatience_s, 4 * options.round_s), [&] {
        return fleet.workers() == options.workers &&
               fleet.running() >= options.accelerators();
      });
  Demand(all_there,
         StrCat("all are granted: ", fleet.workers(), " workers launched, ",
                fleet.running(), " run\n", coordinator.errors()));
  Add(rows, {"all launched, and accelerators in use", SecondsSince(start), "s",
             kBare, bare.all_granted_s});
  MeasureRounds(options, keys, coordinator, idle_kb, bare, fleet, rows);
  MeasureRecovery(options, coordinator, fleet, rows);
}

Options Parse(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--workers", &options.workers},
             {"--gang", &options.gang},
             {"--processes", &options.processes},
             {"--round", &options.round_s},
             {"--lease", &options.lease_s},
             {"--rounds", &options.rounds},
             {"--report", &options.report_s},
             {"--start-scatter", &options.start_scatter_s},
             {"--policy", &options.policy},
             {"--no-keys", &options.keys},
             {"--check", &options.check},
             {"--out", &options.out}});
  if (options.gang < 1 || options.workers < 1 ||
      options.workers % options.gang != 0) {
    Die("the workers are not a multiple of the gang");
  }
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;
  const Options options = Parse(argc, argv);
  DemandDescriptors(options.workers);
  std::vector<Row> rows;
  const double load_before = LoadAverage();
  Measure(options, &rows);
  std::printf(
      "%d workers%s, rounds of %g s, leases of %g s; load average %.1f before, "
      "%.1f after, on %ld cores\n",
      options.workers, options.keys ? "" : " without keys", options.round_s,
      options.lease_s, load_before, LoadAverage(),
      sysconf(_SC_NPROCESSORS_ONLN));
  const int result = Report(rows, options.out);
  return options.check ? 0 : result;
}
