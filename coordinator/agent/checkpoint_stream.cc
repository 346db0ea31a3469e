#include "coordinator/agent/checkpoint_stream.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same checksums, by AVX2 or AVX-512 if there
#endif

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/packer.h"
#include "core/text.h"

namespace gavel {
namespace {

// Without an answer for this long it is asked again.
constexpr double kRetry_s = 1;
// That often unanswered, the session may be gone.
constexpr int kUnansweredMax = 3;
// A file that arrives like that so often is damaged at the source.
constexpr int kDamagedMax = 3;
constexpr int kDiskErrorsMax = 5;

}  // namespace

auto Fields(As<Generation> auto& m) { return std::tie(m.epoch, m.step); }
auto Fields(As<StreamOpen> auto& m) {
  return std::tie(m.nonce, m.job, m.below);
}
auto Fields(As<StreamRead> auto& m) {
  return std::tie(m.session, m.file, m.offset, m.size);
}
auto Fields(As<StreamClose> auto& m) { return std::tie(m.session); }
auto Fields(As<StreamOpened> auto& m) {
  return std::tie(m.nonce, m.session, m.generation, m.manifest_bytes,
                  m.manifest_checksum);
}
auto Fields(As<StreamChunk> auto& m) {
  return std::tie(m.session, m.file, m.offset, m.checksum, m.data);
}
constexpr StreamRefusal LastOf(StreamRefusal) {
  return StreamRefusal::kOutOfSessions;
}
auto Fields(As<StreamRefused> auto& m) {
  return std::tie(m.nonce, m.session, m.refusal, m.why);
}

namespace {

constexpr std::string_view kMagic = "GVS";
constexpr char kVersion = 1;
constexpr size_t kHeaderBytes = 5;
constexpr PackLimits kLimits = {16, kStreamChunkBytesMax};
constexpr size_t kTypes = std::variant_size_v<StreamMessage>;

template <size_t index>
StreamMessage Get(Unpacker& unpacker) {
  StreamMessage message(std::in_place_index<index>);
  GetFields(unpacker, std::get<index>(message));
  return message;
}

template <size_t... index>
constexpr auto MakeReaders(std::index_sequence<index...>) {
  return std::array<StreamMessage (*)(Unpacker&), kTypes>{Get<index>...};
}
constexpr auto kReaders = MakeReaders(std::make_index_sequence<kTypes>());

}  // namespace

std::string EncodeStreamMessage(const StreamMessage& message) {
  Packer packer(kLimits);
  std::visit([&](const auto& body) { PutField(packer, body); }, message);
  std::string frame(kMagic);
  frame.push_back(kVersion);
  frame.push_back(static_cast<char>(message.index() + 1));
  frame += packer.Take();
  return frame;
}

absl::StatusOr<StreamMessage> DecodeStreamMessage(std::string_view frame) {
  if (frame.size() > kStreamFrameBytesMax || frame.size() < kHeaderBytes ||
      !frame.starts_with(kMagic) || frame[kMagic.size()] != kVersion) {
    return absl::InvalidArgumentError("not a frame of a stream");
  }
  const size_t type = static_cast<uint8_t>(frame[kMagic.size() + 1]);
  if (type == 0 || type > kTypes) {
    return absl::InvalidArgumentError("not a known frame of a stream");
  }
  Unpacker unpacker(frame.substr(kHeaderBytes), kLimits);
  StreamMessage message = kReaders[type - 1](unpacker);
  if (!unpacker.ok()) return unpacker.status();
  return message;
}

uint64_t StreamChecksum(std::string_view data) {
  return XXH3_64bits(data.data(), data.size());
}

StreamReceiver::StreamReceiver(StreamReceiverOptions options)
    : options_(options), nonce_(options.first_nonce) {}

StreamReceiver::Actions StreamReceiver::Start(Time now, Generation at_least) {
  now_ = now;
  options_.at_least = std::max(options_.at_least, at_least);
  below_ = {};
  waits_for_.clear();
  if (session_ != 0) Send(StreamClose{session_});
  Open();
  return TakeActions();
}

// Opens a new session. Earlier requests are void, and data that has already
// arrived is kept.
void StreamReceiver::Open() {
  state_ = State::kOpening;
  ++nonce_;
  session_ = 0;
  unanswered_ = 0;
  AskToOpen();
}

void StreamReceiver::AskToOpen() {
  deadline_ = now_ + kRetry_s;
  Send(StreamOpen{nonce_, options_.job, below_});
}

StreamReceiver::Actions StreamReceiver::Receive(Time now,
                                                const StreamMessage& message) {
  now_ = now;
  if (state_ == State::kIdle || over()) return TakeActions();
  std::visit([&](const auto& m) { Take(m); }, message);
  return TakeActions();
}

void StreamReceiver::Take(const StreamOpened& opened) {
  if (state_ != State::kOpening || opened.nonce != nonce_ ||
      opened.session == 0) {
    ++dropped_;
    return;
  }
  if (below_ == Generation{} && opened.generation < options_.at_least) {
    return GiveUp(StrCat("its latest checkpoint there is ",
                         GenerationName(opened.generation), ", older than ",
                         GenerationName(options_.at_least),
                         ", which was acknowledged"));
  }
  if (opened.manifest_bytes == 0 ||
      opened.manifest_bytes > options_.manifest_bytes_max) {
    return GiveUp("its manifest is of no possible size");
  }
  session_ = opened.session;
  waits_for_.clear();
  deadline_ = now_ + kRetry_s;
  // The same as before a cut: on with it. Files are known by the checksums of
  // the manifest, so equal manifests are equal generations.
  if (!files_.empty() && files_.front().file != kStreamManifest &&
      opened.generation == generation_ &&
      opened.manifest_checksum == manifest_checksum_) {
    state_ = State::kFiles;
  } else {
    state_ = State::kManifest;
    generation_ = opened.generation;
    manifest_checksum_ = opened.manifest_checksum;
    manifest_.clear();
    files_ = {{kStreamManifest, opened.manifest_bytes, 0}};
    next_file_ = 0;
  }
  GoBack();
  AskForMore();
}

void StreamReceiver::GoBack() {
  ask_file_ = next_file_;
  ask_offset_ =
      next_file_ < files_.size() ? files_[next_file_].have_bytes : uint64_t{0};
  outstanding_ = 0;
}

void StreamReceiver::AskForMore() {
  while (outstanding_ < kStreamCredit && ask_file_ < files_.size()) {
    const StreamFile& file = files_[ask_file_];
    if (ask_offset_ >= file.size_bytes) {
      ++ask_file_;
      if (ask_file_ < files_.size()) ask_offset_ = files_[ask_file_].have_bytes;
      continue;
    }
    const uint64_t size =
        std::min(kStreamChunkBytesMax, file.size_bytes - ask_offset_);
    Send(StreamRead{session_, file.file, ask_offset_, size});
    ask_offset_ += size;
    ++outstanding_;
  }
}

void StreamReceiver::Take(const StreamChunk& chunk) {
  const bool wanted =
      (state_ == State::kManifest || state_ == State::kFiles) &&
      chunk.session == session_ && next_file_ < files_.size() &&
      chunk.file == files_[next_file_].file &&
      chunk.offset == files_[next_file_].have_bytes && outstanding_ > 0 &&
      !chunk.data.empty() &&
      chunk.data.size() <=
          std::min(kStreamChunkBytesMax,
                   files_[next_file_].size_bytes - chunk.offset);
  if (!wanted || StreamChecksum(chunk.data) != chunk.checksum) {
    ++dropped_;
    return;
  }
  TakeBytes(chunk);
}

void StreamReceiver::TakeBytes(const StreamChunk& chunk) {
  StreamFile& file = files_[next_file_];
  file.have_bytes += chunk.data.size();
  --outstanding_;
  unanswered_ = 0;
  disk_errors_ = 0;
  deadline_ = now_ + kRetry_s;
  waits_for_.clear();
  // The chunk has another size than was asked for, so the chunks after it do
  // not fit.
  if (next_file_ == ask_file_ && ask_offset_ < file.have_bytes) GoBack();
  const bool whole = file.have_bytes == file.size_bytes;
  if (state_ == State::kManifest) {
    manifest_ += chunk.data;
    if (whole) return TakeManifest();
  } else {
    bytes_done_ += chunk.data.size();
    actions_.emplace_back(
        stream_receiver::Write{file.file, chunk.offset, chunk.data});
    if (whole) {
      actions_.emplace_back(stream_receiver::Finish{file.file});
      return;
    }
  }
  AskForMore();
}

void StreamReceiver::TakeManifest() {
  if (StreamChecksum(manifest_) != manifest_checksum_) {
    ++dropped_;
    manifest_.clear();
    files_.front().have_bytes = 0;
    GoBack();
    return AskForMore();
  }
  actions_.emplace_back(
      stream_receiver::Prepare{generation_, std::move(manifest_)});
  manifest_.clear();
}

StreamReceiver::Actions StreamReceiver::Prepared(
    Time now, std::vector<StreamFile> files) {
  now_ = now;
  state_ = State::kFiles;
  files_ = std::move(files);
  next_file_ = 0;
  damaged_ = 0;
  bytes_done_ = 0;
  bytes_total_ = 0;
  for (const StreamFile& file : files_) {
    bytes_total_ += file.size_bytes - file.have_bytes;
  }
  GoBack();
  AskForMore();
  FinishOrGoOn();
  return TakeActions();
}

// Files of which all bytes were here are looked at as they come up.
void StreamReceiver::FinishOrGoOn() {
  deadline_ = now_ + kRetry_s;
  if (next_file_ == files_.size()) {
    actions_.emplace_back(stream_receiver::Commit{});
  } else if (files_[next_file_].have_bytes == files_[next_file_].size_bytes) {
    actions_.emplace_back(stream_receiver::Finish{files_[next_file_].file});
  }
}

StreamReceiver::Actions StreamReceiver::Finished(Time now, bool whole) {
  now_ = now;
  if (state_ != State::kFiles || next_file_ >= files_.size())
    return TakeActions();
  StreamFile& file = files_[next_file_];
  if (whole) {
    damaged_ = 0;
    ++next_file_;
    AskForMore();
    FinishOrGoOn();
    return TakeActions();
  }
  if (++damaged_ >= kDamagedMax) {
    Fallback();
    return TakeActions();
  }
  bytes_done_ -= std::min(bytes_done_, file.have_bytes);
  file.have_bytes = 0;
  GoBack();
  AskForMore();
  deadline_ = now_ + kRetry_s;
  return TakeActions();
}

// As a restart on the source itself would: the latest one that verifies.
void StreamReceiver::Fallback() {
  below_ = generation_;
  files_.clear();
  next_file_ = 0;
  Send(StreamClose{session_});
  Open();
  waits_for_ = StrCat(GenerationName(below_),
                      " is damaged at the source, so the one before it is "
                      "taken");
}

StreamReceiver::Actions StreamReceiver::AlreadyHere(Time now) {
  return Committed(now);
}

StreamReceiver::Actions StreamReceiver::Committed(Time) {
  Send(StreamClose{session_});
  actions_.emplace_back(stream_receiver::Done{generation_});
  End();
  return TakeActions();
}

StreamReceiver::Actions StreamReceiver::Failed(Time, std::string why) {
  if (!over()) GiveUp(std::move(why));
  return TakeActions();
}

void StreamReceiver::GiveUp(std::string why) {
  if (session_ != 0) Send(StreamClose{session_});
  actions_.emplace_back(stream_receiver::GiveUp{std::move(why)});
  End();
}

void StreamReceiver::Send(StreamMessage message) {
  actions_.emplace_back(stream_receiver::Send{std::move(message)});
}

StreamReceiver::Actions StreamReceiver::TakeActions() {
  return std::exchange(actions_, {});
}

void StreamReceiver::End() {
  state_ = State::kOver;
  session_ = 0;
  files_.clear();
  next_file_ = 0;
}

void StreamReceiver::Take(const StreamRefused& refused) {
  const bool of_open = state_ == State::kOpening && refused.session == 0 &&
                       refused.nonce == nonce_;
  const bool of_read = session_ != 0 && refused.session == session_;
  if (!of_open && !of_read) {
    ++dropped_;
    return;
  }
  unanswered_ = 0;
  switch (refused.refusal) {
    case StreamRefusal::kNoSession:
      return Open();
    case StreamRefusal::kNotAllowed:
      waits_for_ = "the source has not been told of it yet";
      break;
    case StreamRefusal::kOutOfSessions:
      waits_for_ = "the source has too many readers";
      break;
    case StreamRefusal::kNoGeneration:
      if (options_.at_least == Generation{} && below_ == Generation{}) {
        actions_.emplace_back(stream_receiver::Done{});
        return End();
      }
      return GiveUp(below_ == Generation{}
                        ? "the source has none of its checkpoints any more"
                        : "all of its checkpoints at the source are damaged");
    case StreamRefusal::kCannotRead:
      waits_for_ = StrCat("the source cannot read it: ",
                          std::string_view(refused.why).substr(0, 256));
      if (++disk_errors_ >= kDiskErrorsMax) return GiveUp(waits_for_);
      break;
  }
  deadline_ = now_ + kRetry_s;  // then again
}

StreamReceiver::Actions StreamReceiver::Tick(Time now) {
  now_ = now;
  if (state_ == State::kIdle || over() || now_ < deadline_)
    return TakeActions();
  deadline_ = now_ + kRetry_s;
  ++unanswered_;
  if (unanswered_ >= kUnansweredMax && waits_for_.empty()) {
    waits_for_ = "the source does not answer";
  }
  if (state_ == State::kOpening) {
    AskToOpen();
    return TakeActions();
  }
  if (unanswered_ >= kUnansweredMax) {
    Open();
    return TakeActions();
  }
  GoBack();
  AskForMore();
  return TakeActions();
}

void StreamSender::Allow(Time now, const std::string& reader_key, JobId job,
                         std::string directory, std::string unix_user) {
  std::erase_if(rights_,
                [&](const auto& entry) { return entry.second.until < now; });
  if (rights_.size() >= kStreamRightsMax &&
      !rights_.contains({reader_key, job})) {
    return;
  }
  rights_[{reader_key, job}] = {std::move(directory), std::move(unix_user),
                                now + kStreamRight_s};
}

bool StreamSender::Knows(Time now, const std::string& reader_key) const {
  return std::any_of(rights_.begin(), rights_.end(), [&](const auto& entry) {
    return entry.first.first == reader_key && entry.second.until >= now;
  });
}

const StreamSender::Right* StreamSender::FindRight(Time now,
                                                   const Reader& reader) const {
  const auto found = rights_.find(reader);
  return found == rights_.end() || found->second.until < now ? nullptr
                                                             : &found->second;
}

StreamSender::Actions StreamSender::Receive(Time now,
                                            const std::string& reader_key,
                                            const StreamMessage& message) {
  Actions actions;
  std::visit([&](const auto& m) { Take(now, reader_key, m, actions); },
             message);
  return actions;
}

void StreamSender::Take(Time now, const std::string& reader_key,
                        const StreamOpen& open, Actions& actions) {
  const Right* const right = FindRight(now, {reader_key, open.job});
  if (right == nullptr) {
    actions.emplace_back(stream_sender::Send{
        StreamRefused{open.nonce, 0, StreamRefusal::kNotAllowed, ""}});
    return;
  }
  // Asked again, for the answer was slow or lost.
  for (const auto& [id, session] : sessions_) {
    if (session.reader_key != reader_key || session.job != open.job ||
        session.nonce != open.nonce) {
      continue;
    }
    if (session.open) actions.emplace_back(Answer(id, session));
    return;
  }
  MakeRoom(reader_key, actions);
  if (sessions_.size() >= kStreamSessionsMax) {
    actions.emplace_back(stream_sender::Send{
        StreamRefused{open.nonce, 0, StreamRefusal::kOutOfSessions, ""}});
    return;
  }
  const uint64_t id = next_session_++;
  Session& session = sessions_[id];
  session.reader_key = reader_key;
  session.job = open.job;
  session.nonce = open.nonce;
  session.used_at = now;
  actions.emplace_back(stream_sender::OpenGeneration{
      id, right->directory, right->unix_user, open.below});
}

// A reader that opens again and again keeps its last sessions only: what it has
// forgotten by a restart needs no time-out.
void StreamSender::MakeRoom(const std::string& reader_key, Actions& actions) {
  auto oldest = sessions_.end();
  size_t count = 0;
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (it->second.reader_key != reader_key) continue;
    ++count;
    if (oldest == sessions_.end() ||
        it->second.used_at < oldest->second.used_at) {
      oldest = it;
    }
  }
  if (count < kStreamSessionsPerReaderMax) return;
  actions.emplace_back(stream_sender::CloseGeneration{oldest->first});
  sessions_.erase(oldest);
}

bool StreamSender::Within(const Session& session, const StreamRead& read) {
  uint64_t bytes = 0;
  if (read.file == kStreamManifest) {
    bytes = session.manifest_bytes;
  } else if (read.file < session.file_bytes.size()) {
    bytes = session.file_bytes[static_cast<size_t>(read.file)];
  } else {
    return false;
  }
  return read.size > 0 && read.size <= kStreamChunkBytesMax &&
         read.offset <= bytes && read.size <= bytes - read.offset;
}

void StreamSender::Take(Time now, const std::string& reader_key,
                        const StreamRead& read, Actions& actions) {
  const auto found = sessions_.find(read.session);
  if (found == sessions_.end() || found->second.reader_key != reader_key ||
      !found->second.open ||
      FindRight(now, {reader_key, found->second.job}) == nullptr) {
    actions.emplace_back(stream_sender::Send{
        StreamRefused{0, read.session, StreamRefusal::kNoSession, ""}});
    return;
  }
  if (!Within(found->second, read)) return;  // no reader of ours asks for that
  found->second.used_at = now;
  actions.emplace_back(stream_sender::ReadFile{read});
}

void StreamSender::Take(Time, const std::string& reader_key,
                        const StreamClose& close, Actions& actions) {
  const auto found = sessions_.find(close.session);
  if (found == sessions_.end() || found->second.reader_key != reader_key) {
    return;
  }
  sessions_.erase(found);
  actions.emplace_back(stream_sender::CloseGeneration{close.session});
}

StreamSender::Actions StreamSender::Opened(uint64_t session,
                                           Generation generation,
                                           std::string_view manifest,
                                           std::vector<uint64_t> file_bytes) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  Session& opened = found->second;
  opened.open = true;
  opened.generation = generation;
  opened.manifest_bytes = manifest.size();
  opened.manifest_checksum = StreamChecksum(manifest);
  opened.file_bytes = std::move(file_bytes);
  return {Answer(session, opened)};
}

stream_sender::Send StreamSender::Answer(uint64_t id, const Session& session) {
  return {StreamOpened{session.nonce, id, session.generation,
                       session.manifest_bytes, session.manifest_checksum}};
}

StreamSender::Actions StreamSender::OpenFailed(uint64_t session,
                                               StreamRefusal refusal,
                                               std::string why) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  const uint64_t nonce = found->second.nonce;
  sessions_.erase(found);
  return {
      stream_sender::Send{StreamRefused{nonce, 0, refusal, std::move(why)}}};
}

StreamSender::Actions StreamSender::Tick(Time now) {
  Actions actions;
  std::erase_if(sessions_, [&](const auto& entry) {
    if (now < entry.second.used_at + kStreamIdle_s) return false;
    actions.emplace_back(stream_sender::CloseGeneration{entry.first});
    return true;
  });
  return actions;
}

Time StreamSender::NextDeadline() const {
  Time next = kNever;
  for (const auto& [id, session] : sessions_) {
    next = std::min(next, session.used_at + kStreamIdle_s);
  }
  return next;
}

}  // namespace gavel
