#include "coordinator/server/principals.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <fstream>
#include <set>
#include <sstream>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/server/incoming.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/toml_reader.h"
#include "core/codec.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/transport/curve.h"

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
requires FromAgent<T> || OneOf<T, LogReply, TerminalReply>
constexpr unsigned SendersOf(const T*) { return Bits(kNode); }
template <class T>
requires FromBidder<T> || OneOf<T, SubmitRequest, CommandRequest, LogRequest,
                                TerminalRequest, AppGoalRequest>
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
  const Job* const one =
      found == jobs.end() ? FirstElement(jobs, job) : &found->second;
  if (one == nullptr || MayTouch(sender, one->spec.owner)) {
    return absl::OkStatus();
  }
  return Denied(sender, StrCat("job ", job.value(), " is not yours"),
                "ask its owner or an operator");
}

// Describes a command about the cluster. Empty for a command about a job.
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
    case CommandKind::kNotify:
      return "test its notices";
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

// Input runs as the owner, so that not even an operator may.
absl::Status Check(const Identity& sender, const TerminalRequest& request,
                   const std::map<JobId, Job>& jobs) {
  const auto found = jobs.find(request.worker.job);
  if (found == jobs.end() || found->second.spec.owner == sender.name) {
    return absl::OkStatus();
  }
  return Denied(sender,
                StrCat("the terminal of job ", request.worker.job.value(),
                       " is for its owner alone"),
                "start a shell of your own with `gavel shell`");
}

// Jobs of an app have one owner.
template <FromBidder T>
absl::Status Check(const Identity& sender, const T& message,
                   const std::map<JobId, Job>&) {
  const BidderKey& bidder = message.bidder;
  if (MayTouch(sender, bidder.owner)) return absl::OkStatus();
  return Denied(
      sender,
      StrCat("app ", PrintableLine(bidder.app, kNameBytesMax), " of ",
             PrintableLine(bidder.owner, kNameBytesMax), " is not yours"),
      "ask its owner or an operator");
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

absl::Status Errno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat("principals file ", path)));
}

void ReadAllowance(TomlReader& reader, Allowance& allowance) {
  reader.Read("entities", allowance.entities);
  for (const std::string& entity : allowance.entities) {
    if (IsValidName(entity)) continue;
    reader.Fail("entities", StrCat(QuoteToml(entity),
                                   " is no name; write 1 to 64 of A-Z, a-z, "
                                   "0-9, _ and -"));
  }
  constexpr NumberRange kWeight = {.min = 0.001, .max = 1000};
  reader.Read("weight", allowance.weight, kWeight);
  reader.Read("weight_max", allowance.weight_max, kPositive);
}

Principal ReadPrincipal(TomlReader reader) {
  Principal principal;
  reader.Require("role", "role = \"user\"");
  reader.Require("public_key", "the key that `gavel keygen` printed");
  std::string role;
  if (reader.Read("role", role)) {
    if (const std::optional<Role> found = FindRole(role)) {
      principal.role = *found;
    } else {
      reader.Fail("role", StrCat("there is no role ", QuoteToml(role),
                                 "; choose user, operator, viewer or node"));
    }
  }
  if (reader.Read("public_key", principal.public_key) &&
      !IsCurveKey(principal.public_key)) {
    reader.Fail("public_key",
                "this is no public key; write the 40 characters that `gavel "
                "keygen` printed");
  }
  reader.Read("unix_user", principal.unix_user);
  if (!MayRunJobs(principal.unix_user)) {
    reader.Fail("unix_user",
                "jobs do not run as root; name an ordinary user of the "
                "servers");
  }
  if (RunsJobs(principal.role) && principal.unix_user.empty()) {
    reader.Require("unix_user", "unix_user = \"alice\"");
  }
  ReadAllowance(reader, principal.allowance);
  return principal;
}

// A user who may write the file could become an operator.
absl::Status CheckOwner(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return Errno(path);
    return absl::NotFoundError(
        StrCat("there is no principals file ", path,
               ", so nobody could connect; make it with `gavel user add "
               "--principals ",
               path, "`"));
  }
  const bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  if (ours && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat("principals file ", path,
             " may be written by others; chmod 600 it, and see that its "
             "owner is root or the coordinator's user"));
}

// Writes only values that differ from the default.
std::string FormatAllowance(const Allowance& allowance) {
  std::string toml;
  const Allowance usual;
  if (!allowance.entities.empty()) {
    std::vector<std::string> names;
    for (const std::string& entity : allowance.entities) {
      names.push_back(QuoteToml(entity));
    }
    StrAppend(&toml, "entities = [", absl::StrJoin(names, ", "), "]\n");
  }
  if (allowance.weight != usual.weight) {
    absl::StrAppendFormat(&toml, "weight = %.17g\n", allowance.weight);
  }
  if (allowance.weight_max != usual.weight_max) {
    absl::StrAppendFormat(&toml, "weight_max = %.17g\n", allowance.weight_max);
  }
  return toml;
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

absl::StatusOr<Principals> ParsePrincipals(std::string_view toml,
                                           std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kPrincipalsBytesMax));
  absl::Status status;
  TomlReader reader(root, source, status);
  Principals principals;
  std::set<std::string> keys;
  for (const std::string& name : reader.Keys()) {
    if (!IsValidName(name)) {
      reader.Fail(name, StrCat(QuoteToml(name),
                               " is no name; write 1 to 64 of A-Z, a-z, 0-9, _ "
                               "and -"));
    }
    const toml::table* const table = reader.Table(name);
    if (table == nullptr) continue;
    const Principal& read =
        principals
            .emplace(name, ReadPrincipal(
                               TomlReader(*table, source,
                                          {"role", "unix_user", "public_key",
                                           "entities", "weight", "weight_max"},
                                          status)))
            .first->second;
    if (!keys.insert(read.public_key).second) {
      reader.Fail(name, StrCat(QuoteToml(name),
                               " has the key of another principal; give each "
                               "its own (`gavel keygen`)"));
    }
  }
  GAVEL_RETURN_IF_ERROR(status);
  return principals;
}

std::string FormatPrincipals(const Principals& principals) {
  std::string toml =
      "# Who may connect, as what. Written by `gavel user`; read again by the\n"
      "# coordinator whenever it changes.\n";
  for (const auto& [name, principal] : principals) {
    StrAppend(&toml, "\n[", name,
              "]\nrole = ", QuoteToml(RoleName(principal.role)), "\n");
    if (!principal.unix_user.empty()) {
      StrAppend(&toml, "unix_user = ", QuoteToml(principal.unix_user), "\n");
    }
    StrAppend(&toml, "public_key = ", QuoteToml(principal.public_key), "\n",
              FormatAllowance(principal.allowance));
  }
  return toml;
}

absl::StatusOr<Principals> ReadPrincipals(const std::string& path) {
  GAVEL_RETURN_IF_ERROR(CheckOwner(path));
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Errno(path);
  return ParsePrincipals(text.str(), path);
}

absl::Status WritePrincipals(const std::string& path,
                             const Principals& principals) {
  return ReplaceFile(path, FormatPrincipals(principals));
}

}  // namespace gavel
