// Measures the time that the coordinator adds to its transport and its disk: a
// request that changes nothing, against a bare ZeroMQ ping-pong of the same
// bytes; a submission, against two ping-pongs and 1.3 bare SQLite commits; the
// notices of a round, against a bare ROUTER that sends as many. Coordinator and
// peer are each a thread of this process and are measured in turns. Results are
// medians.
//
//   bench_control [--out FILE.json]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "bench/control_peers.h"
#include "bench/load_fleet.h"
#include "bench/table.h"
#include "core/codec.h"
#include "core/text.h"
#include "zmq.hpp"

namespace gavel::bench {
namespace {

constexpr int kTurns = 15;
constexpr int kRoundTripsPerTurn = 400;
constexpr int kCommitsPerTurn = 20;
constexpr int kCommitsBeforeReuse = 1100;  // each adds a page to the WAL
constexpr int kWorkers = 1000;
constexpr double kRound_s = 4;
constexpr std::chrono::milliseconds kGap(500);  // between two bursts, at least
constexpr int kRounds = 5;

CoordinatorServerOptions Options(const std::string& state, double round_s,
                                 double reset_interval_s) {
  CoordinatorServerOptions options;
  options.state_directory = state;
  options.policy = "max_min_fairness_perf";
  options.engine.round_duration_s = round_s;
  options.engine.lease_duration_s = round_s;
  options.engine.agent_timeout_s = 3600;  // the agent here falls silent
  options.engine.reset_interval_s = reset_interval_s;
  return options;
}

// The median times of `actions` in microseconds. They are measured in turns.
std::vector<double> MediansOf(
    int per_turn, const std::vector<std::function<double()>>& actions) {
  std::vector<std::vector<double>> times(actions.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t a = 0; a < actions.size(); ++a) {
      for (int i = 0; i < per_turn; ++i) times[a].push_back(actions[a]());
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_one : times) {
    medians.push_back(Median(std::move(of_one)));
  }
  return medians;
}

double TimeRoundTrip(Client& client, const std::string& frame,
                     const std::string& like) {
  const Clock::time_point start = Clock::now();
  const std::string reply = client.RoundTrip(frame);
  const double took_us = MicrosecondsSince(start);
  constexpr size_t kType = kFrameHeaderBytes - 1;
  Demand(reply.size() > kType && reply[kType] == like[kType],
         "an answer of another kind came");
  return took_us;
}

// Measures a request that changes nothing. `request` makes the next frame.
Row MeasureRequest(const char* name, Client& client,
                   const std::function<std::string()>& request) {
  const std::string reply = client.RoundTrip(request());
  const Echo echo(reply);
  Client bare(echo.endpoint());
  const std::vector<double> medians =
      MediansOf(kRoundTripsPerTurn,
                {[&] { return TimeRoundTrip(client, request(), reply); },
                 [&] { return TimeRoundTrip(bare, request(), reply); }});
  return {name,       medians[0], "us", "ping-pong of the same bytes",
          medians[1], AtMost(2)};
}

std::string JobText(int number) {
  return StrCat("name = \"job-", number,
                "\"\ncommand = [\"./train\", \"--epochs\", \"3\"]\n"
                "[throughputs]\nv100 = 10\n");
}

// Measures submissions against a new bare journal, and against one whose WAL
// has reached 4 MiB: from then on SQLite overwrites its WAL and no longer
// extends it.
std::vector<Row> MeasureSubmission(Client& client, const std::string& folder) {
  int number = 0;
  const auto request = [&] {
    ++number;
    return *EncodeMessage(SubmitRequest{static_cast<uint64_t>(number),
                                        "job.toml", JobText(number), "/jobs"});
  };
  const std::string reply = client.RoundTrip(request());
  const Echo echo(reply);
  Client bare(echo.endpoint());
  BareJournal fresh(folder + "/fresh.db");
  BareJournal used(folder + "/used.db");
  for (int i = 0; i < kCommitsBeforeReuse; ++i) used.TimeCommit(request());
  const std::vector<double> medians = MediansOf(
      kCommitsPerTurn, {[&] { return TimeRoundTrip(client, request(), reply); },
                        [&] { return TimeRoundTrip(bare, request(), reply); },
                        [&] { return fresh.TimeCommit(request()); },
                        [&] { return used.TimeCommit(request()); }});
  const auto against = [&](const char* name, double commit_us, Goal goal) {
    return Row{
        name,
        medians[0],
        "us",
        StrCat("2 ping-pongs (", static_cast<int>(2 * medians[1]),
               ") + 1.3 commits (", static_cast<int>(1.3 * commit_us), ")"),
        2 * medians[1] + 1.3 * commit_us,
        goal};
  };
  return {against("submission", medians[2], AtMost(1)),
          against("submission, a WAL used again", medians[3], AtMost(1))};
}

// A job of one worker that holds a lease, set up over the wire.
struct Holder {
  explicit Holder(const std::string& endpoint)
      : client(endpoint), agent(endpoint), worker(endpoint) {
    AgentHello hello;
    hello.server = "here";
    hello.incarnation = 1;
    hello.state_id = "here";
    hello.accelerators = {{"v100", "here-0"}};
    agent.Ask<AgentWelcome>(hello);
    const auto reply = client.Ask<SubmitReply>(
        SubmitRequest{1, "job.toml", JobText(0), "/jobs"});
    Demand(reply.error.empty(), reply.error);
    // The hello is sent again, as an agent does; the launch comes meanwhile.
    const auto launch = agent.Ask<LaunchWorker>(hello);
    key = launch.worker;
    agent.Send(WorkerLaunched{"here", key, 1});
    WorkerHello worker_hello;
    worker_hello.worker = key;
    worker.Ask<LeaseNotice>(worker_hello);
    TakeLease();
  }
  void TakeLease() {
    for (worker.Send(Request(false)); epoch == 0;) {
      const Message answer = worker.Receive();
      if (const auto* grant = std::get_if<LeaseGrant>(&answer)) {
        epoch = grant->epoch;
      } else if (std::holds_alternative<LeaseDenied>(answer)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        worker.Send(Request(false));
      }
    }
    for (Client* one : {&client, &agent, &worker}) one->Drain();
  }
  LeaseRequest Request(bool holding) {
    LeaseRequest request;
    request.worker = key;
    request.epoch = epoch;
    request.nonce = ++nonce;
    request.holding = holding;
    return request;
  }

  Client client;
  Client agent;
  Client worker;
  WorkerKey key;
  uint64_t epoch = 0;
  uint64_t nonce = 0;
};

// The rate in messages/s at which kWorkers workers receive the notices of a
// round, each of which says that a lease continues. Copies one of them to
// `notice`, for the peer.
double NoticesPerSecond(const std::string& folder, std::string* notice) {
  const Server server(Options(folder, kRound_s, 0));
  Client client(server.endpoint());
  for (int i = 0; i < kWorkers; ++i) {
    const auto reply = client.Ask<SubmitReply>(
        SubmitRequest{1, "job.toml", JobText(i), "/jobs"});
    Demand(reply.error.empty(), reply.error);
  }
  std::vector<double> rates;
  Burst burst;
  FleetOptions options;
  options.endpoint = server.endpoint();
  options.accelerators = kWorkers;
  options.report_interval_s = 1e9;
  options.heard = [&](const Message& message) {
    if (!std::holds_alternative<LeaseNotice>(message)) return;
    if (notice->empty()) *notice = *EncodeMessage(message);
    if (burst.count() > 0 && Clock::now() - burst.last() > kGap) {
      burst = Burst();
    }
    burst.Heard();
    if (burst.count() == kWorkers) rates.push_back(burst.PerSecond());
  };
  Fleet fleet(std::move(options));
  const bool running =
      fleet.Run(kPatience_s, [&] { return fleet.running() == kWorkers; });
  Demand(running, StrCat("only ", fleet.running(), " workers run"));
  rates.clear();
  const bool done =
      fleet.Run(kPatience_s, [&] { return rates.size() >= kRounds; });
  Demand(done, StrCat("only ", rates.size(), " rounds told all workers"));
  return Median(rates);
}

// Rates in messages/s.
struct BareRates {
  double apart = 0;     // bursts are as far apart as rounds
  double together = 0;  // one burst follows another: connections stay warm
};

// The rates of a bare ROUTER with as many connections.
BareRates BareMessagesPerSecond(const std::string& frame) {
  zmq::context_t context;
  zmq::socket_t router(context, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  router.bind("tcp://127.0.0.1:*");
  const std::string endpoint = router.get(zmq::sockopt::last_endpoint);
  zmq::context_t others;
  others.set(zmq::ctxopt::max_sockets, 4096);
  zmq::socket_t peers(others, zmq::socket_type::router);
  peers.set(zmq::sockopt::linger, 0);
  std::vector<std::string> names;
  for (int i = 0; i < kWorkers; ++i) {
    names.push_back(StrCat("peer-", i));
    peers.set(zmq::sockopt::routing_id, names.back());
    peers.set(zmq::sockopt::connect_routing_id, names.back());
    peers.connect(endpoint);
  }
  for (const std::string& name : names) {
    peers.send(zmq::buffer(name), zmq::send_flags::sndmore);
    peers.send(zmq::buffer(frame), zmq::send_flags::none);
  }
  const auto take = [](zmq::socket_t& socket) {
    zmq::message_t id;
    zmq::message_t body;
    Demand(socket.recv(id) && socket.recv(body), "a message came in parts");
    Demand(DecodeMessage(body.to_string_view()).ok(), "another frame came");
  };
  for (int i = 0; i < kWorkers; ++i) take(router);
  const auto rate = [&](std::chrono::duration<double> pause) {
    std::vector<double> rates;
    for (int round = 0; round < kRounds; ++round) {
      std::this_thread::sleep_for(pause);
      std::thread sender([&] {
        for (const std::string& name : names) {
          router.send(zmq::buffer(name), zmq::send_flags::sndmore);
          router.send(zmq::buffer(frame), zmq::send_flags::none);
        }
      });
      Burst burst;
      for (int i = 0; i < kWorkers; ++i) {
        take(peers);
        burst.Heard();
      }
      rates.push_back(burst.PerSecond());
      sender.join();
    }
    return Median(rates);
  };
  using Seconds = std::chrono::duration<double>;
  return {rate(Seconds(kRound_s)), rate(Seconds(0))};
}

std::vector<Row> Rows() {
  std::vector<Row> rows;
  const Folder folder;
  {
    // Rounds and solves are an hour apart, so that no solve is measured with
    // the requests.
    const Server server(Options(folder.path() + "/requests", 3600, 3600));
    Holder holder(server.endpoint());
    Add(&rows, MeasureRequest("renewal", holder.worker, [&] {
      return *EncodeMessage(holder.Request(/*holding=*/true));
    }));
    uint64_t number = 0;
    Add(&rows, MeasureRequest("query of one job", holder.client, [&] {
      return *EncodeMessage(
          QueryRequest{++number, QueryKind::kQueue, holder.key.job});
    }));
    for (Row& row : MeasureSubmission(holder.client, folder.path())) {
      Add(&rows, std::move(row));
    }
  }
  std::string notice;
  const double ours = NoticesPerSecond(folder.path() + "/rounds", &notice);
  const BareRates bare = BareMessagesPerSecond(notice);
  const std::string name =
      StrCat("a round's notices to ", kWorkers, " workers");
  Add(&rows, {name, ours, "1/s", "a bare ROUTER, bursts as far apart",
              bare.apart, AtLeast(0.5)});
  Add(&rows, {name, ours, "1/s", "a bare ROUTER, one burst after the other",
              bare.together});
  return rows;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  const std::string out = gavel::bench::OutFile(argc, argv);
  return gavel::bench::Report(gavel::bench::Rows(), out);
}
