// The source's end of a move between servers, decisions only: who may read
// what, and for how long files stay open. The shell opens and reads files, and
// has authenticated every reader by its key. Not thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_STREAM_SENDER_H_
#define GAVEL_COORDINATOR_AGENT_STREAM_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/agent/stream_messages.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// Generations held open at once, by all readers and by one.
inline constexpr size_t kStreamSessionsMax = 64;
inline constexpr size_t kStreamSessionsPerReaderMax = 8;
// Right to read, from the coordinator's last word on.
inline constexpr double kStreamRight_s = 600;
// A session without a question for this long is closed.
inline constexpr double kStreamIdle_s = 120;
inline constexpr size_t kStreamRightsMax = 4096;

namespace stream_sender {

// To the peer that asked.
struct Send {
  StreamMessage message;
};
// Open the job's latest committed generation below `below`; answer with
// Opened() or OpenFailed() of the same session before anything else.
struct OpenGeneration {
  uint64_t session = 0;
  std::string directory;
  std::string unix_user;  // as whom
  Generation below;
};
// Read, and send what was read as a StreamChunk; a failure is a StreamRefused
// with kCannotRead.
struct ReadFile {
  StreamRead read;
};
struct CloseGeneration {
  uint64_t session = 0;
};

using Action = std::variant<Send, OpenGeneration, ReadFile, CloseGeneration>;
using Actions = std::vector<Action>;

}  // namespace stream_sender

class StreamSender {
 public:
  using Actions = stream_sender::Actions;

  // The coordinator's word: the agent with this key may read the job's
  // checkpoints, which lie in `directory` and belong to `unix_user` (empty:
  // jobs have no owners).
  void Allow(Time now, const std::string& reader_key, JobId job,
             std::string directory, std::string unix_user = "");

  // From the reader that proved to own `reader_key`.
  Actions Receive(Time now, const std::string& reader_key,
                  const StreamMessage& message);

  // What came of OpenGeneration. `file_bytes`: of the shards, in order.
  Actions Opened(uint64_t session, Generation generation,
                 std::string_view manifest, std::vector<uint64_t> file_bytes);
  Actions OpenFailed(uint64_t session, StreamRefusal refusal, std::string why);

  // Closes what is idle.
  Actions Tick(Time now);
  Time NextDeadline() const;

  // Whether anyone with this key may read anything (asked at the handshake).
  bool Knows(Time now, const std::string& reader_key) const;

 private:
  struct Right {
    std::string directory, unix_user;
    Time until = 0;
  };
  struct Session {
    std::string reader_key;
    JobId job;
    uint64_t nonce = 0;
    Time used_at = 0;
    bool open = false;
    Generation generation;
    uint64_t manifest_bytes = 0;
    uint64_t manifest_checksum = 0;
    std::vector<uint64_t> file_bytes;
  };
  using Reader = std::pair<std::string, JobId>;

  void Take(Time now, const std::string& reader_key, const StreamOpen& open,
            Actions& actions);
  void Take(Time now, const std::string& reader_key, const StreamRead& read,
            Actions& actions);
  void Take(Time now, const std::string& reader_key, const StreamClose& close,
            Actions& actions);
  // Messages that only a source sends.
  template <class T>
  void Take(Time, const std::string&, const T&, Actions&) {}
  const Right* FindRight(Time now, const Reader& reader) const;
  static stream_sender::Send Answer(uint64_t id, const Session& session);
  static bool Within(const Session& session, const StreamRead& read);
  void MakeRoom(const std::string& reader_key, Actions& actions);

  std::map<Reader, Right> rights_;
  std::map<uint64_t, Session> sessions_;
  uint64_t next_session_ = 1;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_STREAM_SENDER_H_
