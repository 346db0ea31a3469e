#include "coordinator/agent_host/agent_checkpoints.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "coordinator/agent/checkpoint_stream.h"
#include "coordinator/agent_host/agent_environment.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/files/stopwatch.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "runtime/transport/stream_sockets.h"

namespace gavel {

// ---- Files

namespace {

constexpr size_t kVerifyBytes = size_t{1} << 20;
// The number of superseded generations that are kept, of those fetched here.
constexpr int kFetchedKept = 2;

// Whether a file of `text` lies at `path`.
bool Holds(FileSystem& file_system, const std::string& path,
           std::string_view text) {
  const absl::StatusOr<std::string> found =
      ReadWholeFile(file_system, path, text.size());
  return found.ok() && *found == text;
}

// The job may remove a generation while it is being opened.
constexpr int kListingsMax = 3;

bool IsUnusable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

}  // namespace

std::string GenerationInbox::FolderOf(const Attempt& attempt) const {
  return StrCat(directory_, "/", AttemptName(attempt));
}

std::string GenerationInbox::PathOf(uint64_t file) const {
  return StrCat(FolderOf(attempt_), "/",
                ShardFileName(static_cast<size_t>(file)));
}

absl::StatusOr<GenerationInbox::Need> GenerationInbox::Prepare(
    Generation generation, std::string_view manifest) {
  open_.reset();
  under_way_ = false;
  GAVEL_ASSIGN_OR_RETURN(manifest_, DecodeManifest(manifest));
  if (manifest_.generation != generation) {
    return absl::DataLossError("the manifest is of another generation");
  }
  GAVEL_RETURN_IF_ERROR(CreateDirectories(file_system_, directory_));
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(file_system_, directory_));
  Need need;
  if (!attempts.committed.empty() &&
      attempts.committed.back().generation >= generation) {
    need.already_here = true;
    return need;
  }
  GAVEL_RETURN_IF_ERROR(BeginAttempt(attempts, manifest));
  CollectLinks(attempts);
  linked_verified_.clear();
  for (size_t i = 0; i < manifest_.shards.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(const uint64_t have_bytes, BytesHere(i, resumed_));
    need.files.push_back({i, manifest_.shards[i].size_bytes, have_bytes});
  }
  GAVEL_RETURN_IF_ERROR(RemoveLeftovers(attempts));
  return need;
}

// Resumes the interrupted attempt if it has this very manifest, and else begins
// a new one.
absl::Status GenerationInbox::BeginAttempt(const Attempts& attempts,
                                           std::string_view text) {
  attempt_ = {manifest_.generation, 0};
  for (const Attempt& other : attempts.uncommitted) {
    if (other.generation != manifest_.generation) continue;
    resumed_ =
        Holds(file_system_,
              StrCat(FolderOf(other), "/", kManifestTemporaryName), text);
    attempt_ = other;
    if (resumed_) {
      under_way_ = true;
      // Its name may not have been durable.
      return file_system_.SyncDirectory(directory_);
    }
    attempt_.number = other.number + 1;
  }
  resumed_ = false;
  GAVEL_RETURN_IF_ERROR(file_system_.CreateDirectory(FolderOf(attempt_)));
  under_way_ = true;
  GAVEL_RETURN_IF_ERROR(WriteTextFile(
      file_system_, StrCat(FolderOf(attempt_), "/", kManifestTemporaryName),
      text));
  return file_system_.SyncDirectory(directory_);
}

// Collects the shards of the committed generations, and of an attempt at
// another generation that this process has under way.
void GenerationInbox::CollectLinks(const Attempts& attempts) {
  links_.clear();
  const auto collect = [&](const Attempt& attempt, std::string_view name) {
    const std::string folder = FolderOf(attempt);
    const absl::StatusOr<std::string> text = ReadWholeFile(
        file_system_, StrCat(folder, "/", name), kManifestSizeBytesMax);
    if (!text.ok()) return;
    absl::StatusOr<Manifest> manifest = DecodeManifest(*text);
    if (!manifest.ok()) return;
    for (size_t i = 0; i < manifest->shards.size(); ++i) {
      ShardSummary& shard = manifest->shards[i];
      const std::pair key(shard.size_bytes, shard.checksum);
      links_.emplace(key, Candidate{StrCat(folder, "/", ShardFileName(i)),
                                    std::move(shard)});
    }
  };
  for (const Attempt& attempt : attempts.committed) {
    collect(attempt, kManifestFileName);
  }
  for (const Attempt& attempt : attempts.uncommitted) {
    if (attempt != attempt_) collect(attempt, kManifestTemporaryName);
  }
}

absl::StatusOr<uint64_t> GenerationInbox::BytesHere(size_t file, bool resumed) {
  const ShardSummary& shard = manifest_.shards[file];
  const std::string path = PathOf(file);
  if (resumed) {
    const absl::StatusOr<std::unique_ptr<ReadableFile>> here =
        file_system_.OpenFile(path, FileAccess::kBuffered);
    if (here.ok() && (*here)->size_bytes() <= shard.size_bytes) {
      return (*here)->size_bytes();
    }
    if (here.ok()) {
      GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(path));
    }
  }
  const auto [begin, end] =
      links_.equal_range({shard.size_bytes, shard.checksum});
  for (auto it = begin; it != end; ++it) {
    const Candidate& candidate = it->second;
    if (candidate.summary != shard) continue;
    // One that is only partly there counts as not there.
    const absl::StatusOr<std::unique_ptr<ReadableFile>> there =
        file_system_.OpenFile(candidate.path, FileAccess::kBuffered);
    if (!there.ok() || (*there)->size_bytes() != shard.size_bytes) continue;
    // Not every file system has links; then it is fetched again.
    if (!file_system_.Link(candidate.path, path).ok()) continue;
    if (verified_.contains(candidate.path)) linked_verified_.insert(file);
    return shard.size_bytes;
  }
  return 0;
}

// No worker of the job runs here, since the job would not be fetched otherwise.
// A worker that runs all the same has an older epoch, and its uncommitted files
// are void.
absl::Status GenerationInbox::RemoveLeftovers(const Attempts& attempts) {
  for (const Attempt& other : attempts.uncommitted) {
    if (other == attempt_ ||
        other.generation.epoch > attempt_.generation.epoch) {
      continue;
    }
    GAVEL_RETURN_IF_ERROR(RemoveAttempt(file_system_, directory_, other));
  }
  return absl::OkStatus();
}

absl::Status GenerationInbox::Write(uint64_t file, uint64_t offset,
                                    std::string_view data) {
  const std::string path = PathOf(file);
  if (open_ == nullptr || open_file_ != file) {
    open_.reset();
    absl::StatusOr<std::unique_ptr<WritableFile>> opened =
        offset == 0 ? file_system_.CreateFile(path, FileAccess::kBuffered)
                    : file_system_.AppendFile(path);
    // Cut off before its first byte, or a link to another generation's file:
    // never to be written to.
    if (absl::IsAlreadyExists(opened.status())) {
      GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(path));
      opened = file_system_.CreateFile(path, FileAccess::kBuffered);
    }
    if (!opened.ok()) return opened.status();
    open_ = *std::move(opened);
    open_file_ = file;
  }
  return open_->Append(data);
}

absl::StatusOr<bool> GenerationInbox::Finish(uint64_t file) {
  const auto index = static_cast<size_t>(file);
  if (open_ == nullptr || open_file_ != file) {
    if (linked_verified_.contains(index)) {
      verified_.insert(PathOf(file));
      return true;  // and durable since then
    }
    GAVEL_ASSIGN_OR_RETURN(open_, file_system_.AppendFile(PathOf(file)));
    open_file_ = file;
  }
  GAVEL_RETURN_IF_ERROR(open_->Sync());
  GAVEL_RETURN_IF_ERROR(std::exchange(open_, nullptr)->Close());
  GAVEL_ASSIGN_OR_RETURN(const bool whole, IsWhole(file));
  if (whole) {
    verified_.insert(PathOf(file));
  } else {
    GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(PathOf(file)));
  }
  return whole;
}

absl::StatusOr<bool> GenerationInbox::IsWhole(uint64_t file) {
  const ShardSummary& expected = manifest_.shards[static_cast<size_t>(file)];
  GAVEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadableFile> here,
      file_system_.OpenFile(PathOf(file), FileAccess::kBuffered));
  if (here->size_bytes() != expected.size_bytes) return false;
  ShardSummer summer(expected.size_bytes, manifest_.shard_checksum());
  std::string buffer(kVerifyBytes, '\0');
  for (uint64_t at = 0; at < expected.size_bytes; at += buffer.size()) {
    const auto size = static_cast<size_t>(
        std::min<uint64_t>(buffer.size(), expected.size_bytes - at));
    GAVEL_RETURN_IF_ERROR(here->Read(at, buffer.data(), size));
    if (!summer.Add(std::string_view(buffer).substr(0, size)).ok()) {
      return false;
    }
  }
  const absl::StatusOr<ShardSummary> summary = summer.Finish();
  return summary.ok() && *summary == expected;
}

absl::Status GenerationInbox::Commit() {
  const std::string folder = FolderOf(attempt_);
  GAVEL_RETURN_IF_ERROR(file_system_.SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(
      file_system_.Rename(StrCat(folder, "/", kManifestTemporaryName),
                          StrCat(folder, "/", kManifestFileName)));
  GAVEL_RETURN_IF_ERROR(file_system_.SyncDirectory(folder));
  under_way_ = false;
  fetched_.push_back(attempt_.generation);
  RemoveSuperseded();
  return absl::OkStatus();
}

// Removes copies that were made ahead of a move and replaced by later ones. The
// job itself deletes the generations that it wrote.
void GenerationInbox::RemoveSuperseded() {
  const absl::StatusOr<Attempts> attempts =
      ListAttempts(file_system_, directory_);
  if (!attempts.ok()) return;
  const std::vector<Generation> old =
      GenerationsToDelete(fetched_, attempt_.generation, kFetchedKept);
  for (const Attempt& attempt : attempts->committed) {
    if (std::ranges::find(old, attempt.generation) == old.end()) continue;
    RemoveAttempt(file_system_, directory_, attempt).IgnoreError();
  }
  std::erase_if(fetched_, [&](Generation generation) {
    return std::ranges::find(old, generation) != old.end();
  });
}

void GenerationInbox::Discard() {
  open_.reset();
  if (!under_way_) return;
  under_way_ = false;
  RemoveAttempt(file_system_, directory_, attempt_).IgnoreError();
}

size_t GenerationOutbox::OpenFiles() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.files.size();
  return count;
}

absl::StatusOr<GenerationOutbox::Opened> GenerationOutbox::Open(
    uint64_t session, const std::string& directory, Generation below) {
  for (int listing = 0; listing < kListingsMax; ++listing) {
    GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                           ListAttempts(file_system_, directory));
    bool any = false;
    while (!attempts.committed.empty()) {
      const Attempt attempt = attempts.committed.back();
      attempts.committed.pop_back();
      if (below != Generation{} && attempt.generation >= below) continue;
      any = true;
      Session opened;
      absl::StatusOr<Opened> answer =
          OpenAttempt(StrCat(directory, "/", AttemptName(attempt)),
                      attempt.generation, &opened);
      if (answer.ok()) {
        sessions_[session] = std::move(opened);
        return answer;
      }
      if (!IsUnusable(answer.status())) return answer.status();
    }
    if (!any) break;
  }
  return absl::NotFoundError(StrCat(directory, " has no whole checkpoint"));
}

absl::StatusOr<GenerationOutbox::Opened> GenerationOutbox::OpenAttempt(
    const std::string& folder, Generation generation, Session* session) {
  Opened opened;
  opened.generation = generation;
  GAVEL_ASSIGN_OR_RETURN(
      opened.manifest,
      ReadWholeFile(file_system_, StrCat(folder, "/", kManifestFileName),
                    kManifestSizeBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest,
                         DecodeManifest(opened.manifest));
  if (manifest.generation != generation) {
    return absl::DataLossError(StrCat(folder, " holds another generation"));
  }
  if (manifest.shards.size() > kOutboxShardsMax ||
      OpenFiles() + manifest.shards.size() > kOutboxFilesMax) {
    return absl::ResourceExhaustedError(
        StrCat(folder, " has ", manifest.shards.size(),
               " shards, too many to be served at once"));
  }
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const std::string path = StrCat(folder, "/", ShardFileName(i));
    GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file,
                           file_system_.OpenFile(path, FileAccess::kBuffered));
    if (file->size_bytes() != manifest.shards[i].size_bytes) {
      return absl::DataLossError(StrCat(path, " is not of its size"));
    }
    opened.file_bytes.push_back(file->size_bytes());
    session->files.push_back(std::move(file));
  }
  session->manifest = opened.manifest;
  return opened;
}

absl::StatusOr<StreamChunk> GenerationOutbox::Read(const StreamRead& read) {
  const auto found = sessions_.find(read.session);
  if (found == sessions_.end()) {
    return absl::NotFoundError("the session is closed");
  }
  const Session& session = found->second;
  StreamChunk chunk{read.session, read.file, read.offset, 0, ""};
  if (read.file == kStreamManifest) {
    chunk.data = session.manifest.substr(read.offset, read.size);
  } else {
    chunk.data.resize(read.size);
    GAVEL_RETURN_IF_ERROR(session.files.at(read.file)->Read(
        read.offset, chunk.data.data(), chunk.data.size()));
  }
  chunk.checksum = StreamChecksum(chunk.data);
  return chunk;
}

// ---- Streams and directories

// One job whose checkpoint an agent fetches: the state machine of the fetch and
// the job's files. GenerationStream keeps it after a fetch, so that the next
// one need not verify the same files again. I/O; not thread-safe.
struct FetchedJob {
  // Borrows both.
  FetchedJob(FileSystem& file_system, const std::string& given_directory,
             const std::function<Time()>& clock)
      : directory(given_directory),
        inbox(file_system, given_directory),
        now(clock) {}

  // Carries out the actions on files, as their owner, and returns the machine's
  // next actions. Send, Done and GiveUp are the caller's.
  StreamReceiver::Actions DoOnDisk(const stream_receiver::Action& action);

  const std::string directory;
  GenerationInbox inbox;
  const std::function<Time()>& now;
  CheckpointSource source;
  std::optional<UnixAccount> account;
  std::optional<StreamReceiver> receiver;
  bool running = false;  // else it waits for its turn, or is over
  bool over = true;
  Time answered_at = 0;
  Time told_at = -kNever;
};

namespace {

// Between two looks at deadlines and orders.
constexpr int kFramesPerTurnMax = 32;
constexpr double kWait_s_max = 1;
// The interval between reports of a fetch's state while bytes arrive.
constexpr double kTellInterval_s = 0.5;
// A source that does not answer for this long is connected to anew, because a
// handshake that the source refused before it knew of the move is not retried
// by itself.
constexpr double kReconnectAfter_s = 3;
// Beyond an answer to each read of one receiver.
constexpr int kQueuedFramesMax = 2 * kStreamCredit + 8;
constexpr size_t kOrdersMax = 4096;
constexpr char kTooManyFetches[] =
    "this server fetches as many checkpoints as it can; release the job when "
    "some of them are here";

FetchState StateOf(JobId job, const FetchedJob& fetched) {
  FetchState state;
  state.job = job;
  state.source = fetched.source.server;
  state.bytes_done = fetched.receiver->bytes_done();
  state.bytes_total = fetched.receiver->bytes_total();
  return state;
}

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

StreamReceiver::Actions FetchedJob::DoOnDisk(
    const stream_receiver::Action& action) {
  const FileUser as_owner(account);
  const auto failed = [&](const absl::Status& status) {
    return receiver->Failed(now(), std::string(status.message()));
  };
  if (const auto* prepare = std::get_if<stream_receiver::Prepare>(&action)) {
    absl::StatusOr<GenerationInbox::Need> need =
        inbox.Prepare(prepare->generation, prepare->manifest);
    if (!need.ok()) return failed(need.status());
    if (need->already_here) return receiver->AlreadyHere(now());
    return receiver->Prepared(now(), std::move(need->files));
  }
  if (const auto* write = std::get_if<stream_receiver::Write>(&action)) {
    const absl::Status written =
        inbox.Write(write->file, write->offset, write->data);
    if (!written.ok()) return failed(written);
  } else if (const auto* finish =
                 std::get_if<stream_receiver::Finish>(&action)) {
    const absl::StatusOr<bool> whole = inbox.Finish(finish->file);
    if (!whole.ok()) return failed(whole.status());
    return receiver->Finished(now(), *whole);
  } else if (std::holds_alternative<stream_receiver::Commit>(action)) {
    const absl::Status committed = inbox.Commit();
    if (!committed.ok()) return failed(committed);
    return receiver->Committed(now());
  } else if (std::holds_alternative<stream_receiver::GiveUp>(action)) {
    inbox.Discard();
  }
  return {};
}

struct GenerationStream::Impl {
  explicit Impl(GenerationStreamOptions given)
      : options(std::move(given)), outbox(*options.file_system) {}

  Time Now() const { return stopwatch.elapsed_s(); }

  void Run() {
    while (!stopping) Turn();
  }

  void Turn() {
    TakeOrders();
    BeginNext();
    double wait_s = WaitTime();
    for (int count = 0; count < kFramesPerTurnMax && !stopping; ++count) {
      const std::optional<StreamSockets::Frame> frame =
          sockets->Receive(wait_s);
      if (!frame) break;
      TakeFrame(*frame);
      wait_s = 0;
    }
    TickAll();
  }

  double WaitTime() const {
    Time next = sender.NextDeadline();
    for (const auto& [job, fetched] : fetches) {
      if (fetched.running) {
        next = std::min(next, fetched.receiver->NextDeadline());
      }
    }
    return std::clamp(next - Now(), 0.0, kWait_s_max);
  }

  // ---- orders

  // False: too many wait already.
  bool Give(std::function<void()> order) {
    {
      const std::lock_guard lock(mutex);
      if (orders.size() >= kOrdersMax) return false;
      orders.push_back(std::move(order));
    }
    sockets->waker().Wake();
    return true;
  }

  void Put(FetchState state) {
    {
      const std::lock_guard lock(mutex);
      states[state.job] = std::move(state);
    }
    options.wake();
  }

  // A fetch that is not even begun.
  void Refuse(JobId job, const std::string& source, std::string why) {
    FetchState state;
    state.job = job;
    state.source = source;
    state.over = true;
    state.error = std::move(why);
    Put(std::move(state));
  }

  void TakeOrders() {
    std::vector<std::function<void()>> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(orders);
    }
    for (const std::function<void()>& order : taken) order();
  }

  void Fetch(JobId job, const std::string& directory,
             const CheckpointSource& source,
             const std::optional<UnixAccount>& account) {
    auto found = fetches.find(job);
    if (found != fetches.end() && found->second.directory != directory) {
      Cancel(job);
      fetches.erase(found);
      found = fetches.end();
    }
    if (found == fetches.end()) {
      if (fetches.size() >= kFetchesMax) {
        std::erase_if(fetches, [](const auto& e) { return e.second.over; });
      }
      if (fetches.size() >= kFetchesMax) {
        return Refuse(job, source.server, kTooManyFetches);
      }
      found = fetches.try_emplace(job, *options.file_system, directory, clock)
                  .first;
    }
    FetchedJob& fetched = found->second;
    const bool same = fetched.source.endpoint == source.endpoint &&
                      fetched.source.public_key == source.public_key;
    fetched.source = source;
    fetched.account = account;
    fetched.over = false;
    if (!fetched.running) return;
    // The job has stopped since, or its source has started anew.
    if (!same) {
      sockets->Connect(job.value(), source.endpoint, source.public_key)
          .IgnoreError();
    }
    DoAll(job, fetched, fetched.receiver->Start(Now(), source.at_least));
  }

  void Cancel(JobId job) {
    const auto found = fetches.find(job);
    if (found == fetches.end() || found->second.over) return;
    FetchedJob& fetched = found->second;
    if (fetched.running) {
      --running;
      sockets->Disconnect(job.value());
    }
    fetched.running = false;
    fetched.over = true;
    const std::lock_guard lock(mutex);
    states.erase(job);
  }

  // ---- serving

  void TakeFrame(const StreamSockets::Frame& frame) {
    const absl::StatusOr<StreamMessage> message =
        DecodeStreamMessage(frame.bytes);
    if (!message.ok()) return;
    if (frame.link == 0) {
      StreamSender::Actions actions;
      {
        const std::lock_guard lock(sender_mutex);
        actions = sender.Receive(Now(), frame.public_key, *message);
      }
      return DoAll(frame.peer, std::move(actions));
    }
    const auto found = fetches.find(JobId(frame.link));
    if (found == fetches.end() || !found->second.running) return;
    FetchedJob& fetched = found->second;
    fetched.answered_at = Now();
    DoAll(found->first, fetched, fetched.receiver->Receive(Now(), *message));
  }

  void DoAll(const std::string& peer, StreamSender::Actions actions) {
    for (const stream_sender::Action& action : actions) {
      std::visit([&](const auto& a) { Do(peer, a); }, action);
    }
  }

  // A message that does not get through is requested again by the reader.
  void Do(const std::string& peer, const stream_sender::Send& action) {
    sockets->Reply(peer, EncodeStreamMessage(action.message));
  }

  void Do(const std::string& peer,
          const stream_sender::OpenGeneration& action) {
    // Never as this agent's user, who may be root, in place of the job's.
    const auto owner = AccountOfJob(action.unix_user);
    const auto opened = [&]() -> absl::StatusOr<GenerationOutbox::Opened> {
      if (!owner.ok()) return owner.status();
      const FileUser as_owner(*owner);
      return outbox.Open(action.session, action.directory, action.below);
    }();
    StreamSender::Actions next;
    {
      const std::lock_guard lock(sender_mutex);
      if (opened.ok()) {
        next = sender.Opened(action.session, opened->generation,
                             opened->manifest, opened->file_bytes);
      } else {
        const bool none = owner.ok() && absl::IsNotFound(opened.status());
        next = sender.OpenFailed(
            action.session,
            none ? StreamRefusal::kNoGeneration : StreamRefusal::kCannotRead,
            std::string(opened.status().message()));
      }
    }
    DoAll(peer, std::move(next));
  }

  void Do(const std::string& peer, const stream_sender::ReadFile& action) {
    absl::StatusOr<StreamChunk> chunk = outbox.Read(action.read);
    StreamMessage answer;
    if (chunk.ok()) {
      answer = *std::move(chunk);
    } else {
      answer = StreamRefused{0, action.read.session, StreamRefusal::kCannotRead,
                             std::string(chunk.status().message())};
    }
    sockets->Reply(peer, EncodeStreamMessage(answer));
  }

  void Do(const std::string&, const stream_sender::CloseGeneration& action) {
    outbox.Close(action.session);
  }

  // ---- fetching

  void BeginNext() {
    for (auto& [job, fetched] : fetches) {
      if (running >= kFetchesAtOnceMax) return;
      if (!fetched.over && !fetched.running) Begin(job, fetched);
    }
  }

  void Begin(JobId job, FetchedJob& fetched) {
    fetched.receiver.emplace(StreamReceiverOptions{
        job, kManifestSizeBytesMax, fetched.source.at_least, next_nonce});
    next_nonce += uint64_t{1} << 32;  // more than one fetch ever asks
    fetched.running = true;
    fetched.answered_at = Now();
    ++running;
    const absl::Status connected = sockets->Connect(
        job.value(), fetched.source.endpoint, fetched.source.public_key);
    if (!connected.ok()) {
      return End(job, fetched, {}, std::string(connected.message()));
    }
    DoAll(job, fetched,
          fetched.receiver->Start(Now(), fetched.source.at_least));
  }

  // Each action's answer comes before the next message, as the machine wants
  // it.
  void DoAll(JobId job, FetchedJob& fetched, StreamReceiver::Actions actions) {
    while (!actions.empty() && fetched.running) {
      StreamReceiver::Actions next;
      for (const stream_receiver::Action& action : actions) {
        StreamReceiver::Actions more = Do(job, fetched, action);
        std::move(more.begin(), more.end(), std::back_inserter(next));
        if (!fetched.running) break;
      }
      actions = std::move(next);
    }
    if (fetched.running) Tell(job, fetched, /*at_once=*/false);
  }

  StreamReceiver::Actions Do(JobId job, FetchedJob& fetched,
                             const stream_receiver::Action& action) {
    StreamReceiver::Actions next = fetched.DoOnDisk(action);
    if (const auto* send = std::get_if<stream_receiver::Send>(&action)) {
      sockets->Send(job.value(), EncodeStreamMessage(send->message));
    } else if (const auto* done = std::get_if<stream_receiver::Done>(&action)) {
      End(job, fetched, done->generation, "");
    } else if (const auto* give_up =
                   std::get_if<stream_receiver::GiveUp>(&action)) {
      End(job, fetched, {}, give_up->why);
    }
    return next;
  }

  void End(JobId job, FetchedJob& fetched, Generation generation,
           std::string error) {
    sockets->Disconnect(job.value());
    fetched.running = false;
    fetched.over = true;
    --running;
    FetchState state = StateOf(job, fetched);
    state.over = true;
    state.generation = generation;
    state.error = std::move(error);
    Put(std::move(state));
  }

  void Tell(JobId job, FetchedJob& fetched, bool at_once) {
    const Time now = Now();
    if (!at_once && now < fetched.told_at + kTellInterval_s) return;
    fetched.told_at = now;
    FetchState state = StateOf(job, fetched);
    state.waits_for = fetched.receiver->waits_for();
    Put(std::move(state));
  }

  void TickAll() {
    const Time now = Now();
    StreamSender::Actions closing;
    {
      const std::lock_guard lock(sender_mutex);
      closing = sender.Tick(now);
    }
    DoAll("", std::move(closing));
    for (auto& [job, fetched] : fetches) {
      if (!fetched.running || now < fetched.receiver->NextDeadline()) continue;
      if (now > fetched.answered_at + kReconnectAfter_s) {
        fetched.answered_at = now;
        sockets
            ->Connect(job.value(), fetched.source.endpoint,
                      fetched.source.public_key)
            .IgnoreError();
      }
      DoAll(job, fetched, fetched.receiver->Tick(now));
      if (fetched.running) Tell(job, fetched, /*at_once=*/true);
    }
  }

  const Stopwatch stopwatch;
  const std::function<Time()> clock = [this] { return Now(); };
  GenerationStreamOptions options;
  CurveKeyPair keys;

  // Used by the thread alone.
  GenerationOutbox outbox;
  std::map<JobId, FetchedJob> fetches;
  size_t running = 0;
  uint64_t next_nonce = 1;

  // Asked by handshakes, too, which run on another thread.
  std::mutex sender_mutex;
  StreamSender sender;
  // After what its handshakes ask, so that it ends first.
  std::unique_ptr<StreamSockets> sockets;

  std::atomic<bool> stopping{false};
  std::mutex mutex;  // guards what follows
  std::vector<std::function<void()>> orders;
  std::map<JobId, FetchState> states;

  std::thread thread;
};

// ---- the door

GenerationStream::GenerationStream(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

GenerationStream::~GenerationStream() {
  impl_->stopping = true;
  impl_->sockets->waker().Wake();
  impl_->thread.join();
}

absl::StatusOr<std::unique_ptr<GenerationStream>> GenerationStream::Start(
    GenerationStreamOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  GAVEL_ASSIGN_OR_RETURN(impl->keys, NewCurveKeyPair());
  StreamSocketsOptions sockets;
  sockets.address = impl->options.address;
  sockets.keys = impl->keys;
  sockets.may_connect = [impl = impl.get()](const std::string& key) {
    const std::lock_guard lock(impl->sender_mutex);
    return impl->sender.Knows(impl->Now(), key);
  };
  sockets.frame_bytes_max = kStreamFrameBytesMax;
  sockets.queued_frames_max = kQueuedFramesMax;
  GAVEL_ASSIGN_OR_RETURN(impl->sockets,
                         StreamSockets::Bind(std::move(sockets)));
  impl->thread = std::thread([impl = impl.get()] { impl->Run(); });
  return std::unique_ptr<GenerationStream>(
      new GenerationStream(std::move(impl)));
}

const std::string& GenerationStream::endpoint() const {
  return impl_->sockets->endpoint();
}
const std::string& GenerationStream::public_key() const {
  return impl_->keys.public_key;
}

void GenerationStream::Serve(JobId job, const std::string& reader_public_key,
                             const std::string& directory,
                             const std::string& unix_user) {
  // If the order is dropped, the reader is refused, and asks again.
  impl_->Give(
      [impl = impl_.get(), job, reader_public_key, directory, unix_user] {
        const std::lock_guard lock(impl->sender_mutex);
        impl->sender.Allow(impl->Now(), reader_public_key, job, directory,
                           unix_user);
      });
}

void GenerationStream::Fetch(JobId job, const std::string& directory,
                             const CheckpointSource& source,
                             const std::optional<UnixAccount>& account) {
  const bool given =
      impl_->Give([impl = impl_.get(), job, directory, source, account] {
        impl->Fetch(job, directory, source, account);
      });
  if (given) return;
  impl_->Refuse(job, source.server, kTooManyFetches);
}

void GenerationStream::Cancel(JobId job) {
  impl_->Give([impl = impl_.get(), job] { impl->Cancel(job); });
}

std::vector<FetchState> GenerationStream::TakeStates() {
  std::vector<FetchState> taken;
  const std::lock_guard lock(impl_->mutex);
  for (auto& [job, state] : impl_->states) taken.push_back(std::move(state));
  impl_->states.clear();
  return taken;
}

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

// An offer that fails needs no report: the reader reports that it was not
// allowed.
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
