// What the `gavel` command line asks: submit, commands, queries, logs. Turns
// requests into events, remembers who waits, and answers. The coordinator's
// event loop owns one. Not thread-safe; borrows the engine, the table of agents
// and the means to send.
#ifndef GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_
#define GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/access/audit_log.h"
#include "coordinator/server/access/quota.h"
#include "coordinator/server/access/roles.h"
#include "coordinator/server/peer_table.h"
#include "coordinator/server/pending_table.h"
#include "coordinator/server/query/query_thread.h"
#include "coordinator/server/query/queue_view.h"
#include "coordinator/server/wire_counts.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// The requesting client and its reply address.
struct Requester {
  std::string peer;
  std::string address;
  Identity identity;
};

class ClientRequests {
 public:
  // Submissions and commands on their way to the disk; log requests on their
  // way to an agent, and how long that may take.
  static constexpr size_t kWaitingClientsMax = 4096;
  static constexpr size_t kWaitingLogsMax = 1024;
  static constexpr double kLogTimeout_s = 10;
  // Listings that wait for the next view of the queue.
  static constexpr size_t kWaitingListingsMax = 1024;

  using Send = std::function<void(const std::string& peer, Message)>;
  struct Options {
    std::string state_directory;  // absolute
    std::string cluster_id;       // of the journal
    std::string policy;           // the coordinator's own (--policy)
    QuotaOptions quota;           // of users; operators have none
    // What came of each.
    std::function<void(bool done, const AuditEntry&)> audit;
    std::function<WireCounts()> wire;                    // for the status
    std::function<std::vector<std::string>()> troubles;  // for the status
    std::function<void()> wake;  // SendAnswers has something to do; any thread
  };
  ClientRequests(const Engine& engine, const PeerTable<std::string>& agents,
                 Send send, Options options);

  // Each takes one request of `peer`. An event is for the engine, whose Reply
  // comes back through Answer; without one the request has been answered.
  std::optional<Event> Take(Time now, const Requester& from,
                            const SubmitRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const CommandRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const QueryRequest& request);
  std::optional<Event> Take(Time now, const Requester& from,
                            const LogRequest& request);
  // Of an agent: passed on to the client that asked.
  std::optional<Event> Take(Time now, const Requester& from,
                            const LogReply& reply);

  void Answer(const action::Reply& reply);
  // What the threads have written meanwhile, and listings that are due.
  void SendAnswers(Time now);
  // When listings are due; kNever: none wait.
  Time NextDeadline() const {
    return listings_.empty() ? kNever : views_.due_at();
  }
  // What was decided may change places in line.
  void Note(const Event& decided);
  // Gives up on agents that do not answer.
  void Expire(Time now);
  // Of submissions from now on.
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
  struct LogReader {
    std::string peer;
    uint64_t request = 0;
    std::string server;
    std::string agent;  // peer that may answer
  };
  absl::StatusOr<JobSpec> ReadSpec(Time now, const Requester& from,
                                   const SubmitRequest& request);
  absl::StatusOr<Event> EventFor(Time now, const Requester& from,
                                 const CommandRequest& request) const;
  absl::StatusOr<Event> SetPolicy(const std::string& name) const;
  absl::StatusOr<Event> Update(const Requester& from,
                               const CommandRequest& request) const;
  struct Listing {
    Requester from;
    QueryRequest request;
  };
  // An event whose answer `client` gets; nothing: it has been refused.
  std::optional<Event> Await(Time now, const Client& client,
                             absl::StatusOr<Event> event);
  void AnswerOfOne(Time now, const Requester& from,
                   const QueryRequest& request);
  void List(Time now, const Requester& from, const QueryRequest& request);
  void AskListing(const Requester& from, const QueryRequest& request,
                  std::shared_ptr<const QueueView> view);
  void Ask(QueryThread& thread, const Requester& from, uint64_t request,
           QueryThread::Write write);
  void RefuseQuery(const std::string& peer, uint64_t request,
                   std::string error);
  void Reply(const Client& client, JobId job, std::string error);
  void RefuseLog(const std::string& peer, uint64_t request, std::string error);

  const Engine& engine_;
  const PeerTable<std::string>& agents_;
  const Send send_;
  Options options_;
  PendingTable<Client> clients_{kWaitingClientsMax};
  PendingTable<LogReader> logs_{kWaitingLogsMax};
  QueryThread history_;
  QueueViews views_;
  QueryThread queries_;
  std::vector<Listing> listings_;
  Quota quota_;
  bool shutdown_requested_ = false;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_CLIENT_REQUESTS_H_
