// The receiver's end of a move between servers, decisions only: what to ask
// for, what of an answer to keep, when to begin anew. One fetches the latest
// generation of one job from one source; the shell owns sockets and files.
//
// Every file is fetched front to back. An answer counts only when it is the
// next bytes of the file and its checksum is right; all others (doubled, late,
// of an older session) are dropped, and what does not come is asked for again.
// A whole file counts when its checksums are those of the manifest, and the
// generation when all files do. Not thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_STREAM_RECEIVER_H_
#define GAVEL_COORDINATOR_AGENT_STREAM_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/agent/stream_messages.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

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
  // Of the files that were not here when it began.
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
  // Of the call under way.
  Time now_ = 0;
  Actions actions_;
  State state_ = State::kIdle;
  uint64_t nonce_ = 0;
  uint64_t session_ = 0;
  Generation below_;  // damaged at the source: an older one is asked for
  Generation generation_;
  uint64_t manifest_checksum_ = 0;
  // What is fetched: the manifest alone, then the shards. The next byte to
  // come is at next_file_, next_offset_; asked for is all up to ask_.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_STREAM_RECEIVER_H_
