// A job's checkpoint directory: which generations are committed and can be
// read, in the order and with the retention of core/generation.h. Used by
// VirtualProcess. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CHECKPOINTS_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CHECKPOINTS_H_

#include <vector>

#include "core/generation.h"

namespace gavel {

class VirtualCheckpoints {
 public:
  static constexpr int kKeepLast = 2;

  // The latest generation that can be read; (0, 0) if there is none.
  Generation Latest() const;
  // The manifest of `generation` has been renamed into place, even if another
  // process wrote meanwhile.
  void Commit(Generation generation);
  // Makes the latest generation unreadable. Does nothing if no other one is
  // left.
  void DamageLatest();

 private:
  std::vector<Generation> readable_;
  std::vector<Generation> damaged_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CHECKPOINTS_H_
