#include "coordinator/agent_host/agent_environment.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/curve.h"

namespace gavel {
namespace {

constexpr size_t kEntryBytesMax = 64 * 1024;
constexpr int kGroupsMax = 4096;

absl::Status NoSuchUser(const std::string& name) {
  return absl::NotFoundError(
      StrCat("this server has no user \"", name,
             "\"; create the account here, or correct unix_user with `gavel "
             "user add`"));
}

// Variables that a program needs to find its files and libraries. Workers get
// no other variable of the agent except those below and those of
// keep_environment.
constexpr const char* kPassedOn[] = {"LANG", "LC_ALL", "TZ", "SSL_CERT_FILE"};
// Variables that a worker gets from the agent if it runs as the agent's user.
constexpr const char* kPassedOnToSame[] = {"PATH",    "HOME",  "USER",
                                           "LOGNAME", "SHELL", "TMPDIR"};

using Variables = std::map<std::string, std::string>;

void PassOn(const Variables& own, const std::string& name, Variables* to) {
  if (const auto it = own.find(name); it != own.end()) (*to)[name] = it->second;
}

void AddKept(const WorkerPlace& place, const Variables& own, Variables* to) {
  for (const std::string_view kept : place.keep_environment) {
    const bool is_prefix = kept.ends_with('*');
    const std::string_view begin = kept.substr(0, kept.size() - is_prefix);
    for (const auto& [name, value] : own) {
      if (is_prefix ? name.starts_with(begin) : name == begin) {
        (*to)[name] = value;
      }
    }
  }
}

void AddUser(const WorkerPlace& place, const Variables& own, Variables* to) {
  if (!place.account.has_value()) {
    for (const char* name : kPassedOnToSame) PassOn(own, name, to);
    return;
  }
  (*to)["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  (*to)["HOME"] = place.account->home;
  (*to)["USER"] = place.account->name;
  (*to)["LOGNAME"] = place.account->name;
  (*to)["SHELL"] = place.account->shell;
}

void AddGpus(const WorkerPlace& place, const Variables& own, Variables* to) {
  if (!place.has_gpus) {
    (*to)["CUDA_VISIBLE_DEVICES"] = "";
    return;
  }
  // "cuda:N" is counted as the agent counts: by bus, of those it sees.
  (*to)["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  PassOn(own, "CUDA_VISIBLE_DEVICES", to);
  // Where NVIDIA's MPS daemon listens, if not at its usual place: with it the
  // kernels of a packed pair run beside each other, else they take turns.
  PassOn(own, "CUDA_MPS_PIPE_DIRECTORY", to);
}

// The kinds' own variables that choose devices, by uuid where there is one.
void HideOthers(const AcceleratorInfo& info, Variables* to) {
  const size_t colon = info.device.find(':');
  if (!info.alone_visible || colon == std::string::npos) return;
  const std::string kind = info.device.substr(0, colon);
  const std::string index = info.device.substr(colon + 1);
  if (kind == "cuda") (*to)["CUDA_VISIBLE_DEVICES"] = info.uuid;
  if (kind == "xpu") (*to)["ZE_AFFINITY_MASK"] = index;
  if (kind == "hpu") (*to)["HABANA_VISIBLE_MODULES"] = index;
}

void AddProtocol(const LaunchWorker& launch, const WorkerPlace& place,
                 Variables* to) {
  const std::string rank = StrCat(launch.worker.rank);
  const std::string world_size = StrCat(launch.world_size);
  (*to)["GAVEL_ADDRESS"] = place.address;
  // The first makes a training program a worker, which one that a person starts
  // in a terminal is not. The second is the default of clients, and runtimes of
  // earlier versions read it.
  if (!launch.terminal) {
    (*to)["GAVEL_WORKER_COORDINATOR"] = place.coordinator;
  }
  (*to)["GAVEL_COORDINATOR"] = place.coordinator;
  if (!place.key_file.empty() && !launch.terminal) {
    (*to)["GAVEL_KEY_FILE"] = place.key_file;
    (*to)["GAVEL_COORDINATOR_KEY"] = place.coordinator_key;
  }
  if (!place.cluster.empty()) (*to)["GAVEL_CLUSTER"] = place.cluster;
  (*to)["GAVEL_JOB"] = StrCat(launch.worker.job.value());
  (*to)["GAVEL_JOB_NAME"] = launch.job_name;
  (*to)["GAVEL_RANK"] = rank;
  (*to)["GAVEL_INCARNATION"] = StrCat(launch.worker.incarnation);
  if (!place.end_file.empty() && !launch.terminal) {
    (*to)["GAVEL_END_FILE"] = place.end_file;
  }
  (*to)["GAVEL_SERVER"] = launch.server;
  (*to)["GAVEL_RUN_DIRECTORY"] = place.run_directory;
  (*to)["GAVEL_CHECKPOINT_DIRECTORY"] = launch.checkpoint_directory;
  (*to)["GAVEL_WORLD_SIZE"] = world_size;
  (*to)["RANK"] = rank;
  (*to)["WORLD_SIZE"] = world_size;
}

namespace fs = std::filesystem;

// Others may reach their own file by its name, but not list the names.
constexpr mode_t kDirectoryMode = 0711;

}  // namespace

absl::StatusOr<std::optional<UnixAccount>> AccountOfJob(
    const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<char> buffer(kEntryBytesMax);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) !=
          0 ||
      found == nullptr) {
    return NoSuchUser(name);
  }
  if (entry.pw_uid == 0) {
    return absl::PermissionDeniedError(
        StrCat("user \"", name,
               "\" is root here, and no job runs as root; name an ordinary "
               "user with `gavel user add`"));
  }
  if (entry.pw_uid == geteuid()) return std::nullopt;
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        StrCat("this agent is not root, so it runs jobs of its own user only, "
               "not of \"",
               name, "\"; start the agent of this server as root"));
  }
  UnixAccount account{name,         entry.pw_dir, entry.pw_shell,
                      entry.pw_uid, entry.pw_gid, {}};
  account.groups.resize(kGroupsMax);
  int count = kGroupsMax;
  if (getgrouplist(name.c_str(), entry.pw_gid, account.groups.data(), &count) <
      0) {
    return absl::InternalError(
        StrCat("user \"", name, "\" is in more than ", kGroupsMax, " groups"));
  }
  account.groups.resize(static_cast<size_t>(count));
  return account;
}

// Neither call can fail for root; the group first, while it is still root's to
// change.
FileUser::FileUser(const std::optional<UnixAccount>& account)
    : changed_(account.has_value() && geteuid() == 0) {
  if (!changed_) return;
  setfsgid(account->gid);
  setfsuid(account->uid);
}

FileUser::~FileUser() {
  if (!changed_) return;
  setfsuid(geteuid());
  setfsgid(getegid());
}

std::vector<std::string> WorkerEnvironment(const LaunchWorker& launch,
                                           const WorkerPlace& place,
                                           const Variables& own) {
  Variables variables;
  for (const char* name : kPassedOn) PassOn(own, name, &variables);
  AddUser(place, own, &variables);
  AddKept(place, own, &variables);
  AddGpus(place, own, &variables);
  variables["OMP_NUM_THREADS"] = StrCat(launch.accelerator.threads);
  // Threads of libgomp that spin take the cores of the jobs beside them.
  variables["OMP_WAIT_POLICY"] = "PASSIVE";
  if (launch.terminal) {
    variables["TERM"] = "xterm";  // unless the client knows better
  } else {
    // Its output is a terminal (OutputChannel), and then a file.
    variables["TERM"] = "dumb";
    variables["NO_COLOR"] = "1";
  }
  for (const auto& [name, value] : launch.environment) variables[name] = value;
  HideOthers(launch.accelerator, &variables);
  // The agent's mark of what this worker starts, which it adds itself.
  variables.erase("GAVEL_PROCESS");
  AddProtocol(launch, place, &variables);
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) {
    entries.push_back(StrCat(name, "=", value));
  }
  return entries;
}

Variables OwnEnvironment() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

absl::Status MakeOwnersDirectory(const std::string& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (mkdir(directory.c_str(), kDirectoryMode) != 0 ||
      chmod(directory.c_str(), kDirectoryMode) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("directory ", directory)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerKeys>> WorkerKeys::Open(
    const std::string& directory) {
  GAVEL_RETURN_IF_ERROR(MakeOwnersDirectory(directory));
  return std::unique_ptr<WorkerKeys>(new WorkerKeys(directory));
}

absl::StatusOr<std::string> WorkerKeys::Mint(
    const WorkerKey& worker, const std::optional<UnixAccount>& account) {
  GAVEL_ASSIGN_OR_RETURN(const CurveKeyPair keys, NewCurveKeyPair());
  const std::string path = StrCat(directory_, "/", worker.job.value(), "-",
                                  worker.rank, "-", worker.incarnation, ".key");
  GAVEL_RETURN_IF_ERROR(WriteKeyFile(path, keys));
  {
    const std::lock_guard lock(mutex_);
    keys_[worker] = {path, keys.public_key};
  }
  if (account.has_value() &&
      lchown(path.c_str(), account->uid, account->gid) != 0) {
    const int chown_error = errno;
    Forget(worker);
    return absl::ErrnoToStatus(chown_error, ToAbsl(path));
  }
  return path;
}

void WorkerKeys::Forget(const WorkerKey& worker) {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    const auto found = keys_.find(worker);
    if (found == keys_.end()) return;
    path = std::move(found->second.path);
    keys_.erase(found);
  }
  unlink(path.c_str());
}

std::string WorkerKeys::PublicKeyOf(const WorkerKey& worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(worker);
  return found == keys_.end() ? "" : found->second.public_key;
}

void WorkerKeys::FillIn(Message* message) const {
  if (auto* launched = std::get_if<WorkerLaunched>(message)) {
    launched->public_key = PublicKeyOf(launched->worker);
  } else if (auto* hello = std::get_if<AgentHello>(message)) {
    for (RunningWorker& running : hello->running) {
      running.public_key = PublicKeyOf(running.worker);
    }
  }
}

}  // namespace gavel
