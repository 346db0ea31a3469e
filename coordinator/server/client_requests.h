// Requests of the `gavel` command line and their answers (ClientRequests), with
// the pending requests (PendingTable) and the counts of refused messages
// (WireReport).
#ifndef GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_
#define GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/audit_log.h"
#include "coordinator/server/limits.h"
#include "coordinator/server/peer_links.h"
#include "coordinator/server/principals.h"
#include "coordinator/server/query.h"
#include "coordinator/server/queue_view.h"
#include "coordinator/server/rows.h"
#include "core/messages.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

// Requests that wait for an answer from elsewhere (the journal, an agent), by a
// handle of our own. The coordinator's event loop owns one of each kind. Not
// thread-safe.
template <class T>
class PendingTable {
 public:
  explicit PendingTable(size_t entries_max) : entries_max_(entries_max) {}

  // A new handle, never 0 and never used before. Nothing when the table is
  // full: refuse the request. `now` never falls.
  std::optional<uint64_t> Add(Time now, T value) {
    if (entries_.size() >= entries_max_) return std::nullopt;
    entries_.emplace(++last_handle_, Entry{now, std::move(value)});
    return last_handle_;
  }

  const T* Find(uint64_t handle) const {
    const auto it = entries_.find(handle);
    return it == entries_.end() ? nullptr : &it->second.value;
  }

  std::optional<T> Take(uint64_t handle) {
    auto node = entries_.extract(handle);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped().value);
  }

  // The oldest entry, if it was added before `limit`.
  std::optional<T> TakeOlderThan(Time limit) {
    if (entries_.empty() || entries_.begin()->second.since >= limit) {
      return std::nullopt;
    }
    return Take(entries_.begin()->first);
  }

  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Time since = 0;
    T value;
  };
  size_t entries_max_;
  uint64_t last_handle_ = 0;
  std::map<uint64_t, Entry> entries_;  // handles rise with time
};

// Counts of refused frames, messages and connections (WireCounts), and the
// log's line about them. Values.

inline WireCounts CountsOf(const Router& router, uint64_t messages_refused) {
  return {router.frames_dropped(), messages_refused,
          router.connections_refused(), router.connections_cut(),
          router.handshakes_failed()};
}

// The log's line, at most once a minute.
class WireReport {
 public:
  static constexpr double kInterval_s = 60;
  // Fewer new ones are no reason for a line: checks of whether the port is open
  // break their handshakes off.
  static constexpr uint64_t kHandshakesToTell = 100;

  std::optional<std::string> Next(Time now, const WireCounts& counts) {
    if (now < next_at_ || !IsNews(counts)) return std::nullopt;
    next_at_ = now + kInterval_s;
    const auto part = [](uint64_t all, uint64_t before) {
      return StrCat(all, " (", all - before, " new)");
    };
    const std::string line =
        StrCat("kept out so far: frames dropped ",
               part(counts.frames_dropped, told_.frames_dropped),
               ", messages refused ",
               part(counts.messages_refused, told_.messages_refused),
               ", connections refused ",
               part(counts.connections_refused, told_.connections_refused),
               ", connections cut ",
               part(counts.connections_cut, told_.connections_cut),
               ", handshakes failed ",
               part(counts.handshakes_failed, told_.handshakes_failed),
               "; `gavel audit` tells whose messages were refused");
    told_ = counts;
    return line;
  }

 private:
  bool IsNews(WireCounts counts) const {
    const uint64_t failed = counts.handshakes_failed - told_.handshakes_failed;
    if (failed >= kHandshakesToTell) return true;
    counts.handshakes_failed = told_.handshakes_failed;
    return counts != told_;
  }

  WireCounts told_;
  Time next_at_ = 0;
};

// The requesting client and its reply address.
struct Requester {
  std::string peer;
  std::string address;
  Identity identity;
  std::string public_key = "";  // that proved it; empty: no keys
};

// Handles the requests of the `gavel` command line: submissions, commands,
// queries and logs. Turns requests into events, remembers the waiting clients,
// and answers them. The coordinator's event loop owns one. Not thread-safe;
// borrows the engine, the table of agents and the means to send.
class ClientRequests {
 public:
  // Submissions and commands on their way to the disk; requests for logs and
  // terminals on their way to an agent, and how long that may take.
  static constexpr size_t kWaitingClientsMax = 4096;
  static constexpr size_t kWaitingLogsMax = 1024;
  static constexpr size_t kWaitingTerminalsMax = 1024;
  static constexpr double kLogTimeout_s = 10;
  // Requests that wait for the next view of the queue.
  static constexpr size_t kWaitingListingsMax = 1024;

  using Send = std::function<void(const std::string& peer, Message)>;
  struct Options {
    std::string state_directory;  // absolute
    std::string cluster_id;       // of the journal
    std::string policy;           // the coordinator's own (--policy)
    bool introspection = false;   // likewise (--introspection)
    QuotaOptions quota;           // of users; operators have none
    // Called with the outcome of each request.
    std::function<void(bool done, const AuditEntry&)> audit;
    std::function<WireCounts()> wire;                    // for the status
    std::function<std::vector<std::string>()> troubles;  // for the status
    std::function<void()> wake;  // SendAnswers has something to do; any thread
    // Delivers a test of the notices, whose outcome comes as a Reply with this
    // handle; or says why not.
    std::function<absl::Status(uint64_t handle)> test_notices;
    // Null: figures that are not known. For the status.
    std::function<ThreadFigures()> threads;
    // Gives the holder of that key a token, as JSON for `gavel dashboard`.
    // Null: there is no dashboard.
    std::function<absl::StatusOr<std::string>(const Requester&)> dashboard;
  };
  ClientRequests(const Engine& engine, const PeerTable<std::string>& agents,
                 Send send, Options options);

  // Each takes one request of `peer`. An event is for the engine, whose Reply
  // comes back through Answer; without one the request has been answered.
  std::optional<Event> Take(Time now, const Requester& from,
                            const SubmitRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const CommandRequest& request);
  // The app is one of the sender's: nobody can name another user's.
  std::optional<Event> Take(Time now, const Requester& from,
                            const AppGoalRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const QueryRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const LogRequest& request);
  // Takes an agent's answer, and passes it on to the client that asked.
  std::optional<Event> Take(Time now, const Requester& from,
                            const LogReply& reply);
  // The same for terminals.
  std::optional<Event> Take(Time now, const Requester& from,
                            const TerminalRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const TerminalReply& reply);

  void Answer(const action::Reply& reply);
  // Sends the answers that the threads have written, and the listings that are
  // due.
  void SendAnswers(Time now);
  // When views or counts of the jobs are due; kNever: nobody waits for them.
  Time NextDeadline() const {
    return std::min(views_due_at(), counts_due_at());
  }
  // The decision may change places in line.
  void Note(const Event& decided);
  // Gives up on agents that do not answer.
  void Expire(Time now);
  // Applies to submissions from now on.
  void SetQuota(const QuotaOptions& quota) {
    options_.quota = quota;
    quota_.Set(quota);
  }
  // kShutdown was asked for, and answered.
  bool shutdown_requested() const { return shutdown_requested_; }

 private:
  struct Client {
    Requester from;
    uint64_t request = 0;
    bool submitted = false;  // else a command
    std::string action;      // for the audit log
    std::string object;
  };
  void TestNotices(Time now, const Client& client);
  struct Reader {  // of a log or a terminal
    std::string peer;
    uint64_t request = 0;
    std::string server;
    std::string agent;  // peer that may answer
  };
  // Without what only the quota and the engine know.
  absl::StatusOr<JobSpec> ReadSpec(const Requester& from,
                                   const SubmitRequest& request) const;
  // Why the job would not be accepted; empty: it would be.
  std::string WhyNotAdmitted(const Requester& from,
                             const SubmitRequest& request) const;
  absl::StatusOr<Event> EventFor(Time now, const Requester& from,
                                 const CommandRequest& request) const;
  absl::StatusOr<Event> SetPolicy(const CommandRequest& request) const;
  absl::StatusOr<Event> Update(const Requester& from,
                               const CommandRequest& request) const;
  // Why nothing can be said of a job that is not there, or is an array.
  std::string NoJob(JobId job) const;
  struct Listing {
    Requester from;
    QueryRequest request;
  };
  // An event whose answer `client` gets; nothing: it has been refused.
  std::optional<Event> Await(Time now, const Client& client,
                             absl::StatusOr<Event> event);
  void AnswerDashboard(const Requester& from, const QueryRequest& request);
  // `queue` has what depends on many jobs: places in line, and the rho of a
  // large app. Null: the answer waits for the next view if it needs that.
  void AnswerOfOne(Time now, const Requester& from, const QueryRequest& request,
                   std::shared_ptr<const QueueView> queue = nullptr);
  void List(Time now, const Requester& from, const QueryRequest& request);
  // The next view of the queue, or the next counts, answer it; `waiting` has
  // those that wait for the same.
  void Await(Time now, const Requester& from, const QueryRequest& request,
             std::vector<Listing>* waiting);
  Time views_due_at() const {
    const bool waits = !listings_.empty() || views_.is_making();
    return waits ? views_.due_at() : kNever;
  }
  Time counts_due_at() const {
    const bool waits = !statuses_.empty() || views_.is_counting();
    return waits ? views_.counts_due_at() : kNever;
  }
  void GoOnWithView(Time now);
  void GoOnWithCounts(Time now);
  // Answers questions about servers, the status and forecasts.
  void AnswerAtOnce(Time now, const Requester& from,
                    const QueryRequest& request);
  // The thread that answers also frees the views that were dropped.
  void AskListing(const Requester& from, const QueryRequest& request,
                  std::shared_ptr<const QueueView> view,
                  QueueViews::Dropped freed = {});
  void Ask(QueryThread& thread, const Requester& from, uint64_t request,
           QueryThread::Write write);
  // A line of the audit log. `error`: why it was not done; empty: is not said.
  void Audit(const Requester& from, std::string action, std::string object,
             bool done, std::string_view error);
  void RefuseQuery(const std::string& peer, uint64_t request,
                   std::string error);
  void Reply(const Client& client, JobId job, std::string error);
  void RefuseLog(const std::string& peer, uint64_t request, std::string error);
  void RefuseTerminal(const std::string& peer, uint64_t request,
                      std::string error, bool for_ever);

  const Engine& engine_;
  const PeerTable<std::string>& agents_;
  const Send send_;
  Options options_;
  PendingTable<Client> clients_{kWaitingClientsMax};
  PendingTable<Reader> logs_{kWaitingLogsMax};
  PendingTable<Reader> terminals_{kWaitingTerminalsMax};
  QueryThread history_;
  QueueViews views_;
  StayCosts stay_costs_;
  QueryThread queries_;
  std::vector<Listing> listings_;
  std::vector<Listing> made_for_;  // those of the view that is being made
  // The same of requests for the status, and of its counts.
  std::vector<Listing> statuses_;
  std::vector<Listing> counted_for_;
  Quota quota_;
  bool shutdown_requested_ = false;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_
