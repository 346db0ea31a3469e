// Where the loop is: the position in the range of batches, those of all data
// loaders, and the state of the random generators, into a Snapshot and back.
// Training thread only.
//
//   gavel/loop            positioned | forwarded | restarted | ended | none
//   gavel/loop/batches    batches of this loop that were trained on
//   gavel/loop/position   of a positioned range, as it gave it
//   gavel/loop/loaders/N  position of the gavel::DataLoader with number N
//   gavel/loop/first      hash of the first batch of a forwarded range
//   gavel/loop/random     the CPU's generator when the loop was begun
//   gavel/loop/end        there: Finish() was called, so the job is done
//   gavel/loop/evaluates  there: the evaluation after this step is not done
//   gavel/random/...      the generators now
#ifndef GAVEL_ITERATOR_LOOP_POSITION_H_
#define GAVEL_ITERATOR_LOOP_POSITION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "iterator/environment.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

class LoopPosition {
 public:
  explicit LoopPosition(Log& log) : log_(log) {}
  ~LoopPosition();
  LoopPosition(const LoopPosition&) = delete;
  LoopPosition& operator=(const LoopPosition&) = delete;

  // Keeps what the first loop needs. DATA_LOSS: entries are missing.
  absl::Status Restore(const Snapshot& snapshot);

  // FAILED_PRECONDITION: the loop over `range` could not be continued after a
  // restart.
  absl::Status CheckRange(const RangePosition& range);
  // A loop over `range` begins (borrowed until Leave). The first one after a
  // restore goes on where it was; the plan's `skip` batches are to be taken
  // before Forwarded(). FAILED_PRECONDITION: the position is of other data, or
  // the loops before had no batch.
  absl::StatusOr<int64_t> Enter(RangePosition* range, uint64_t steps_done);
  // The first batch of a loop over a forwarded range. FAILED_PRECONDITION: it
  // is not the one of before the restart.
  absl::Status FirstBatch(uint64_t fingerprint);
  // The device is there and batches were skipped: sets the range's shard and
  // the restored random states.
  absl::Status Forwarded(at::Device device, int rank, int world_size);
  // INVALID_ARGUMENT: the range can't be read by so many, or has no step.
  absl::Status SetShard(int rank, int world_size);
  // These two describe the batch that was handed out last.
  bool EndsStep() const { return range_ == nullptr || range_->EndsStep(); }
  double LossScale() const { return range_ ? range_->LossScale() : 1; }
  // `keeps_place`: the job's steps are used up in the middle of the loop, where
  // it continues if it gets more of them.
  absl::Status Leave(bool keeps_place, at::Device device, uint64_t steps_done);
  // Outside of a loop: the restored random states, which the first loop sets
  // once more.
  absl::Status RestoreRandom(at::Device device) const;
  // The program counts its steps itself, so there is no loop to go on with.
  void BeginOwnLoop();
  bool inside() const { return range_ != nullptr; }
  // The range is used up: of the loop that runs, or already before it began.
  void ReachEnd() { at_end_ = true; }
  bool at_end() const { return at_end_; }
  // State that is collected from now on is that of a job that is done.
  void SetEnd() { end_ = true; }
  // The restored state is that of a job that is done.
  bool restored_end() const { return restored_end_; }
  // While an evaluation is due, the state that is collected says so, and a
  // restart begins with it.
  void SetEvaluationDue(bool due) { evaluation_due_ = due; }
  bool evaluation_due() const { return evaluation_due_; }
  // The range of the loop that runs; null: none does.
  const RangePosition* range() const { return range_; }

  absl::Status Collect(at::Device device, uint64_t steps_done,
                       Snapshot* snapshot);

 private:
  absl::Status CollectRandom(at::Device device, Snapshot* snapshot);
  absl::StatusOr<int64_t> BatchesToSkip(const std::string& saved_kind,
                                        int64_t batches);
  std::string SavedPositionOf(const RangePosition& range) const;
  absl::Status LoadPosition();
  void SaveRangePosition();

  Log& log_;
  RangePosition* range_ = nullptr;
  int64_t batches_before_ = 0;  // of this loop, before this process
  uint64_t steps_at_begin_ = 0;
  std::string begin_random_;
  std::string last_position_;  // of the positioned range, also after its loop
  uint64_t first_batch_ = 0;   // see FingerprintOf()
  const void* positioned_ = nullptr;  // the range of the program's own
  int empty_loops_ = 0;               // in a row
  bool at_end_ = false;
  bool end_ = false;
  bool restored_end_ = false;
  bool evaluation_due_ = false;
  std::optional<Snapshot> kept_;  // the entries of a loop that was left

  // Restored, until the first loop has them.
  struct Pending {
    Snapshot entries;  // the bytes above only
    bool loop_taken = false;
  };
  std::optional<Pending> pending_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_LOOP_POSITION_H_
