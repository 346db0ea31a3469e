#include "coordinator/agent_host/agent_checkpoints.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/agent/stream_messages.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kNameBytesMax = 64;

// "resnet-5d0c6b21f7a90e34": the last part for people, the number for the
// whole, so that one folder holds all and none lies within another.
std::string FolderName(const std::string& given) {
  const std::filesystem::path path(given);
  std::string name = path.filename().string().substr(0, kNameBytesMax);
  for (char& c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!good) c = '_';
  }
  return StrCat(name, "-", absl::StrFormat("%016x", StreamChecksum(given)));
}

absl::Status MakeDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(
      errno, ToAbsl(StrCat("directory ", path,
                           " can't be made; give the agent another --state")));
}

// One that is new, or that was left before it was given: empty, and ours still.
absl::Status GiveTo(const UnixAccount& account, const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  if (info.st_uid == account.uid) return absl::OkStatus();
  std::error_code error;
  if (info.st_uid != geteuid() || !std::filesystem::is_empty(path, error)) {
    return absl::PermissionDeniedError(
        StrCat("checkpoints in ", path, " belong to user ", info.st_uid,
               " and the job runs as ", account.name, " (", account.uid,
               "); give it another checkpoint_directory, or remove that one"));
  }
  if (lchown(path.c_str(), account.uid, account.gid) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AgentCheckpoints>> AgentCheckpoints::Open(
    const std::string& state_directory, std::string address,
    std::function<void()> wake) {
  const std::string directory = StrCat(state_directory, "/checkpoints");
  // Passed through by jobs that run as their owners.
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory, 0711));
  auto checkpoints =
      std::unique_ptr<AgentCheckpoints>(new AgentCheckpoints(directory));
  checkpoints->wake_ = wake;
  GAVEL_ASSIGN_OR_RETURN(
      checkpoints->stream_,
      GenerationStream::Start({std::move(address), std::move(wake)}));
  return checkpoints;
}

absl::StatusOr<std::string> AgentCheckpoints::DirectoryFor(
    const std::string& given, const std::optional<UnixAccount>& account) {
  if (!given.starts_with('/')) {
    return absl::InvalidArgumentError(
        StrCat("checkpoint directory \"", given, "\" is not absolute"));
  }
  std::string path = StrCat(directory_, "/", FolderName(given));
  GAVEL_RETURN_IF_ERROR(MakeDirectory(path, 0700));
  if (account.has_value()) {
    GAVEL_RETURN_IF_ERROR(GiveTo(*account, path));
  }
  return path;
}

void AgentCheckpoints::Do(const agent_action::FetchCheckpoint& action) {
  const absl::Status begun = Fetch(action);
  if (begun.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    failed_.emplace_back(agent_event::CheckpointFetched{
        action.job, std::string(begun.message())});
  }
  wake_();
}

absl::Status AgentCheckpoints::Fetch(
    const agent_action::FetchCheckpoint& action) {
  GAVEL_ASSIGN_OR_RETURN(const std::optional<UnixAccount> account,
                         AccountOfJob(action.unix_user));
  GAVEL_ASSIGN_OR_RETURN(const std::string directory,
                         DirectoryFor(action.directory, account));
  stream_->Fetch(action.job, directory, action.source, account);
  return absl::OkStatus();
}

void AgentCheckpoints::Do(const agent_action::CancelFetch& action) {
  stream_->Cancel(action.job);
}

// What can't be offered is not: the reader says that it is not allowed.
void AgentCheckpoints::Do(const agent_action::OfferCheckpoint& action) {
  const auto account = AccountOfJob(action.unix_user);
  if (!account.ok()) return;
  const auto directory = DirectoryFor(action.directory, *account);
  if (!directory.ok()) return;
  stream_->Serve(action.job, action.reader_public_key, *directory,
                 action.unix_user);
}

std::vector<AgentEvent> AgentCheckpoints::TakeEvents() {
  std::vector<AgentEvent> events;
  {
    const std::lock_guard lock(mutex_);
    events = std::exchange(failed_, {});
  }
  for (FetchState& state : stream_->TakeStates()) {
    if (!state.over) {
      events.emplace_back(agent_event::CheckpointComing{
          state.job, std::move(state.source), state.bytes_done,
          state.bytes_total, std::move(state.waits_for)});
      continue;
    }
    std::string error;
    if (!state.error.empty()) {
      error = StrCat("its checkpoint could not be fetched from ", state.source,
                     ": ", state.error);
    }
    events.emplace_back(
        agent_event::CheckpointFetched{state.job, std::move(error)});
  }
  return events;
}

}  // namespace gavel
