// What the engine has still to do, and when: set by any part, looked at by the
// engine's door after each event and by NextDeadline. It decides nothing.
//
// Not thread-safe. Snapshot fields: all but how long a fill may wait.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_AGENDA_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_AGENDA_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "core/units.h"

namespace gavel::engine {

class Agenda {
 public:
  // Deadlines are looked at again at that time, or earlier.
  void Due(Time at) { next_sweep_ = std::min(next_sweep_, at); }
  Time next_sweep() const { return next_sweep_; }
  void BeginSweep() { next_sweep_ = kNever; }

  // Accelerators or jobs came free: waiting jobs may start in this round.
  void FillSoon() { fill_due_ = true; }
  bool fill_due() const { return fill_due_; }
  void BeginFill() {
    fill_due_ = false;
    fill_by_ = kNever;
  }
  // A new allocation is on its way and decides which job is next. Accelerators
  // that came free wait for it until fill_by(); then the old one decides.
  bool FillMayWait(Time now) {
    fill_by_ = std::min(fill_by_, now + kFillWaitMax_s);
    return now < fill_by_;
  }
  Time fill_by() const { return fill_by_; }  // kNever: nothing waits

  // Somebody parked, or is to start: memory budgets are looked at.
  void MakeRoomSoon() { memory_due_ = true; }
  bool memory_due() const { return memory_due_; }
  void EndMakeRoom() { memory_due_ = false; }

  // Jobs or cluster changed since the last problem for the policy.
  void SolveSoon() { unsolved_ = true; }
  bool unsolved() const { return unsolved_; }
  void BeginSolve() { unsolved_ = false; }
  // The row of the journal that made it so.
  void NoteUnsolved(uint64_t seq) { unsolved_seq_ = seq; }
  uint64_t unsolved_seq() const { return unsolved_seq_; }

  // Throughputs moved: solved again when the next round begins.
  void SolveNextRound() { throughputs_moved_ = true; }
  void BeginRound() {
    if (std::exchange(throughputs_moved_, false)) SolveSoon();
  }

  // After a row that was replayed: a fill or an eviction that followed has a
  // row of its own.
  void EndReplay() { fill_due_ = memory_due_ = false; }

  static auto State(auto& a) {
    return std::tie(a.fill_due_, a.unsolved_, a.unsolved_seq_,
                    a.throughputs_moved_, a.next_sweep_, a.memory_due_);
  }

 private:
  static constexpr double kFillWaitMax_s = 0.5;

  Time next_sweep_ = kNever;
  bool fill_due_ = false;
  Time fill_by_ = kNever;
  bool memory_due_ = false;
  bool unsolved_ = false;
  uint64_t unsolved_seq_ = 0;
  bool throughputs_moved_ = false;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_AGENDA_H_
