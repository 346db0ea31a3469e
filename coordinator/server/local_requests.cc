#include "coordinator/server/local_requests.h"

#include <array>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "sodium.h"

namespace gavel {
namespace {

std::string NewPrefix() {
  std::array<char, 16> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return StrCat("local", std::string_view(bytes.data(), bytes.size()));
}

}  // namespace

LocalRequests::LocalRequests(std::function<void()> wake)
    : wake_(std::move(wake)), prefix_(NewPrefix()) {}

absl::StatusOr<Message> LocalRequests::AskAny(std::string public_key,
                                              std::string address,
                                              Message request,
                                              double timeout_s) {
  std::unique_lock lock(mutex_);
  if (closed_) return absl::UnavailableError("the coordinator has stopped");
  if (asked_.size() >= kWaitingMax) {
    return absl::UnavailableError(
        "the coordinator has too many requests to answer; try again");
  }
  const std::string peer = StrCat(prefix_, ++last_);
  const bool is_command = std::holds_alternative<CommandRequest>(request);
  asked_[peer];
  waiting_.push_back(
      {peer, std::move(request), std::move(public_key), std::move(address)});
  wake_();
  answered_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                     [&] { return closed_ || asked_[peer].has_value(); });
  std::optional<absl::StatusOr<Message>> answer = std::move(asked_[peer]);
  asked_.erase(peer);
  if (answer.has_value()) return *std::move(answer);
  const bool is_taken = std::erase_if(waiting_, [&](const Incoming& one) {
                          return one.peer == peer;
                        }) == 0;
  if (is_taken && is_command) {
    return absl::DeadlineExceededError(
        StrCat("the coordinator has the command and ",
               closed_ ? std::string("has stopped")
                       : StrCat("did not answer in ", timeout_s, " s"),
               "; see whether it was done before you repeat it"));
  }
  if (closed_) return absl::UnavailableError("the coordinator has stopped");
  return absl::UnavailableError(
      StrCat("the coordinator did not answer in ", timeout_s, " s"));
}

std::optional<Incoming> LocalRequests::Next() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  Incoming next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

bool LocalRequests::has_waiting() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void LocalRequests::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  answered_.notify_all();
}

bool LocalRequests::Answer(const std::string& peer, Message* message) {
  if (!peer.starts_with(prefix_)) return false;
  Settle(peer, std::move(*message));
  return true;
}

void LocalRequests::Refuse(const std::string& peer, const absl::Status& why) {
  Settle(peer, why);
}

void LocalRequests::Settle(const std::string& peer,
                           absl::StatusOr<Message> answer) {
  const std::lock_guard lock(mutex_);
  const auto asked = asked_.find(peer);
  if (asked == asked_.end()) return;  // nobody waits any more
  asked->second = std::move(answer);
  answered_.notify_all();
}

}  // namespace gavel
