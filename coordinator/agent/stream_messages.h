// What two agents say to each other while a generation moves between servers:
// plain structs and their bytes, on a socket of its own. The reader asks for
// every piece, so that what it has asked for and not yet got (its credit)
// bounds the memory of both sides; nothing depends on a frame arriving.
// Stateless, thread-safe. docs/moves.md has the whole exchange.
#ifndef GAVEL_COORDINATOR_AGENT_STREAM_MESSAGES_H_
#define GAVEL_COORDINATOR_AGENT_STREAM_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "core/generation.h"
#include "core/ids.h"

namespace gavel {

inline constexpr uint64_t kStreamChunkBytesMax = uint64_t{1} << 20;
// A chunk and what is around it.
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

// Of an Open (`nonce`), or of a Read (`session`).
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_STREAM_MESSAGES_H_
