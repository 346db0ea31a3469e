// How often a job was paused and moved, and what that cost it: a property of
// the job by the journal, over all of its processes and restarts of the
// coordinator. Rank 0's leases count for the gang. A value.
#ifndef GAVEL_COORDINATOR_ENGINE_STAYS_H_
#define GAVEL_COORDINATOR_ENGINE_STAYS_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "core/ids.h"

namespace gavel {

class Stays {
 public:
  // Leases that were given back at a boundary, the loop not being over.
  uint64_t pauses() const { return pauses_; }
  // Leases that began on another accelerator than the one before.
  uint64_t moves() const { return moves_; }
  // The accelerator of its last lease; invalid: it had none.
  AcceleratorId last() const { return last_; }
  // Lost to saving, releasing and restoring, as told when leases ended.
  double pausing_s() const { return pausing_before_s_ + pausing_now_s_; }

  void Begin(AcceleratorId accelerator) {
    if (last_.valid() && last_ != accelerator) ++moves_;
    last_ = accelerator;
  }
  // `pausing_s`: what this incarnation has told of in all.
  void End(bool paused, uint64_t incarnation, double pausing_s) {
    if (paused) ++pauses_;
    if (incarnation != incarnation_) {
      pausing_before_s_ += pausing_now_s_;
      pausing_now_s_ = 0;
      incarnation_ = incarnation;
    }
    pausing_now_s_ = std::max(pausing_now_s_, pausing_s);
  }

  static auto State(auto& s) {
    return std::tie(s.pauses_, s.moves_, s.last_, s.pausing_before_s_,
                    s.pausing_now_s_, s.incarnation_);
  }

 private:
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  AcceleratorId last_;
  double pausing_before_s_ = 0;  // of incarnations before
  double pausing_now_s_ = 0;
  uint64_t incarnation_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_STAYS_H_
