// Measures one coordinator under a flood of submissions, and with viewers of
// the queue that they leave: the time and the journal that a submission costs,
// the time that a page and a whole listing take, and how long workers' renewals
// and a status call wait meanwhile; then the time of an array behind them. The
// coordinator, a fleet and the viewers are threads of this process.
//
//   bench_queue [--jobs N] [--viewers N] [--check] [--out FILE.json]
//
// Every run asserts that all jobs are listed and that no worker loses its
// lease. --check watches for a shorter time, has a small array, asserts that
// times are within wide limits, because much else may run on the machine, and
// does not judge the goals.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/control_peers.h"
#include "bench/load_fleet.h"
#include "bench/table.h"
#include "core/codec.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kAccelerators = 100;
constexpr int kUnansweredMax = 64;  // submissions at once
constexpr int kBlock = 1000;        // submissions in a measured block
constexpr int kListings = 5;
constexpr std::chrono::seconds kWatch(1);
constexpr std::chrono::milliseconds kProbe(5);
constexpr double kArray_s_max = 2;
// Longer than a run: a lease then ends only when its renewal was late.
constexpr double kRound_s = 600;
constexpr double kLease_s = 6;  // renewed every two seconds

// The limits that --check asserts, in milliseconds.
constexpr double kFirstPage_ms_max = 500;
constexpr double kListing_ms_max = 4000;
constexpr double kRenewal_ms_max = 250;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kTimed = false;
#else
constexpr bool kTimed = true;
#endif

struct Options {
  int jobs = 10'000;
  int viewers = 20;
  int array = 10'000;
  double watch_s = 20;
  bool check = false;
  std::string out;
};

void DemandAtMost(const Options& options, double ms, double ms_max,
                  const std::string& what) {
  Demand(!options.check || !kTimed || ms <= ms_max,
         StrCat(what, " took ", ms, " ms"));
}

double PercentileMs(const std::vector<double>& seconds, double percent) {
  return 1000 * Percentile(seconds, percent);
}

// Runs `body` again and again until it is stopped.
class Thread {
 public:
  template <class Body>
  explicit Thread(Body body)
      : thread_([this, body = std::move(body)]() mutable {
          while (!stopping_) body();
        }) {}
  ~Thread() { Stop(); }
  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

CoordinatorServerOptions CoordinatorOptions(const std::string& state) {
  CoordinatorServerOptions options;
  options.state_directory = state;
  options.engine.round_duration_s = kRound_s;
  options.engine.lease_duration_s = kLease_s;
  return options;
}

// A client that takes answers in any order.
class Submitter {
 public:
  explicit Submitter(const std::string& endpoint) : client_(endpoint) {}

  // Returns the seconds of each block of kBlock submissions, and of the rest.
  std::vector<double> Submit(int jobs) {
    std::vector<double> blocks;
    Clock::time_point start = Clock::now();
    int sent = 0;
    for (int answered = 0; answered < jobs; ++answered) {
      while (sent < jobs && sent - answered < kUnansweredMax) Send(sent++);
      const Message answer = client_.Receive();
      const auto* reply = std::get_if<SubmitReply>(&answer);
      Demand(reply != nullptr && reply->error.empty(),
             reply == nullptr ? "another answer came" : reply->error);
      if ((answered + 1) % kBlock != 0 && answered + 1 != jobs) continue;
      blocks.push_back(SecondsSince(start));
      start = Clock::now();
    }
    return blocks;
  }

 private:
  // Jobs have one of a few kinds, as in a team.
  void Send(int number) {
    const int kind = number % 7;
    client_.Send(SubmitRequest{
        static_cast<uint64_t>(number) + 1, "job.toml",
        StrCat("name = \"job-", number,
               "\"\ncommand = [\"./train\", \"--epochs\", \"3\"]\n"
               "weight = ",
               1 + kind % 3, "\n[throughputs]\nv100 = ", 10 + kind, "\n"),
        "/jobs"});
  }

  Client client_;
};

// One listing, as `gavel queue --all` reads it: the seconds up to the first
// page and to the end.
struct Listing {
  double first_s = 0;
  double all_s = 0;
  size_t rows = 0;
};

Listing List(Client& client, const std::string& filter = "") {
  Listing listing;
  const Clock::time_point start = Clock::now();
  QueryRequest request{1, QueryKind::kQueue, JobId(), 0, filter};
  do {
    const auto page = client.Ask<QueryReply>(request);
    Demand(page.error.empty(), page.error);
    if (listing.first_s == 0) listing.first_s = SecondsSince(start);
    listing.rows += nlohmann::json::parse(page.json).size();
    request.cursor = page.next_cursor;
    ++request.request;
  } while (request.cursor != 0);
  listing.all_s = SecondsSince(start);
  return listing;
}

// Makes status calls one after the other, and records how long each one waits.
class Probe {
 public:
  explicit Probe(const std::string& endpoint)
      : client_(endpoint), thread_([this] {
          const Clock::time_point start = Clock::now();
          client_.Ask<QueryReply>(
              QueryRequest{1, QueryKind::kStatus, JobId(), 0});
          waits_s_.push_back(SecondsSince(start));
          std::this_thread::sleep_for(kProbe);
        }) {}
  std::vector<double> Take() {
    thread_.Stop();
    return std::move(waits_s_);
  }

 private:
  Client client_;
  std::vector<double> waits_s_;
  Thread thread_;
};

uint64_t BytesUnder(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

// Runs a fleet and records its renewals, in seconds.
class Renewals {
 public:
  explicit Renewals(const std::string& endpoint) : fleet_(OptionsOf(endpoint)) {
    Demand(fleet_.Run(kPatience_s, [&] { return fleet_.agents_welcome() > 0; }),
           "no agent is welcome");
    thread_ = std::thread([this] {
      fleet_.Run(1e9, [this] {
        if (wanted_.exchange(false)) {
          taken_ = std::exchange(fleet_.renewals_s(), {});
          given_ = true;
        }
        running_ = fleet_.running();
        return stopping_.load();
      });
    });
  }
  ~Renewals() {
    stopping_ = true;
    thread_.join();
  }
  void WaitUntilRunning() {
    const Clock::time_point start = Clock::now();
    while (running_ < kAccelerators) {
      Demand(SecondsSince(start) < kPatience_s,
             StrCat("only ", running_.load(), " workers run"));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  // Returns the renewals since the last call.
  std::vector<double> Take() {
    given_ = false;
    wanted_ = true;
    while (!given_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::move(taken_);
  }
  uint64_t leases_ended() const { return fleet_.leases_ended(); }

 private:
  static FleetOptions OptionsOf(const std::string& endpoint) {
    FleetOptions options;
    options.endpoint = endpoint;
    options.accelerators = kAccelerators;
    return options;
  }
  Fleet fleet_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> wanted_{false};
  std::atomic<bool> given_{false};
  std::atomic<int> running_{0};
  std::vector<double> taken_;
  std::thread thread_;
};

// The seconds of `gavel submit` with an array of so many jobs, and those of
// `gavel cancel` with its name.
struct ArrayTimes {
  double submit_s = 0;
  double find_s = 0;  // the array by its name, before it is cancelled
  double cancel_s = 0;
};

ArrayTimes TimeArray(Client& client, int elements) {
  ArrayTimes times;
  Clock::time_point start = Clock::now();
  const auto submitted = client.Ask<SubmitReply>(SubmitRequest{
      1, "array.toml",
      StrCat("name = \"array\"\narray = \"0-", elements - 1,
             "\"\ncommand = [\"./train\"]\n[throughputs]\nv100 = 10\n"),
      "/jobs"});
  times.submit_s = SecondsSince(start);
  Demand(submitted.error.empty(), submitted.error);

  start = Clock::now();
  // As Client::Resolve of the command line.
  const Listing listing =
      List(client, R"({"name": "array", "own": true, "one_of_array": true})");
  times.find_s = SecondsSince(start);
  CommandRequest cancel;
  cancel.job = submitted.job;
  const auto cancelled = client.Ask<CommandReply>(cancel);
  times.cancel_s = SecondsSince(start);
  Demand(cancelled.error.empty(), cancelled.error);
  Demand(listing.rows == 1, StrCat(listing.rows, " rows stand for the array"));
  return times;
}

std::vector<Row> Rows(const Options& options) {
  std::vector<Row> rows;
  const auto add = [&rows](Row row) { Add(&rows, std::move(row)); };
  const Folder folder;
  {
    const Server coordinator(CoordinatorOptions(folder.path()));
    Renewals renewals(coordinator.endpoint());
    Probe during(coordinator.endpoint());
    const std::vector<double> blocks =
        Submitter(coordinator.endpoint()).Submit(options.jobs);
    std::vector<double> waits = during.Take();
    const double jobs = options.jobs;
    double all_s = 0;
    for (const double block : blocks) all_s += block;
    const double slowest = *std::max_element(blocks.begin(), blocks.end());
    const double block_jobs = std::min<double>(kBlock, jobs);
    add({StrCat(options.jobs, " submissions"), jobs / all_s, "1/s"});
    add({StrCat("the slowest ", block_jobs, " of them"), block_jobs / slowest,
         "1/s", "400 a second", 400, AtLeast(1)});
    add({"a status call meanwhile, longest", PercentileMs(waits, 100), "ms"});
    renewals.WaitUntilRunning();
    std::this_thread::sleep_for(kWatch);
    add({"state directory",
         static_cast<double>(BytesUnder(folder.path())) / 1e6, "MB", "", 0,
         ValueAtMost(60)});

    Client viewer(coordinator.endpoint());
    std::vector<double> first;
    std::vector<double> whole;
    for (int i = 0; i < kListings; ++i) {
      const Listing listing = List(viewer);
      Demand(listing.rows == static_cast<size_t>(options.jobs),
             StrCat(listing.rows, " rows were listed"));
      first.push_back(1000 * listing.first_s);
      whole.push_back(1000 * listing.all_s);
      std::this_thread::sleep_for(kWatch);
    }
    add({"first page of the queue", Median(first), "ms", "", 0,
         ValueAtMost(100)});
    add({"the whole queue", Median(whole), "ms", "", 0, ValueAtMost(1000)});

    DemandAtMost(options, std::ranges::min(first), kFirstPage_ms_max,
                 "the first page");
    DemandAtMost(options, std::ranges::min(whole), kListing_ms_max,
                 "the whole queue");

    const std::chrono::duration<double> watch(options.watch_s);
    renewals.Take();
    std::this_thread::sleep_for(watch);
    const double alone_ms = PercentileMs(renewals.Take(), 99);
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::unique_ptr<Thread>> threads;
    std::atomic<int> listings = 0;
    for (int i = 0; i < options.viewers; ++i) {
      clients.push_back(std::make_unique<Client>(coordinator.endpoint()));
      Client* client = clients.back().get();
      threads.push_back(std::make_unique<Thread>([client, &listings] {
        List(*client);
        ++listings;
        std::this_thread::sleep_for(kWatch);
      }));
    }
    Probe beside(coordinator.endpoint());
    std::this_thread::sleep_for(watch);
    const std::vector<double> watched = renewals.Take();
    waits = beside.Take();
    for (auto& thread : threads) thread->Stop();
    add({StrCat("renewals, p99 with ", options.viewers, " viewers"),
         PercentileMs(watched, 99), "ms", "without them", alone_ms,
         ValueAtMost(50)});
    DemandAtMost(options, PercentileMs(watched, 99), kRenewal_ms_max,
                 "1 of 100 renewals beside viewers");
    Demand(listings > 0 && !watched.empty(), "viewers and workers go on");
    add({"a status call beside them, longest", PercentileMs(waits, 100), "ms"});
    add({"whole listings of each viewer",
         listings / options.watch_s / std::max(1, options.viewers), "1/s"});

    Probe beside_array(coordinator.endpoint());
    const ArrayTimes array = TimeArray(viewer, options.array);
    waits = beside_array.Take();
    add({StrCat("submit an array of ", options.array), array.submit_s, "s", "",
         0, ValueAtMost(kArray_s_max)});
    add({"cancel it by name", array.cancel_s, "s", "to find it", array.find_s,
         ValueAtMost(kArray_s_max)});
    add({"a status call meanwhile, longest", PercentileMs(waits, 100), "ms"});
    Demand(renewals.leases_ended() == 0, "a lease ended before its renewal");
  }
  return rows;
}

Options ReadOptions(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--jobs", &options.jobs},
             {"--viewers", &options.viewers},
             {"--check", &options.check},
             {"--out", &options.out}});
  options.jobs = std::max(kAccelerators, options.jobs);
  if (options.check) {
    options.watch_s = 8;
    options.array = 1'000;
  }
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const Options options = ReadOptions(argc, argv);
  const std::vector<Row> rows = Rows(options);
  if (!options.check) return Report(rows, options.out);
  Print(rows);
  return 0;
}
