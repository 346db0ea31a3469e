// The move of a checkpoint generation between two servers, decisions only: the
// messages, the receiver's end (StreamReceiver) and the source's end
// (StreamSender). docs/moves.md has the whole exchange.
#ifndef GAVEL_COORDINATOR_AGENT_CHECKPOINT_STREAM_H_
#define GAVEL_COORDINATOR_AGENT_CHECKPOINT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// Messages between two agents while a generation moves between servers: plain
// structs and their bytes, on a socket of its own. The reader requests every
// piece, so its credit (what it has requested and not yet received) bounds the
// memory of both sides. Nothing depends on the arrival of a frame. Stateless,
// thread-safe.

inline constexpr uint64_t kStreamChunkBytesMax = uint64_t{1} << 20;
// The size of a chunk with its header.
inline constexpr size_t kStreamFrameBytesMax = kStreamChunkBytesMax + 4096;
// StreamRead::file of the manifest; shards are 0, 1, ...
inline constexpr uint64_t kStreamManifest = uint64_t{1} << 32;

// ---- reader -> source

// "The latest committed generation of `job`", older than `below` unless that is
// (0, 0).
struct StreamOpen {
  uint64_t nonce = 0;  // comes back in the answer
  JobId job;
  Generation below;
};

// At most kStreamChunkBytesMax bytes of a file.
struct StreamRead {
  uint64_t session = 0;
  uint64_t file = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The reader has all that it wants.
struct StreamClose {
  uint64_t session = 0;
};

// ---- source -> reader

struct StreamOpened {
  uint64_t nonce = 0;
  uint64_t session = 0;  // not 0
  Generation generation;
  uint64_t manifest_bytes = 0;
  uint64_t manifest_checksum = 0;  // XXH3-64
};

struct StreamChunk {
  uint64_t session = 0;
  uint64_t file = 0;
  uint64_t offset = 0;
  uint64_t checksum = 0;  // XXH3-64 of `data`
  std::string data;
};

enum class StreamRefusal : uint8_t {
  kNotAllowed = 0,     // the coordinator has not (yet) told the source of it
  kNoGeneration = 1,   // the source has none
  kNoSession = 2,      // over, or of an earlier agent: open again
  kCannotRead = 3,     // the source's disk; `why`
  kOutOfSessions = 4,  // too many at once; ask again
};

// Refuses an Open (`nonce`) or a Read (`session`).
struct StreamRefused {
  uint64_t nonce = 0;
  uint64_t session = 0;
  StreamRefusal refusal = StreamRefusal::kNotAllowed;
  std::string why;
};

// The place of each is its type on the wire.
using StreamMessage = std::variant<StreamOpen, StreamRead, StreamClose,
                                   StreamOpened, StreamChunk, StreamRefused>;

// Requires a chunk of at most kStreamChunkBytesMax.
std::string EncodeStreamMessage(const StreamMessage& message);

// INVALID_ARGUMENT for anything else; never throws, allocates at most a small
// multiple of the frame.
absl::StatusOr<StreamMessage> DecodeStreamMessage(std::string_view frame);

// XXH3-64, as everywhere in checkpoints.
uint64_t StreamChecksum(std::string_view data);

// Chunks asked for and not yet here.
inline constexpr size_t kStreamCredit = 8;

struct StreamReceiverOptions {
  JobId job;
  uint64_t manifest_bytes_max = uint64_t{256} << 20;
  // The source must have it, or a later one; (0, 0): anything will do.
  Generation at_least;
  // Above all that this agent used before.
  uint64_t first_nonce = 1;
};

// A file that has to be here: of `size_bytes`, `have_bytes` are.
struct StreamFile {
  uint64_t file = 0;
  uint64_t size_bytes = 0;
  uint64_t have_bytes = 0;
};

namespace stream_receiver {

struct Send {
  StreamMessage message;
};
// Get ready for this generation; answer with Prepared(), AlreadyHere() or
// Failed() before anything else.
struct Prepare {
  Generation generation;
  std::string manifest;
};
// Append; the file has `offset` bytes now. Failed() when it can't be done.
struct Write {
  uint64_t file = 0;
  uint64_t offset = 0;
  std::string data;
};
// All bytes are there: make them durable and compare them with the manifest;
// answer with Finished() or Failed() before anything else.
struct Finish {
  uint64_t file = 0;
};
// Make it a generation; answer with Committed() or Failed().
struct Commit {};
// Over: the generation is here (of nothing when the source has none).
struct Done {
  Generation generation;
};
// Over: it can't be had; what is partly here is of no use any more.
struct GiveUp {
  std::string why;
};

using Action = std::variant<Send, Prepare, Write, Finish, Commit, Done, GiveUp>;
using Actions = std::vector<Action>;

}  // namespace stream_receiver

// The receiver's end of a move between servers, decisions only: what to ask
// for, what of an answer to keep, when to begin anew. One fetches the latest
// generation of one job from one source; the shell owns sockets and files.
//
// Every file is fetched front to back. An answer counts only when it is the
// next bytes of the file and its checksum is right; all others (doubled, late,
// of an older session) are dropped, and what does not come is asked for again.
// A whole file counts when its checksums are those of the manifest, and the
// generation when all files do. Not thread-safe.
class StreamReceiver {
 public:
  using Actions = stream_receiver::Actions;

  explicit StreamReceiver(StreamReceiverOptions options);

  // Begins, or begins again where a newer generation is wanted.
  Actions Start(Time now, Generation at_least);
  Actions Receive(Time now, const StreamMessage& message);

  Actions Prepared(Time now, std::vector<StreamFile> files);
  Actions AlreadyHere(Time now);
  // `whole`: it is what the manifest says.
  Actions Finished(Time now, bool whole);
  Actions Committed(Time now);
  Actions Failed(Time now, std::string why);

  // Asks again for what did not come.
  Actions Tick(Time now);
  Time NextDeadline() const { return over() ? kNever : deadline_; }

  bool over() const { return state_ == State::kOver; }
  // Count the bytes of the files that were not here at the beginning.
  uint64_t bytes_done() const { return bytes_done_; }
  uint64_t bytes_total() const { return bytes_total_; }
  // Why nothing comes at present, for a person; empty: it does.
  const std::string& waits_for() const { return waits_for_; }
  // Answers that did not count.
  uint64_t dropped() const { return dropped_; }
  Generation generation() const { return generation_; }

 private:
  enum class State : uint8_t { kIdle, kOpening, kManifest, kFiles, kOver };

  void Take(const StreamOpened& opened);
  void Take(const StreamChunk& chunk);
  void Take(const StreamRefused& refused);
  // Messages that only a reader sends.
  template <class T>
  void Take(const T&) {}

  void Open();
  void AskToOpen();
  void AskForMore();
  void TakeManifest();
  void FinishOrGoOn();
  void TakeBytes(const StreamChunk& chunk);
  void GoBack();
  void Fallback();
  void GiveUp(std::string why);
  void End();
  void Send(StreamMessage message);
  Actions TakeActions();

  StreamReceiverOptions options_;
  // The time and the actions of the current call.
  Time now_ = 0;
  Actions actions_;
  State state_ = State::kIdle;
  uint64_t nonce_ = 0;
  uint64_t session_ = 0;
  Generation below_;  // damaged at the source: an older one is asked for
  Generation generation_;
  uint64_t manifest_checksum_ = 0;
  // The files to fetch: first the manifest alone, then the shards. The next
  // byte expected is at next_file_, next_offset_; everything up to ask_ has
  // been requested.
  std::vector<StreamFile> files_;
  size_t next_file_ = 0;
  size_t ask_file_ = 0;
  uint64_t ask_offset_ = 0;
  size_t outstanding_ = 0;
  std::string manifest_;
  int damaged_ = 0;      // how often the present file was not whole
  int unanswered_ = 0;   // deadlines in a row without anything
  int disk_errors_ = 0;  // of the source, in a row
  Time deadline_ = kNever;
  uint64_t bytes_done_ = 0;
  uint64_t bytes_total_ = 0;
  uint64_t dropped_ = 0;
  std::string waits_for_;
};

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
// Read the file and send the bytes as a StreamChunk. If the read fails, send a
// StreamRefused with kCannotRead.
struct ReadFile {
  StreamRead read;
};
struct CloseGeneration {
  uint64_t session = 0;
};

using Action = std::variant<Send, OpenGeneration, ReadFile, CloseGeneration>;
using Actions = std::vector<Action>;

}  // namespace stream_sender

// The source's end of a move between servers, decisions only: who may read
// what, and for how long files stay open. The shell opens and reads files, and
// has authenticated every reader by its key. Not thread-safe.
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

  // The answer to OpenGeneration. `file_bytes` has the sizes of the shards, in
  // order.
  Actions Opened(uint64_t session, Generation generation,
                 std::string_view manifest, std::vector<uint64_t> file_bytes);
  Actions OpenFailed(uint64_t session, StreamRefusal refusal, std::string why);

  // Closes idle sessions.
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

#endif  // GAVEL_COORDINATOR_AGENT_CHECKPOINT_STREAM_H_
