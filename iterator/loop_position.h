// Where the loop is: the position in the range of batches, and the state of the
// random generators, into a Snapshot and back. Training thread only.
//
//   gavel/loop            positioned | forwarded | restarted | ended | none
//   gavel/loop/batches    batches of this loop that were trained on
//   gavel/loop/position   of a positioned range, as it gave it
//   gavel/loop/random     the CPU's generator when the loop was begun
//   gavel/random/...      the generators now
#ifndef GAVEL_ITERATOR_LOOP_POSITION_H_
#define GAVEL_ITERATOR_LOOP_POSITION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "iterator/log.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

class LoopPosition {
 public:
  explicit LoopPosition(Log& log) : log_(log) {}

  // Keeps what the first loop needs. DATA_LOSS: entries are missing.
  absl::Status Restore(const Snapshot& snapshot);

  // A loop over `range` begins (borrowed until Leave). The first one after a
  // restore goes on where it was; the plan's `skip` batches are to be taken
  // before Forwarded().
  absl::StatusOr<int64_t> Enter(RangePosition* range, uint64_t steps_done);
  // The device is there and batches were skipped: sets the range's shard and
  // the restored random states.
  absl::Status Forwarded(at::Device device, int rank, int world_size);
  // INVALID_ARGUMENT: the range can't be read by so many.
  absl::Status SetShard(int rank, int world_size);
  // Of the batch that was handed out last.
  bool EndsStep() const { return range_ == nullptr || range_->EndsStep(); }
  double LossScale() const { return range_ ? range_->LossScale() : 1; }
  void Leave();
  // Outside of a loop: the restored random states, which the first loop sets
  // once more.
  absl::Status RestoreRandom(at::Device device) const;
  // The program counts its steps itself, so there is no loop to go on with.
  void BeginOwnLoop();
  bool inside() const { return range_ != nullptr; }
  // The range is used up: of the loop that runs, or already before it began.
  void ReachEnd() { at_end_ = true; }
  bool at_end() const { return at_end_; }

  absl::Status Collect(at::Device device, uint64_t steps_done,
                       Snapshot* snapshot);

 private:
  absl::Status CollectRandom(at::Device device, Snapshot* snapshot);
  int64_t BatchesToSkip(const std::string& saved_kind, int64_t batches);
  void SaveRangePosition();

  Log& log_;
  RangePosition* range_ = nullptr;
  int64_t batches_before_ = 0;  // of this loop, before this process
  uint64_t steps_at_begin_ = 0;
  std::string begin_random_;
  std::string last_position_;  // of the positioned range, also after its loop
  bool restart_reported_ = false;
  bool at_end_ = false;

  // Restored, until the first loop has them.
  struct Pending {
    Snapshot entries;  // the bytes above only
    bool loop_taken = false;
  };
  std::optional<Pending> pending_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_LOOP_POSITION_H_
