#include "coordinator/agent/stream_sender.h"

#include <algorithm>

namespace gavel {

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
