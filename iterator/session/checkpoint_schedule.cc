#include "iterator/session/checkpoint_schedule.h"

#include "core/text.h"
#include "runtime/checkpoint/checkpoint_interval.h"

namespace gavel::internal {

void CheckpointSchedule::Restart(Time now, uint64_t steps_done,
                                 int world_size) {
  const double interval_s = Interval_s(world_size);
  const int64_t interval_steps = options_.checkpoint_interval_steps;
  due_ns_ = interval_s > 0 ? ToNanoseconds(now + interval_s) : kNever_ns;
  due_step_ = interval_steps > 0
                  ? steps_done + static_cast<uint64_t>(interval_steps)
                  : kNoStep;
}

double CheckpointSchedule::Interval_s(int world_size) const {
  if (options_.checkpoint_interval_s >= 0) {
    return options_.checkpoint_interval_s;
  }
  // Until the first save has shown its cost.
  if (stall_s_ <= 0) return kCheckpointIntervalMin_s;
  return CheckpointInterval_s(stall_s_, options_.failure_interval_s,
                              world_size);
}

std::string FirstCheckpointText(const SessionOptions& options) {
  if (options.checkpoint_directory.empty()) return "";  // said before
  std::string when;
  if (options.checkpoint_interval_s != 0) {
    const double interval_s = options.checkpoint_interval_s < 0
                                  ? kCheckpointIntervalMin_s
                                  : options.checkpoint_interval_s;
    when = StrCat(interval_s, " s (GAVEL_CHECKPOINT_INTERVAL_S)");
  }
  if (options.checkpoint_interval_steps > 0) {
    StrAppend(&when, when.empty() ? "" : " or ",
              options.checkpoint_interval_steps,
              options.checkpoint_interval_steps == 1 ? " step" : " steps",
              " (GAVEL_CHECKPOINT_INTERVAL_STEPS)");
  }
  if (when.empty()) {
    return ", no checkpoint before the end (GAVEL_CHECKPOINT_INTERVAL_S=0)";
  }
  return StrCat(", first checkpoint after ", when);
}

}  // namespace gavel::internal
