// The command line's conversation with a coordinator: a request, its answer, or
// an error that says what to do; and the options that every command takes which
// talks to a coordinator.
#ifndef GAVEL_COORDINATOR_CLI_CLIENT_H_
#define GAVEL_COORDINATOR_CLI_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/keys.h"
#include "coordinator/workload/json_fields.h"
#include "core/messages.h"
#include "core/text.h"
#include "runtime/transport/dealer_router.h"

namespace CLI {
class App;
}

namespace gavel {

inline constexpr char kDefaultCoordinator[] = "127.0.0.1:7077";

// All pages of an answer: an array of rows, or one object. `ask` sends one
// request, with whose error it ends. FAILED_PRECONDITION, with what the
// coordinator said, when it refuses.
absl::StatusOr<Json> AskAllPages(
    QueryRequest request,
    const std::function<absl::StatusOr<QueryReply>(const QueryRequest&)>& ask);

// One connection to a coordinator. Not thread-safe; only waker() may be used
// from other threads.
class Client {
 public:
  static constexpr double kConnectTimeout_s = 4;
  // Added when a server seems to listen: with too many connections at once the
  // kernel retries after 1, 3 and 7 s.
  static constexpr double kBusyTimeout_s = 8;
  static constexpr double kReplyTimeout_s = 5;
  // For a request that changes something. A repeat would do it twice, so the
  // answer is worth a longer wait.
  static constexpr double kChangeTimeout_s = 30;

  // UNAVAILABLE, with the remedy: no coordinator listens there, or it refuses
  // the key. NOT_FOUND: the name does not resolve. INVALID_ARGUMENT: not an
  // endpoint. Also returns the errors of FindClientKeys.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const std::string& endpoint, const KeyFlags& keys = {});

  // Each: UNAVAILABLE when no answer comes; FAILED_PRECONDITION with what the
  // coordinator said when it refuses. Submissions and commands print a notice
  // when the answer is late. If none comes, the error says that the request may
  // have been done.
  absl::StatusOr<JobId> Submit(const std::string& source,
                               const std::string& toml,
                               const std::string& directory);
  // The same, without submitting the job.
  absl::Status CheckSubmission(const std::string& source,
                               const std::string& toml,
                               const std::string& directory);
  absl::Status Command(CommandKind kind, JobId job = JobId());
  absl::Status Command(CommandRequest command,
                       double timeout_s = kChangeTimeout_s);
  // Sets the goal of an app of the user's, which has a job or a goal already.
  absl::Status SetGoal(const AppGoal& goal,
                       double timeout_s = kChangeTimeout_s);
  // All pages: an array of rows, or one object.
  absl::StatusOr<Json> Query(QueryKind kind, JobId job = JobId(),
                             const std::string& filter = "");
  // Errors about the log itself are in the reply. `server`: where it ran
  // before; empty: where it ran last. `since_s`: as in LogRequest.
  absl::StatusOr<LogReply> Log(const WorkerId& worker, uint64_t offset,
                               const std::string& server, double since_s = 0);

  // For exchanges that are not a request and its answer, such as a terminal's.
  // UNAVAILABLE: there is no connection now. Receive returns nothing at a Wake
  // and after `timeout_s`.
  absl::Status Send(const Message& message) { return dealer_->Send(message); }
  absl::StatusOr<std::optional<Message>> Receive(double timeout_s) {
    return dealer_->Receive(timeout_s);
  }
  uint64_t NextRequest() { return ++last_request_; }

  // Finds a job by its id, its name or "USER/NAME". Several jobs may have that
  // name: the caller's own job is preferred, then one that is not over (a held
  // job is not over), then the latest. NOT_FOUND: none has the name.
  // INVALID_ARGUMENT: several other users have such a job that is not over.
  //
  // "42_7" is the element of array 42 with that index; an array itself is found
  // by its id or name, too.
  absl::StatusOr<JobId> Resolve(const std::string& job);

  // A job, an array, or some elements of an array.
  struct Reference {
    JobId job;
    std::string elements;  // indices, as "7-20"; empty: all, or no array
  };
  // As Resolve, also "42_[7-20]" or "NAME_[7-20]".
  absl::StatusOr<Reference> ResolveReference(const std::string& job);
  // The same as ids of jobs: those elements of the array that are still known.
  absl::StatusOr<std::vector<JobId>> ResolveAll(const std::string& job);
  // A job name that none of the user's jobs has, made from that of a program.
  absl::StatusOr<std::string> FreeName(const std::string& program);

  // Returns early at a Wake.
  void Sleep(double seconds);
  Waker& waker() { return dealer_->waker(); }

 private:
  Client(std::string endpoint, std::unique_ptr<Dealer> dealer,
         std::string public_key)
      : endpoint_(std::move(endpoint)),
        dealer_(std::move(dealer)),
        public_key_(std::move(public_key)) {}
  absl::Status SendWithin(const Message& message, double timeout_s);
  // The answer to that request; nothing after `timeout_s`.
  template <class Reply>
  absl::StatusOr<std::optional<Reply>> Await(uint64_t request,
                                             double timeout_s);
  template <class Reply>
  absl::StatusOr<Reply> Ask(const Message& message, uint64_t request,
                            double timeout_s);
  // Makes a request again, for half a minute, if the coordinator refuses it as
  // one of too many in a second.
  template <class Reply, class Asks>
  absl::StatusOr<Reply> AskPatiently(const Asks& ask);
  absl::StatusOr<Json> QueryAllPages(const QueryRequest& first);
  template <class Reply>
  absl::StatusOr<Reply> AskToChange(const Message& message, uint64_t request,
                                    double timeout_s);
  absl::Status NoAnswer() const;
  absl::StatusOr<JobId> ElementOf(uint64_t array, uint64_t index);
  // The same, of the jobs of that name that pass the filter.
  absl::StatusOr<JobId> Choose(const std::string& name, const Json& filter);

  std::string endpoint_;
  std::unique_ptr<Dealer> dealer_;
  std::string public_key_;  // empty: no keys
  uint64_t last_request_ = 0;
  bool has_waited_ = false;  // the user was told of it
};

// The options of a command that talks to a coordinator. The functions below
// are defined in client_commands.cc.
struct Connection {
  std::string coordinator = kDefaultCoordinator;
  KeyFlags keys;
  auto Connect() const { return Client::Connect(coordinator, keys); }
};
struct ClientOptions : Connection {
  bool json = false;
};

// --coordinator (or GAVEL_COORDINATOR), --key, --coordinator-key.
void AddConnectionOptions(CLI::App& command, Connection* connection);
// These, and --json.
void AddClientOptions(CLI::App& command, ClientOptions* options);
// The jobs that a command is for.
void AddJobNames(CLI::App& command, std::vector<std::string>* jobs);
// Sends the command for each of them, and prints "DONE job 3", or JSON.
absl::Status CommandJobs(const ClientOptions& options,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done);
absl::Status CommandJobs(Client& client, bool json,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done);

// The letters of a state, which somebody typed as those or as a word.
// INVALID_ARGUMENT: it is none.
absl::StatusOr<std::vector<std::string>> ParseState(const std::string& state);
// The filter of a QueryKind::kQueue by these; empty: all jobs. `states`: by
// letters or words. INVALID_ARGUMENT: no state of a job.
absl::StatusOr<std::string> QueueFilter(
    const std::string& user, const std::string& app,
    const std::vector<std::string>& states,
    std::optional<size_t> ended_max = std::nullopt);
// The filter that passes one element of an array, and the error where the
// queue has no such row.
std::string ElementFilter(uint64_t array, uint64_t index);
absl::Status NoElement(uint64_t array, uint64_t index);

// Calls `each` for every element, and continues after a failure unless the
// coordinator is unreachable. Returns the first error, with the messages of the
// others as further lines.
template <class T, class Each>
absl::Status ForEach(const std::vector<T>& all, const Each& each) {
  absl::Status failed;
  for (const T& one : all) {
    const absl::Status status = each(one);
    if (status.ok()) continue;
    failed = failed.ok() ? status
                         : absl::Status(failed.code(),
                                        StrCat(failed.message(),
                                               "\ngavel: ", status.message()));
    if (absl::IsUnavailable(status)) break;
  }
  return failed;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CLIENT_H_
