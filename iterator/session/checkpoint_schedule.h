// When the next periodic checkpoint is due, by time and by steps. Pure. Times
// are those of iterator/clock.h.
#ifndef GAVEL_ITERATOR_SESSION_CHECKPOINT_SCHEDULE_H_
#define GAVEL_ITERATOR_SESSION_CHECKPOINT_SCHEDULE_H_

#include <cstdint>
#include <limits>
#include <string>

#include "gavel/session_options.h"
#include "iterator/clock.h"

namespace gavel::internal {

inline constexpr uint64_t kNoStep = std::numeric_limits<uint64_t>::max();

class CheckpointSchedule {
 public:
  // Borrows `options`, which must live longer.
  explicit CheckpointSchedule(const SessionOptions& options)
      : options_(options) {}

  // The last save held training up for `stall_s` > 0; the interval follows from
  // it when the options leave that open.
  void SetStall(double stall_s) { stall_s_ = stall_s; }
  // The next one is due an interval from `now`. Before the first call it is due
  // at once.
  void Restart(Time now, uint64_t steps_done, int world_size);
  // It is due at `now_ns`.
  void RequestAt(int64_t now_ns) { due_ns_ = now_ns; }

  int64_t due_ns() const { return due_ns_; }       // kNever_ns: not by time
  uint64_t due_step() const { return due_step_; }  // kNoStep: not by steps

 private:
  double Interval_s(int world_size) const;

  const SessionOptions& options_;
  int64_t due_ns_ = 0;
  uint64_t due_step_ = 0;
  double stall_s_ = 0;  // 0: there was no save yet
};

// For the log: when the first periodic checkpoint comes. Empty without a
// checkpoint directory.
std::string FirstCheckpointText(const SessionOptions& options);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_CHECKPOINT_SCHEDULE_H_
