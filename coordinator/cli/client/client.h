// The command line's conversation with a coordinator: a request, its answer, or
// an error that says what to do. Not thread-safe; only waker() may be used from
// other threads.
#ifndef GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_H_
#define GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/daemon/key_files.h"
#include "coordinator/cli/json.h"
#include "core/messages.h"
#include "runtime/transport/dealer.h"

namespace gavel {

inline constexpr char kDefaultCoordinator[] = "127.0.0.1:7077";

class Client {
 public:
  static constexpr double kConnectTimeout_s = 4;
  // Added when a server seems to listen: with too many connections at once the
  // kernel retries after 1, 3 and 7 s.
  static constexpr double kBusyTimeout_s = 8;
  static constexpr double kReplyTimeout_s = 5;

  // UNAVAILABLE, with the remedy: no coordinator listens there, or it refuses
  // the key. NOT_FOUND: the name does not resolve. INVALID_ARGUMENT: not an
  // endpoint. Errors of keys as of FindClientKeys.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const std::string& endpoint, const KeyFlags& keys = {});

  // Each: UNAVAILABLE when no answer comes; FAILED_PRECONDITION with what the
  // coordinator said when it refuses.
  absl::StatusOr<JobId> Submit(const std::string& source,
                               const std::string& toml,
                               const std::string& directory);
  absl::Status Command(CommandKind kind, JobId job = JobId());
  absl::Status Command(CommandRequest command);
  // All pages: an array of rows, or one object.
  absl::StatusOr<Json> Query(QueryKind kind, JobId job = JobId(),
                             const std::string& filter = "");
  // Errors about the log itself are in the reply. `server`: where it ran
  // before; empty: where it ran last.
  absl::StatusOr<LogReply> Log(const WorkerId& worker, uint64_t offset,
                               const std::string& server);

  // A job by its id, its name or "USER/NAME". Of several with that name: the
  // caller's own, where it has one; the one that is not over, which a held one
  // is not; else the latest. NOT_FOUND: none. INVALID_ARGUMENT: several other
  // users have such a job that is not over.
  absl::StatusOr<JobId> Resolve(const std::string& job);

  // Returns early at a Wake.
  void Sleep(double seconds);
  Waker& waker() { return dealer_->waker(); }

 private:
  Client(std::string endpoint, std::unique_ptr<Dealer> dealer,
         std::string public_key)
      : endpoint_(std::move(endpoint)),
        dealer_(std::move(dealer)),
        public_key_(std::move(public_key)) {}
  template <class Reply>
  absl::StatusOr<Reply> Ask(const Message& message, uint64_t request,
                            double timeout_s);
  absl::Status NoAnswer() const;
  // The same, of the jobs of that name that pass the filter.
  absl::StatusOr<JobId> Choose(const std::string& name, const Json& filter);

  std::string endpoint_;
  std::unique_ptr<Dealer> dealer_;
  std::string public_key_;  // empty: no keys
  uint64_t last_request_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CLIENT_CLIENT_H_
