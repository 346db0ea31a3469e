// What leaves the engine: Recorder journals an event and applies it, and Outbox
// lets nothing out before the row that it follows from is on disk. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_OUTBOX_H_
#define GAVEL_COORDINATOR_ENGINE_OUTBOX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "coordinator/engine/action.h"
#include "coordinator/engine/event.h"
#include "core/messages.h"
#include "core/queue.h"
#include "core/units.h"

namespace gavel::engine {

// What a part records an event with, which is journaled and then applied. The
// engine's core is the one recorder; it borrows nothing, and outlives the
// parts.

class Recorder {
 public:
  // Applies the event before it returns: what the caller has read of jobs and
  // workers may be different then.
  virtual void Record(Time now, Event event) = 0;

 protected:
  ~Recorder() = default;
};

// What leaves the engine, and the position of the journal that it waits for.
// Every part hands its messages to the one outbox; the engine's door takes them
// out. A message that follows from a journaled event leaves only when the event
// is on disk.
//
// Not thread-safe. Snapshot fields: term, seq, what is on disk, halted, and the
// first rows of terms.

class Outbox {
 public:
  // False: a simulation that keeps no journal, and waits for no disk.
  explicit Outbox(bool journal) : journal_(journal) {}

  // ---- what leaves
  void Emit(Action&& action);     // after the present event is on disk
  void EmitNow(Action&& action);  // follows from nothing that is not on disk
  // A problem for the policy: waits for nothing but is not repeated by a
  // replay.
  void EmitAtOnce(Action&& action);
  // Lets out what waited for rows that are on disk by now.
  void Flush();
  // All that may leave now; of a halted engine the reason alone.
  Actions Take();
  void Reuse(Actions done);  // the memory of what Take returned
  bool empty() const { return actions_.empty() && unpersisted_.empty(); }

  // ---- the journal
  // The next row, of `term`: the event comes after it, and nothing before.
  void BeginRow() { ++seq_; }
  void BeginTerm(uint64_t term);
  // The row of the event that has just begun, for the journal.
  void Persist(Time now, std::shared_ptr<const Event> event);
  void Persisted(uint64_t seq);
  // A row that was read back: until EndReplay nothing is emitted.
  void BeginReplay(uint64_t seq, uint64_t term);
  void EndReplay();
  // A term began with the present row. `after_loss`: of terms before it every
  // row counts as known.
  void NoteTerm(Time now, uint64_t term, bool after_loss);

  // False: the journal has lost that row, or another coordinator wrote it.
  bool Knows(const JournalPosition& seen) const;
  // Halts, where the sender of this event knows more than this journal.
  void Fence(const Event& event);

  bool journal() const { return journal_; }
  uint64_t term() const { return term_; }
  uint64_t seq() const { return seq_; }
  uint64_t persisted() const { return persisted_; }
  JournalPosition position() const { return {term_, seq_}; }
  JournalPosition durable_position() const { return {term_, persisted_}; }
  Time term_began_at() const { return term_began_at_; }
  bool replaying() const { return replaying_; }
  bool halted() const { return halted_; }

  static auto State(auto& o) {
    return std::tie(o.term_, o.seq_, o.persisted_, o.halted_, o.term_seq_,
                    o.term_began_at_, o.term_starts_);
  }

 private:
  const bool journal_;
  uint64_t term_ = 0, seq_ = 0;
  uint64_t persisted_ = 0;
  uint64_t term_seq_ = 0;  // of this term's CoordinatorStarted
  Time term_began_at_ = 0;
  std::map<uint64_t, uint64_t> term_starts_;  // term -> seq of its first row
  bool halted_ = false;

  // Forgotten by a restart.
  bool replaying_ = false;
  Actions actions_;
  Queue<std::pair<uint64_t, Action>> unpersisted_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_OUTBOX_H_
