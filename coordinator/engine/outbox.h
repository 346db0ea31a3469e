#ifndef GAVEL_COORDINATOR_ENGINE_OUTBOX_H_
#define GAVEL_COORDINATOR_ENGINE_OUTBOX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "coordinator/engine/event.h"
#include "core/messages.h"
#include "core/queue.h"
#include "core/units.h"

namespace gavel::engine {

// The messages that leave the engine, each with the position of the journal
// that it waits for. All functions of the engine hand their messages to the one
// outbox, and Engine::Step takes them out. A message that follows from a
// journaled event leaves only when that event is on disk.
//
// Not thread-safe. Snapshot fields: the term and when and where it began, the
// last row, the last row on disk, halted, and the first rows of terms.

class Outbox {
 public:
  // `journal` is false in a simulation, which keeps no journal and waits for no
  // disk.
  explicit Outbox(bool journal) : journal_(journal) {}

  // ---- messages and other actions
  void Emit(Action&& action);     // once the present row is on disk
  void EmitNow(Action&& action);  // waits only for its term to be on disk
  // For a problem for the policy: it waits for nothing. A replay must not call
  // this.
  void EmitAtOnce(Action&& action);
  // Releases the messages whose rows are on disk by now.
  void Flush();
  // Takes all actions that may leave now. A halted engine emits only the reason
  // for its halt.
  Actions Take();
  void Reuse(Actions done);  // the memory of what Take returned
  bool empty() const { return actions_.empty() && unpersisted_.empty(); }

  // ---- the journal
  // Begins the next row, before its event is applied. BeginTerm makes it the
  // first row of `term`.
  void BeginRow() { ++seq_; }
  void BeginTerm(uint64_t term);
  // Emits the row that has just begun, with its event, for the journal.
  void Persist(Time now, std::shared_ptr<const Event> event);
  void Persisted(uint64_t seq);
  // Begins a row that was read back. Nothing is emitted until EndReplay.
  void BeginReplay(uint64_t seq, uint64_t term);
  void EndReplay();
  // Notes that a term began with the present row. `after_loss`: every row of
  // earlier terms counts as known.
  void NoteTerm(Time now, uint64_t term, bool after_loss);

  // Whether this journal has the row that a peer has seen. False: the journal
  // has lost that row, or another coordinator wrote it.
  bool Knows(const JournalPosition& seen) const;
  // Halts if the sender of this event has seen a row that this journal does not
  // have.
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
  uint64_t term_seq_ = 0;  // row of this term's CoordinatorStarted
  Time term_began_at_ = 0;
  std::map<uint64_t, uint64_t> term_starts_;  // term -> seq of its first row
  bool halted_ = false;

  // A restart forgets these.
  bool replaying_ = false;
  Actions actions_;
  Queue<std::pair<uint64_t, Action>> unpersisted_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_OUTBOX_H_
