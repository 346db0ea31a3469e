// Requests from within the coordinator's process: its dashboard asks by them
// and takes actions, on the way that every client's message takes.
#ifndef GAVEL_COORDINATOR_SERVER_LOCAL_REQUESTS_H_
#define GAVEL_COORDINATOR_SERVER_LOCAL_REQUESTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

// Threads of the process ask and wait; the event loop takes the requests as if
// the router had received them, and its answers come back here. So a request
// is authenticated, authorised, limited in rate and audited as any other.
//
// Ask may be called by any thread, the rest by the event loop alone.
class LocalRequests {
 public:
  // Requests that wait for their answers; further ones are refused.
  static constexpr size_t kWaitingMax = 256;

  // The key of a reader without a name, which is a viewer where connections
  // have keys. No handshake proves such a key: those have 40 characters.
  static constexpr std::string_view kReaderKey = "(dashboard)";

  // `wake` makes the event loop call Next; any thread.
  explicit LocalRequests(std::function<void()> wake);

  // Sends a request of the holder of `public_key`, which the caller vouches
  // for; `address` is for the audit log. `Reply` is QueryReply, CommandReply or
  // LogReply, and its error is the caller's to look at. UNAVAILABLE: too many
  // wait, or no answer came within `timeout_s`. DEADLINE_EXCEEDED: likewise, of
  // a command that the loop has taken, so it may still be done. Other errors:
  // the requester may not ask this (Refuse).
  template <class Reply>
  absl::StatusOr<Reply> Ask(std::string_view public_key, std::string address,
                            Message request, double timeout_s) {
    absl::StatusOr<Message> answer =
        AskAny(std::string(public_key), std::move(address), std::move(request),
               timeout_s);
    if (!answer.ok()) return answer.status();
    Reply* const reply = std::get_if<Reply>(&*answer);
    if (reply == nullptr)
      return absl::InternalError("an answer of another kind");
    return std::move(*reply);
  }

  static bool IsReader(const Incoming& incoming) {
    return incoming.public_key == kReaderKey;
  }
  // It came by no connection.
  static bool IsLocal(const Incoming& incoming) {
    return incoming.descriptor < 0;
  }

  // The next request, in order.
  std::optional<Incoming> Next();
  bool has_waiting() const;
  // Ends all waits and refuses later requests. Call this when no more answers
  // will come.
  void Close();
  // Takes the message if it answers a request from here.
  bool Answer(const std::string& peer, Message* message);
  // Ends the wait for an answer to a request that is refused.
  void Refuse(const std::string& peer, const absl::Status& why);

 private:
  absl::StatusOr<Message> AskAny(std::string public_key, std::string address,
                                 Message request, double timeout_s);
  void Settle(const std::string& peer, absl::StatusOr<Message> answer);

  const std::function<void()> wake_;
  // Unguessable: the id of a connection is its peer's to choose.
  const std::string prefix_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  bool closed_ = false;
  uint64_t last_ = 0;
  std::deque<Incoming> waiting_;
  // By peer; nothing: not answered yet.
  std::map<std::string, std::optional<absl::StatusOr<Message>>> asked_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_LOCAL_REQUESTS_H_
