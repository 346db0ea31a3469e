#include "coordinator/server/access/roles.h"

#include <algorithm>
#include <concepts>
#include <variant>

#include "coordinator/server/incoming.h"
#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// A set of roles.
constexpr unsigned Bits(std::same_as<Role> auto... roles) {
  return ((1U << static_cast<unsigned>(roles)) | ... | 0U);
}

using enum Role;

// The table. Only declared for all types: a message without a row of its own
// does not compile.
template <class T>
constexpr unsigned SendersOf(const T*) = delete;

template <FromWorker T>
constexpr unsigned SendersOf(const T*) {
  return Bits(kWorker);
}
template <class T>
requires FromAgent<T> || OneOf<T, LogReply>
constexpr unsigned SendersOf(const T*) { return Bits(kNode); }
template <class T>
requires OneOf<T, SubmitRequest, CommandRequest, LogRequest>
constexpr unsigned SendersOf(const T*) { return Bits(kUser, kOperator); }
template <OneOf<QueryRequest> T>
constexpr unsigned SendersOf(const T*) {
  return Bits(kUser, kOperator, kViewer);
}
template <FromCoordinator T>
constexpr unsigned SendersOf(const T*) {
  return Bits();
}

absl::Status Denied(const Identity& sender, std::string_view what,
                    std::string_view remedy) {
  return absl::PermissionDeniedError(StrCat(
      RoleName(sender.role), " ", sender.name, ": ", what, "; ", remedy));
}

// A job that is not there is the engine's to tell; nothing is given away by
// that, numbers of jobs are in the queue.
absl::Status CheckOwner(const Identity& sender, JobId job,
                        const std::map<JobId, Job>& jobs) {
  const auto found = jobs.find(job);
  if (found == jobs.end() || MayTouch(sender, found->second.spec.owner)) {
    return absl::OkStatus();
  }
  return Denied(sender, StrCat("job ", job.value(), " is not yours"),
                "ask its owner or an operator");
}

// What is of the cluster, not of a job; empty: it is of a job.
std::string_view ClusterAct(CommandKind kind) {
  switch (kind) {
    case CommandKind::kShutdown:
      return "stop the coordinator";
    case CommandKind::kDrain:
      return "drain servers and accelerators";
    case CommandKind::kResume:
      return "give drained ones back";
    case CommandKind::kForget:
      return "forget servers";
    case CommandKind::kPolicy:
      return "set the policy";
    default:
      return "";
  }
}

absl::Status Check(const Identity& sender, const CommandRequest& request,
                   const std::map<JobId, Job>& jobs) {
  const std::string_view act = ClusterAct(request.kind);
  if (!act.empty() && sender.role != kOperator) {
    return Denied(sender, StrCat("only an operator may ", act), "ask one");
  }
  return CheckOwner(sender, request.job, jobs);
}

absl::Status Check(const Identity& sender, const LogRequest& request,
                   const std::map<JobId, Job>& jobs) {
  return CheckOwner(sender, request.worker.job, jobs);
}

template <class T>
absl::Status Check(const Identity&, const T&, const std::map<JobId, Job>&) {
  return absl::OkStatus();
}

// Its own server, its own process.
absl::Status CheckSender(const Identity& sender, const Message& message) {
  const std::optional<std::string> server = SendingAgent(message);
  if (server.has_value() && *server != sender.name) {
    return Denied(sender, StrCat("it may not speak for server ", *server),
                  "give each server a key of its own, by its own name");
  }
  const std::optional<WorkerKey> worker = SendingWorker(message);
  if (worker.has_value() && *worker != sender.worker) {
    return Denied(sender, "it may not speak for another worker",
                  "each process has its own key");
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<Role> FindRole(std::string_view name) {
  const auto* const found = std::ranges::find(kRoleNames, name);
  const auto index = static_cast<size_t>(found - kRoleNames.begin());
  if (index >= static_cast<size_t>(kWorker)) return std::nullopt;
  return static_cast<Role>(index);
}

bool MaySend(Role role, const Message& message) {
  return std::visit(
      [role](const auto& m) { return (SendersOf(&m) & Bits(role)) != 0; },
      message);
}

absl::Status Authorize(const Identity& sender, const Message& message,
                       const std::map<JobId, Job>& jobs) {
  if (!MaySend(sender.role, message)) {
    return Denied(sender,
                  StrCat("this role may not send ", MessageName(message)),
                  "ask an operator");
  }
  GAVEL_RETURN_IF_ERROR(CheckSender(sender, message));
  return std::visit([&](const auto& m) { return Check(sender, m, jobs); },
                    message);
}

}  // namespace gavel
