// Measures what the dashboard costs a real `gavel coordinator --http`: its
// memory and processor when there is nothing to show, the time of a scrape and
// of each document while jobs wait, what browsers that follow the cluster cost
// the renewals of leases, and what 1,000 slow clients do. Workers are a fleet
// in a process of its own (load_processes.h).
//
//   bench_dashboard [--jobs N] [--browsers N] [--slow N] [--watch S]
//                   [--check] [--out FILE.json]
//   bench_dashboard --serve [--jobs N] [--round S]
//
// A browser here is a connection that follows the events, and reads the
// documents of one of the five pages as api.js of the pages does; it draws
// nothing. Renewals are watched in turns without and with browsers (--watch:
// the seconds of each turn), because other work on the machine comes and goes.
// A job is held or released each second in both.
//
// --check is a short run that judges no times. --serve starts the coordinator
// with jobs and workers, prints its addresses as JSON, and ends with its
// standard input: tests of the pages use it.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/coordinator_process.h"
#include "bench/load_fleet.h"
#include "bench/load_processes.h"
#include "bench/table.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/transport/socket_options.h"
#include "tests/http/raw_http.h"

namespace gavel::bench {
namespace {

using testing::Get;
using testing::ParseAnswer;
using testing::RawAnswer;
using testing::RawConnection;

constexpr int kAccelerators = 100;
constexpr int kTurns = 3;       // without browsers, and with them
constexpr double kLease_s = 6;  // renewed every two seconds
constexpr double kSettle_s = 2;
constexpr double kChange_s = 1;  // between two jobs that are held or released
constexpr int kDocumentReads = 5;
constexpr int kScrapes = 15;
// SharedDocuments holds an answer this many times as long as its making took.
constexpr double kHoldFactor = 5;
constexpr double kHold_s = 0.5;

struct Options {
  int jobs = 10'000;
  int browsers = 50;
  int slow = 1000;
  double watch_s = 20;
  // Longer than a run: a lease then ends only when its renewal was late.
  double round_s = 3600;
  bool check = false;
  bool serve = false;
  std::string out;
};

void Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double MillisecondsSince(Clock::time_point start) {
  return SecondsSince(start) * 1e3;
}

// The dashboard's port, and a token by which its holder acts.
struct DashboardLink {
  int port = 0;
  std::string url;  // ends with "/"
  std::string token;
};

DashboardLink LinkOf(Dealer& client) {
  const nlohmann::json link = Query(client, QueryKind::kDashboard);
  Demand(link.contains("url") && link.contains("token"),
         StrCat("a link to the dashboard: ", link.dump()));
  std::string url = link["url"];
  return {testing::PortOf(url.substr(0, url.rfind('/'))), url, link["token"]};
}

std::string Scheduling(double round_s) {
  return StrCat("round_duration_s = ", round_s,
                "\nlease_duration_s = ", kLease_s, "\n");
}

// Jobs have one of a few kinds, as in a team.
std::string JobFile(int number) {
  constexpr std::array<const char*, 3> kApps = {"search", "speech", "vision"};
  return StrCat("name = \"job-", number, "\"\ncommand = [\"./train\"]\n",
                "app = \"", kApps[static_cast<size_t>(number) % kApps.size()],
                "\"\nsteps_total = 1000000\n[throughputs]\nv100 = ",
                10 + number % 7, "\n");
}

// ---- A coordinator that has nothing to do

struct Idle {
  double resident_mb = 0;
  double processor_percent = 0;
};

Idle IdleOf(pid_t pid, double processor_before_s, double span_s) {
  return {ResidentKb(pid) / 1024,
          100 * (ProcessorSeconds(pid) - processor_before_s) / span_s};
}

// With and without --http, side by side.
void MeasureIdle(const Options& options, std::vector<Row>* rows) {
  const double span_s = options.check ? 3 : 30;
  const Folder with_folder;
  const Folder without_folder;
  const std::string scheduling = Scheduling(options.round_s);
  CoordinatorProcess with(with_folder.path(), scheduling,
                          {"--http", "127.0.0.1:0"});
  CoordinatorProcess without(without_folder.path(), scheduling, {});
  with.Start();
  without.Start();
  Sleep(kSettle_s);
  const double with_before_s = ProcessorSeconds(with.pid());
  const double without_before_s = ProcessorSeconds(without.pid());
  Sleep(span_s);
  const Idle dashboard = IdleOf(with.pid(), with_before_s, span_s);
  const Idle bare = IdleOf(without.pid(), without_before_s, span_s);
  constexpr char kPeer[] = "without --http";
  Add(rows, {"no job: memory", dashboard.resident_mb, "MB", kPeer,
             bare.resident_mb, ValueAtMost(30)});
  Add(rows, {"no job: processor", dashboard.processor_percent, "%", kPeer,
             bare.processor_percent, ValueAtMost(0.5)});

  // One browser looks at the cluster.
  const auto client = ConnectClient(with.endpoint());
  const DashboardLink link = LinkOf(*client);
  const RawConnection browser(link.port);
  browser.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  Sleep(kSettle_s);
  const double watched_before_s = ProcessorSeconds(with.pid());
  Sleep(span_s);
  const Idle watched = IdleOf(with.pid(), watched_before_s, span_s);
  Add(rows, {"no job, a browser looks: memory", watched.resident_mb, "MB",
             "nobody looks", dashboard.resident_mb});
  Add(rows, {"no job, a browser looks: processor", watched.processor_percent,
             "%", "nobody looks", dashboard.processor_percent});
}

// ---- Documents

// Reads a document that nobody else has just read, and returns the
// milliseconds.
double TimeOf(int port, const std::string& path, size_t* bytes = nullptr) {
  const Clock::time_point start = Clock::now();
  const RawAnswer answer = Get(port, path);
  const double took_ms = MillisecondsSince(start);
  Demand(
      answer.code == 200,
      StrCat(path, " answers ", answer.code, ": ",
             answer.body.substr(0, std::min<size_t>(200, answer.body.size()))));
  if (bytes != nullptr) *bytes = answer.body.size();
  Sleep(std::max(kHold_s, 1.1 * kHoldFactor * took_ms / 1e3));
  return took_ms;
}

std::string JobsPath(uint64_t cursor) {
  return cursor == 0 ? "/api/jobs?limit=1000"
                     : StrCat("/api/jobs?limit=1000&cursor=", cursor);
}

// The cursor of the page behind this one; 0: it was the last. Browsers of this
// program do not parse the page, because they share the machine.
uint64_t NextCursor(const std::string& page) {
  constexpr std::string_view kKey = "\"next_cursor\":";
  const size_t at = page.rfind(kKey);
  return at == std::string::npos
             ? 0
             : std::strtoull(page.c_str() + at + kKey.size(), nullptr, 10);
}

// Reads all pages of the listing. Returns whether each was given.
bool ListJobs(int port, size_t* bytes) {
  uint64_t cursor = 0;
  do {
    const RawAnswer page = Get(port, JobsPath(cursor));
    if (page.code != 200) return false;
    *bytes += page.body.size();
    cursor = NextCursor(page.body);
  } while (cursor != 0);
  return true;
}

// Jobs that have workers, and so a log.
std::vector<uint64_t> RunningJobs(int port) {
  const RawAnswer answer = Get(port, "/api/jobs?state=R&limit=1000");
  const auto page = nlohmann::json::parse(answer.body, nullptr,
                                          /*allow_exceptions=*/false);
  Demand(page.is_object() && page.contains("jobs") && !page["jobs"].empty(),
         StrCat("running jobs are listed: ", answer.code));
  std::vector<uint64_t> ids;
  for (const nlohmann::json& job : page["jobs"]) ids.push_back(job["id"]);
  return ids;
}

void MeasureDocuments(const Options& options, int port,
                      std::vector<Row>* rows) {
  const int scrapes = options.check ? 2 : kScrapes;
  std::vector<double> times_ms;
  size_t bytes = 0;
  for (int i = 0; i < scrapes; ++i) {
    times_ms.push_back(TimeOf(port, "/metrics", &bytes));
  }
  const std::string jobs = StrCat(options.jobs, " jobs: ");
  Add(rows, {jobs + "a scrape, median", Median(times_ms), "ms", "", 0,
             ValueAtMost(100)});
  Add(rows, {jobs + "a scrape, longest", Percentile(times_ms, 100), "ms", "", 0,
             ValueAtMost(100)});
  Add(rows, {jobs + "a scrape, size", static_cast<double>(bytes) / 1e3, "KB"});

  const int reads = options.check ? 1 : kDocumentReads;
  const std::string running = StrCat(RunningJobs(port).front());
  for (const std::string_view name :
       {"/", "/chart.umd.js", "/api/status", "/api/nodes",
        "/api/jobs?limit=1000", "/api/job/ID", "/api/job/ID/log?tail=200",
        "/api/job/ID/loss", "/api/fairness", "/api/policy", "/api/apps"}) {
    std::string path(name);
    if (const size_t id = path.find("ID"); id != std::string::npos) {
      path.replace(id, 2, running);
    }
    times_ms.clear();
    for (int i = 0; i < reads; ++i) times_ms.push_back(TimeOf(port, path));
    Add(rows, {StrCat(jobs, name), Median(times_ms), "ms"});
  }
  times_ms.clear();
  for (int i = 0; i < reads; ++i) {
    const Clock::time_point start = Clock::now();
    bytes = 0;
    Demand(ListJobs(port, &bytes), "all jobs are listed");
    times_ms.push_back(MillisecondsSince(start));
    Sleep(kHold_s);
  }
  Add(rows, {jobs + "the whole list", Median(times_ms), "ms"});
  Add(rows,
      {jobs + "the whole list, size", static_cast<double>(bytes) / 1e6, "MB"});
}

// ---- Browsers

// The requests of all browsers of a turn.
struct Reads {
  std::atomic<int> documents{0};
  std::atomic<int> failed{0};
  std::atomic<int> events{0};
  std::atomic<int> lost{0};  // streams of events that were cut
};

class Browser {
 public:
  // Shows one of the five pages; `job` is that of the job's page.
  Browser(int port, int page, uint64_t job, Reads& reads)
      : port_(port), page_(page), job_(job), reads_(reads) {}

  void Run(const std::atomic<bool>& stopping) {
    for (const char* file : {"/", "/app.js", "/style.css", "/chart.umd.js"}) {
      Read(file);
    }
    while (!stopping) {
      Follow(stopping);
      if (stopping) return;
      ++reads_.lost;
      Sleep(1);
    }
  }

 private:
  // Follows one stream of events until it ends. Poll of api.js: after each
  // event the documents are read, never twice at once, and then not for ten
  // times as long as that took.
  void Follow(const std::atomic<bool>& stopping) {
    constexpr double kPause = 10;
    constexpr double kPause_s_max = 10;
    RawConnection stream(port_);
    stream.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    bool again = false;
    double due = 0;
    while (!stopping && !stream.closed()) {
      const double wait = again ? due - testing::Seconds() : 1;
      if (wait > 0 && stream.Take(std::min(1.0, wait)).find("event: update") !=
                          std::string::npos) {
        ++reads_.events;
        again = true;
      }
      if (!again || testing::Seconds() < due) continue;
      again = false;
      const double begun = testing::Seconds();
      LoadPage();
      const double end = testing::Seconds();
      due = end + std::min(kPause_s_max, kPause * (end - begun));
    }
  }

  void LoadPage() {
    switch (page_) {
      case 0:
        return Read("/api/nodes");
      case 1:
        return List();
      case 2:
        return LoadJob();
      case 3:
        Read("/api/fairness");
        return List();
      default:
        return Read("/api/policy");
    }
  }

  // Its output and losses change with each step, and are read more rarely.
  void LoadJob() {
    constexpr double kLogPause_s = 3;
    const std::string path = StrCat("/api/job/", job_);
    Read(path);
    if (testing::Seconds() < log_due_) return;
    log_due_ = testing::Seconds() + kLogPause_s;
    Read(path + "/log?tail=200");
    Read(path + "/loss");
  }

  void List() {
    size_t bytes = 0;
    Count(ListJobs(port_, &bytes));
  }
  void Read(const std::string& path) { Count(Get(port_, path).code == 200); }
  void Count(bool read) { ++(read ? reads_.documents : reads_.failed); }

  const int port_;
  const int page_;
  const uint64_t job_;
  Reads& reads_;
  double log_due_ = 0;
};

// As many browsers on threads of their own, while this lives. They stand for
// people's machines, so they leave the processor to the coordinator.
class Browsers {
 public:
  Browsers(int port, int count, Reads& reads) : jobs_(RunningJobs(port)) {
    for (int i = 0; i < count; ++i) {
      const uint64_t job = jobs_[static_cast<size_t>(i) % jobs_.size()];
      threads_.emplace_back([this, port, i, job, &reads] {
        constexpr int kLowest = 19;
        setpriority(PRIO_PROCESS, 0, kLowest);  // 0: this thread
        Browser(port, i % 5, job, reads).Run(stopping_);
      });
    }
  }
  ~Browsers() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  const std::vector<uint64_t> jobs_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// Holds and releases a job in turn, and finds out how soon a browser knows.
class Changes {
 public:
  Changes(const std::string& endpoint, int port, uint64_t job)
      : endpoint_(endpoint),
        port_(port),
        job_(job),
        thread_([this] { Run(); }) {}
  ~Changes() {
    stopping_ = true;
    thread_.join();
  }
  // Whether a browser is there to be told.
  void Watch(bool watches) { watches_ = watches; }
  std::vector<double> delays_s() const {
    const std::lock_guard lock(mutex_);
    return delays_s_;
  }

 private:
  void Run() {
    const auto client = ConnectClient(endpoint_);
    std::optional<RawConnection> stream;
    for (int turn = 0; !stopping_; ++turn) {
      if (watches_ && !stream.has_value()) {
        stream.emplace(port_);
        stream->Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        stream->Take(kPatience_s);
      } else if (!watches_) {
        stream.reset();
      }
      const Clock::time_point start = Clock::now();
      const bool holds = turn % 2 == 0;
      CommandRequest command;
      command.kind = holds ? CommandKind::kHold : CommandKind::kRelease;
      command.job = JobId(job_);
      Command(*client, command);
      if (stream.has_value()) {
        Await(*stream, holds ? "\"F\":1" : "\"F\":0", start);
      }
      // At another part of the interval of events each time.
      constexpr int kParts = 7;
      const double part = 1 + 0.1 * (turn % kParts);
      Sleep(std::max(0.0, part * kChange_s - SecondsSince(start)));
    }
  }
  void Await(RawConnection& stream, std::string_view mark,
             Clock::time_point start) {
    std::string text;
    while (text.find(mark) == std::string::npos) {
      text += stream.Take(1);
      if (stream.closed() || SecondsSince(start) > kPatience_s) return;
    }
    const std::lock_guard lock(mutex_);
    delays_s_.push_back(SecondsSince(start));
  }

  const std::string endpoint_;
  const int port_;
  const uint64_t job_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> watches_{false};
  mutable std::mutex mutex_;  // guards the next
  std::vector<double> delays_s_;
  std::thread thread_;
};

// Renewals and processor time of a turn, or of several.
struct Turns {
  std::vector<double> renewals_s;
  double processor_s = 0;
  double span_s = 0;

  double RenewalMs(double percent) const {
    return 1e3 * Percentile(renewals_s, percent);
  }
  double cores() const { return processor_s / span_s; }

  void Watch(FleetProcesses& fleet, pid_t coordinator, double watch_s) {
    fleet.Wait(kSettle_s, [] { return false; });
    fleet.ClearRenewals();
    const double before_s = ProcessorSeconds(coordinator);
    const Clock::time_point start = Clock::now();
    fleet.Wait(watch_s, [] { return false; });
    span_s += SecondsSince(start);
    processor_s += ProcessorSeconds(coordinator) - before_s;
    const std::vector<double> taken = fleet.renewals_s();
    renewals_s.insert(renewals_s.end(), taken.begin(), taken.end());
  }
};

void AddRenewals(const std::string& name, const Turns& beside,
                 const Turns& alone, const std::string& peer, const Goal& goal,
                 std::vector<Row>* rows) {
  Demand(!alone.renewals_s.empty() && !beside.renewals_s.empty(),
         "leases are renewed");
  for (const double percent : {50, 99, 100}) {
    Add(rows,
        {StrCat(name, percent == 100 ? "longest renewal"
                                     : StrCat("renewals, p", percent)),
         beside.RenewalMs(percent), "ms", peer, alone.RenewalMs(percent)});
  }
  Add(rows, {StrCat(name, "added to the p99"),
             std::max(0.0, beside.RenewalMs(99) - alone.RenewalMs(99)), "ms",
             "", 0, goal});
  Add(rows, {StrCat(name, "the coordinator's processor"), beside.cores(),
             "cores", peer, alone.cores()});
}

// Returns the turns without browsers.
Turns MeasureBrowsers(const Options& options,
                      const CoordinatorProcess& coordinator, int port,
                      FleetProcesses& fleet, std::vector<Row>* rows) {
  Turns alone;
  Turns beside;
  Reads reads;
  double browsed_s = 0;  // the sum over the browsers
  Changes changes(coordinator.endpoint(), port,
                  static_cast<uint64_t>(options.jobs));
  for (int turn = 0; turn < (options.check ? 1 : kTurns); ++turn) {
    alone.Watch(fleet, coordinator.pid(), options.watch_s);
    const Clock::time_point start = Clock::now();
    changes.Watch(true);
    const Browsers browsers(port, options.browsers, reads);
    beside.Watch(fleet, coordinator.pid(), options.watch_s);
    changes.Watch(false);
    browsed_s += SecondsSince(start) * options.browsers;
  }
  const std::string name = StrCat(options.browsers, " browsers: ");
  AddRenewals(name, beside, alone, "without them", ValueAtMost(5), rows);
  const std::vector<double> delays_s = changes.delays_s();
  Demand(!delays_s.empty(), "changes are told");
  Add(rows, {name + "a change is told, median", 1e3 * Median(delays_s), "ms"});
  Add(rows, {name + "a change is told, longest",
             1e3 * Percentile(delays_s, 100), "ms", "", 0, ValueAtMost(1000)});
  Add(rows, {name + "events of each", reads.events / browsed_s, "1/s"});
  Add(rows, {name + "documents of each", reads.documents / browsed_s, "1/s"});
  Add(rows, {name + "documents refused, streams cut",
             static_cast<double>(reads.failed + reads.lost), "", "", 0,
             ValueAtMost(0)});
  Add(rows, {name + "memory of the coordinator",
             ResidentKb(coordinator.pid()) / 1024, "MB"});
  Demand(reads.documents > 0 && reads.events > 0, "browsers are served");
  return alone;
}

// ---- Clients that mean no good

// Each sends a byte of its request each second, and comes back when it is
// refused or cut.
class SlowClients {
 public:
  SlowClients(int port, int count)
      : port_(port),
        clients_(static_cast<size_t>(count)),
        thread_([this] { Run(); }) {}
  ~SlowClients() {
    if (thread_.joinable()) Stop();
  }
  void Stop() {
    stopping_ = true;
    thread_.join();
  }
  // After Stop.
  int refused() const { return refused_; }
  int cut() const { return cut_; }
  double longest_s() const { return longest_s_; }

 private:
  struct Client {
    std::unique_ptr<RawConnection> connection;
    double since = 0;  // or, without a connection, when it comes back
    double next_byte = 0;
  };

  void Run() {
    while (!stopping_) {
      for (Client& client : clients_) Turn(client);
      Sleep(0.02);
    }
    const double now = testing::Seconds();
    for (const Client& client : clients_) {
      if (client.connection != nullptr) {
        longest_s_ = std::max(longest_s_, now - client.since);
      }
    }
    clients_.clear();
  }

  void Turn(Client& client) {
    const double now = testing::Seconds();
    if (client.connection == nullptr) {
      if (now < client.since) return;
      client.connection = std::make_unique<RawConnection>(port_);
      client.since = now;
      client.next_byte = now + 1;
      client.connection->Send("GET /api/status HTTP/1.1\r\nX-Slow: ");
      return;
    }
    const std::string got = client.connection->Take(0);
    if (got.empty() && !client.connection->closed()) {
      if (now < client.next_byte) return;
      client.next_byte = now + 1;
      client.connection->Send("a");
      return;
    }
    ++(got.find(" 503 ") != std::string::npos ? refused_ : cut_);
    longest_s_ = std::max(longest_s_, now - client.since);
    client.connection.reset();
    client.since = now + 1;
  }

  const int port_;
  std::vector<Client> clients_;
  int refused_ = 0;
  int cut_ = 0;
  double longest_s_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Asks as a good client does, which comes back a second after a refusal, until
// `stopping`. Returns the seconds up to each answer.
std::vector<double> AskBeside(int port, const std::atomic<bool>& stopping) {
  std::vector<double> waits_s;
  Clock::time_point start = Clock::now();
  while (!stopping) {
    if (Get(port, "/healthz").code == 200) {
      waits_s.push_back(SecondsSince(start));
      Sleep(0.5);
      start = Clock::now();
    } else {
      Sleep(1);
    }
  }
  return waits_s;
}

void MeasureSlowClients(const Options& options, pid_t coordinator, int port,
                        const Turns& alone, FleetProcesses& fleet,
                        std::vector<Row>* rows) {
  // As in HttpTimes::request_s_max, and a moment for a busy machine.
  constexpr double kLife_s_max = 11;
  const double before_mb = ResidentKb(coordinator) / 1024;
  SlowClients slow(port, options.slow);
  std::atomic<bool> stopping{false};
  std::vector<double> waits_s;
  std::thread good([&] { waits_s = AskBeside(port, stopping); });
  Turns beside;
  beside.Watch(fleet, coordinator, options.watch_s);
  const double after_mb = ResidentKb(coordinator) / 1024;
  stopping = true;
  good.join();
  slow.Stop();
  const Clock::time_point start = Clock::now();
  while (Get(port, "/healthz").code != 200) {
    Demand(SecondsSince(start) < kPatience_s, "the dashboard answers again");
    Sleep(0.02);
  }
  const double again_ms = MillisecondsSince(start);

  const std::string name = StrCat(options.slow, " slow clients: ");
  Add(rows, {name + "refused with 503", slow.refused() / beside.span_s, "1/s"});
  Add(rows, {name + "cut", slow.cut() / beside.span_s, "1/s"});
  Add(rows, {name + "longest connection", slow.longest_s(), "s", "", 0,
             ValueAtMost(kLife_s_max)});
  Add(rows, {name + "growth of memory", std::max(0.0, after_mb - before_mb),
             "MB", "", 0, ValueAtMost(64)});
  AddRenewals(name, beside, alone, "without them", {}, rows);
  Add(rows, {name + "others are answered", static_cast<double>(waits_s.size()),
             "times"});
  Add(rows, {name + "others are answered after, longest",
             waits_s.empty() ? -1 : Percentile(waits_s, 100), "s"});
  Add(rows, {name + "answers after they left", again_ms, "ms", "", 0,
             ValueAtMost(2000)});
}

// Ends the program where one is not refused.
void MeasureRefusals(const DashboardLink& link, std::vector<Row>* rows) {
  double longest_ms = 0;
  const auto refused = [&](const std::string& what, auto ask) {
    const Clock::time_point start = Clock::now();
    const RawAnswer answer = ask();
    longest_ms = std::max(longest_ms, MillisecondsSince(start));
    Demand(answer.code != 200 && answer.body.find("root:") == std::string::npos,
           StrCat(what, " is answered with ", answer.code));
  };
  refused("a header of 1 MB", [&] {
    return testing::Exchange(link.port, "GET /",
                             StrCat("Host: 127.0.0.1\r\nX-Huge: ",
                                    std::string(1 << 20, 'a'), "\r\n"));
  });
  for (const char* path :
       {"/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd", "//etc/passwd",
        "/api/job/..%2f..%2fetc%2fpasswd/log"}) {
    refused(path, [&] { return Get(link.port, path); });
  }
  refused("an action of another site", [&] {
    return testing::Post(link.port, link.token,
                         R"({"action":"hold","target":"1"})",
                         "Origin: http://evil.example\r\n");
  });
  refused("an action without a token", [&] {
    return testing::Post(link.port, "", R"({"action":"hold","target":"1"})");
  });
  Add(rows, {"huge headers, foreign paths, other sites: longest refusal",
             longest_ms, "ms", "", 0, ValueAtMost(1000)});
}

// ---- The whole run

FleetOptions FleetOf() {
  FleetOptions fleet;
  fleet.accelerators = kAccelerators;
  return fleet;
}

// The coordinator has the jobs, and as many of them run as there are
// accelerators.
void FillCluster(const Options& options, const CoordinatorProcess& coordinator,
                 Dealer& client, FleetProcesses& fleet) {
  SubmitJobs(client, options.jobs, JobFile);
  fleet.Start(coordinator.endpoint());
  const bool all_run =
      fleet.Wait(kPatience_s, [&] { return fleet.running() >= kAccelerators; });
  Demand(all_run, StrCat("all accelerators are in use: ", fleet.running(), "\n",
                         coordinator.errors()));
}

std::vector<Row> Measure(const Options& options) {
  std::vector<Row> rows;
  // Forks, so it comes before this process has threads.
  FleetProcesses fleet(1, FleetOf());
  MeasureIdle(options, &rows);
  const Folder folder;
  CoordinatorProcess coordinator(folder.path(), Scheduling(options.round_s),
                                 {"--http", "127.0.0.1:0"});
  coordinator.Start();
  const auto client = ConnectClient(coordinator.endpoint());
  FillCluster(options, coordinator, *client, fleet);
  const DashboardLink link = LinkOf(*client);
  MeasureDocuments(options, link.port, &rows);
  const Turns alone =
      MeasureBrowsers(options, coordinator, link.port, fleet, &rows);
  MeasureSlowClients(options, coordinator.pid(), link.port, alone, fleet,
                     &rows);
  MeasureRefusals(link, &rows);
  Demand(fleet.leases_ended() == 0, "a lease ended before its renewal");
  return rows;
}

void Serve(const Options& options) {
  FleetProcesses fleet(1, FleetOf());
  const Folder folder;
  CoordinatorProcess coordinator(folder.path(), Scheduling(options.round_s),
                                 {"--http", "127.0.0.1:0"});
  coordinator.Start();
  const auto client = ConnectClient(coordinator.endpoint());
  FillCluster(options, coordinator, *client, fleet);
  const DashboardLink link = LinkOf(*client);
  std::printf("%s\n", nlohmann::ordered_json{{"url", link.url},
                                             {"token", link.token},
                                             {"jobs", options.jobs}}
                          .dump()
                          .c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
}

Options Parse(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--jobs", &options.jobs},
             {"--browsers", &options.browsers},
             {"--slow", &options.slow},
             {"--watch", &options.watch_s},
             {"--round", &options.round_s},
             {"--check", &options.check},
             {"--serve", &options.serve},
             {"--out", &options.out}});
  if (options.browsers < 1 || options.slow < 1) {
    Die("give at least one of --browsers and of --slow");
  }
  if (options.jobs <= kAccelerators) {
    Die(StrCat("--jobs ", options.jobs,
               " leaves no job that waits: give more "
               "than ",
               kAccelerators));
  }
  if (options.check) {
    options.jobs = std::min(options.jobs, 1000);
    options.browsers = std::min(options.browsers, 10);
    options.slow = std::min(options.slow, 300);
    options.watch_s = std::min(options.watch_s, 5.0);
  }
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const Options options = Parse(argc, argv);
  gavel::transport::RaiseDescriptorLimit();
  if (options.serve) {
    Serve(options);
    return 0;
  }
  const std::vector<Row> rows = Measure(options);
  if (!options.check) return Report(rows, options.out);
  Print(rows);
  return 0;
}
