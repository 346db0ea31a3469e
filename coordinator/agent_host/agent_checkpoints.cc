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
#include "coordinator/agent_host/generation_files.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/files/stopwatch.h"
#include "runtime/generation/file_system.h"
#include "runtime/transport/stream_sockets.h"

namespace gavel {

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
