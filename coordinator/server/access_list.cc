#include "coordinator/server/access_list.h"

#include <sys/stat.h>

#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/curve.h"

namespace gavel {
namespace {

std::string Named(const std::string& name, const Principal& principal) {
  return StrCat(name, " (", RoleName(principal.role), ")");
}

std::string Change(const std::string& name, const Principal& before,
                   const Principal& now) {
  std::string change = StrCat(Named(name, now), " changed:");
  if (now.role != before.role) {
    change += StrCat(" was ", RoleName(before.role), ",");
  }
  if (now.unix_user != before.unix_user) {
    change +=
        StrCat(" runs as ", now.unix_user.empty() ? "nobody" : now.unix_user,
               " instead of ",
               before.unix_user.empty() ? "nobody" : before.unix_user, ",");
  }
  if (now.public_key != before.public_key) change += " has another key,";
  if (now.allowance != before.allowance) {
    change += " has other entities or weights,";
  }
  change.pop_back();
  return change;
}

std::vector<std::string> Changes(const Principals& before,
                                 const Principals& now) {
  std::vector<std::string> changes;
  for (const auto& [name, principal] : before) {
    if (!now.contains(name)) {
      changes.push_back(Named(name, principal) + " revoked");
    }
  }
  for (const auto& [name, principal] : now) {
    const auto known = before.find(name);
    if (known == before.end()) {
      changes.push_back(Named(name, principal) + " added");
    } else if (known->second != principal) {
      changes.push_back(Change(name, known->second, principal));
    }
  }
  return changes;
}

}  // namespace

bool RefusedKeys::Note(Clock::time_point now, const std::string& key,
                       const std::string& address, const std::string& was) {
  if (!keys_.contains(key) && keys_.size() >= kKeysMax) {
    keys_.erase(keys_.begin());
  }
  const auto [it, added] =
      keys_.try_emplace(key, Entry{{key, "", "", 0}, now, now, now + kMoment});
  Entry& entry = it->second;
  entry.last = now;
  entry.refused.address = address;
  entry.refused.was = was;
  ++entry.refused.attempts;
  return now - entry.first >= kMoment && now >= unknown_from_;
}

std::vector<RefusedKey> RefusedKeys::Take(
    Clock::time_point now,
    const std::function<bool(const std::string&)>& known) {
  std::vector<RefusedKey> due;
  for (auto it = keys_.begin(); it != keys_.end();) {
    Entry& entry = it->second;
    if (known(it->first) || now - entry.last >= kInterval) {
      it = keys_.erase(it);
      continue;
    }
    const bool early = entry.refused.was.empty() && now < unknown_from_;
    if (!early && now >= entry.tell_at && entry.refused.attempts > 0) {
      due.push_back(entry.refused);
      entry.refused.attempts = 0;
      entry.tell_at = now + kInterval;
    }
    ++it;
  }
  return due;
}

absl::StatusOr<std::unique_ptr<AccessList>> AccessList::Open(std::string path) {
  std::unique_ptr<AccessList> list(new AccessList(std::move(path)));
  list->version_ = list->Look();
  GAVEL_RETURN_IF_ERROR(list->Read().status());
  return list;
}

AccessList::Version AccessList::Look() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
          info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

absl::StatusOr<std::vector<std::string>> AccessList::Read() {
  GAVEL_ASSIGN_OR_RETURN(Principals principals, ReadPrincipals(path_));
  std::vector<std::string> changes = Changes(principals_, principals);
  std::map<std::string, Identity> by_key;
  for (const auto& [name, principal] : principals) {
    by_key[principal.public_key] = {name, principal.role, principal.unix_user,
                                    WorkerKey(), principal.allowance};
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [name, principal] : principals_) {
    if (!by_key.contains(principal.public_key)) {
      Revoke(principal.public_key, Named(name, principal));
    }
  }
  by_key_ = std::move(by_key);
  // A server's workers are known by its word alone.
  std::erase_if(workers_, [&](const auto& entry) {
    const auto& [server, worker] = entry.second;
    if (principals.contains(server)) return false;
    Revoke(entry.first,
           StrCat("job ", worker.job.value(), " rank ", worker.rank));
    by_server_.erase({server, worker, entry.first});
    return true;
  });
  principals_ = std::move(principals);
  return changes;
}

std::optional<absl::StatusOr<std::vector<std::string>>> AccessList::Reload() {
  const Version now = Look();
  if (now == version_) return std::nullopt;
  version_ = now;
  return Read();
}

bool AccessList::Knows(const std::string& public_key) const {
  const std::lock_guard lock(mutex_);
  return IsKnown(public_key);
}

// Under the mutex, as the next.
bool AccessList::IsKnown(const std::string& public_key) const {
  return by_key_.contains(public_key) || workers_.contains(public_key);
}

void AccessList::Revoke(const std::string& public_key, std::string whose) {
  if (revoked_.size() >= kRevokedMax) revoked_.erase(revoked_.begin());
  revoked_[public_key] = std::move(whose);
}

Admission AccessList::Admit(const std::string& public_key,
                            const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (IsKnown(public_key)) return Admission::kAllowed;
  const auto revoked = revoked_.find(public_key);
  const bool was_known = revoked != revoked_.end();
  const bool stays = refused_.Note(RefusedKeys::Clock::now(), public_key,
                                   address, was_known ? revoked->second : "");
  if (was_known) return Admission::kRevoked;
  return stays ? Admission::kRefused : Admission::kNotYet;
}

void AccessList::ExpectWorkers() {
  const std::lock_guard lock(mutex_);
  refused_.ExpectWorkersUntil(RefusedKeys::Clock::now() +
                              RefusedKeys::kAgentsReturn);
}

std::vector<RefusedKey> AccessList::TakeRefused() {
  const std::lock_guard lock(mutex_);
  return refused_.Take(RefusedKeys::Clock::now(),
                       [this](const std::string& key) { return IsKnown(key); });
}

std::optional<Identity> AccessList::Find(const std::string& public_key) const {
  const std::lock_guard lock(mutex_);
  if (const auto it = by_key_.find(public_key); it != by_key_.end()) {
    return it->second;
  }
  const auto it = workers_.find(public_key);
  if (it == workers_.end()) return std::nullopt;
  const WorkerKey& worker = it->second.worker;
  return Identity{StrCat("job ", worker.job.value(), " rank ", worker.rank),
                  Role::kWorker, "", worker};
}

size_t AccessList::principals() const {
  const std::lock_guard lock(mutex_);
  return by_key_.size();
}

void AccessList::AddWorker(const std::string& server, const WorkerKey& worker,
                           const std::string& public_key) {
  if (!IsCurveKey(public_key)) return;
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(public_key)) return;
  if (workers_.try_emplace(public_key, RunningKey{server, worker}).second) {
    by_server_.emplace(server, worker, public_key);
  }
}

void AccessList::RemoveWorker(const std::string& server,
                              const WorkerKey& worker) {
  Remove(server, &worker);
}

void AccessList::RemoveWorkersOf(const std::string& server) {
  Remove(server, nullptr);
}

void AccessList::Remove(const std::string& server, const WorkerKey* worker) {
  const std::lock_guard lock(mutex_);
  auto it = by_server_.lower_bound(
      {server, worker == nullptr ? WorkerKey() : *worker, ""});
  while (it != by_server_.end() && std::get<0>(*it) == server &&
         (worker == nullptr || std::get<1>(*it) == *worker)) {
    workers_.erase(std::get<2>(*it));
    it = by_server_.erase(it);
  }
}

}  // namespace gavel
