#include "coordinator/agent/stream_receiver.h"

#include <algorithm>
#include <utility>

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

// Whatever was asked for before is void. What is partly here stays.
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
  // Another size than was asked for: what follows would not fit.
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

}  // namespace gavel
