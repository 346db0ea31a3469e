// Whether a program adds gradients up over several steps. Between two of these
// they belong to its state; otherwise a step begins without them. LibTorch
// tells nobody, but a step after which gradients have changed and no parameter
// has gives it away; or a checkpoint that holds some. Looks at the first steps
// of a process only, and then at the bits of all parameters: optimizers write
// them without raising their versions. Training thread only.
#ifndef GAVEL_ITERATOR_ACCUMULATION_WATCH_H_
#define GAVEL_ITERATOR_ACCUMULATION_WATCH_H_

#include <cstdint>

#include "iterator/tracked_state.h"

namespace gavel::internal {

class AccumulationWatch {
 public:
  // Before the first step; null: nothing is restored.
  void Begin(const TrackedState& tracked, const Snapshot* restored);
  // After a step.
  void Look(const TrackedState& tracked);
  bool done() const { return accumulates_ || looks_ >= kStepsMax; }
  bool accumulates() const { return accumulates_; }

 private:
  // More than two, as the first steps of a program may be unlike the others.
  static constexpr int kStepsMax = 5;

  struct Seen {
    uint64_t parameters = 0;  // of the bits of all
    uint64_t gradients = 0;   // differs once one was made or written
    bool has_gradients = false;
  };
  static Seen Read(const TrackedState& tracked);

  Seen last_;
  int looks_ = 0;
  bool accumulates_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_ACCUMULATION_WATCH_H_
