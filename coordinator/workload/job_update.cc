#include "coordinator/workload/job_update.h"

#include "core/status.h"
#include "core/text.h"

namespace gavel {

void ApplyUpdate(const JobUpdate& update, JobSpec* spec) {
  if (update.weight) spec->weight = *update.weight;
  if (update.deadline_s) {
    spec->deadline_s.reset();
    if (*update.deadline_s != 0) spec->deadline_s = *update.deadline_s;
  }
  if (update.entity) spec->entity = *update.entity;
  if (update.types) spec->types = *update.types;
  if (update.scale_factor_min) {
    spec->scale_factor_min = *update.scale_factor_min;
  }
  if (update.scale_factor_max) {
    spec->scale_factor_max = *update.scale_factor_max;
  }
}

// By the parser itself, so that the bounds are the same.
absl::Status CheckUpdate(const JobUpdate& update, JobSpec spec) {
  if (update == JobUpdate()) {
    return absl::InvalidArgumentError(
        "nothing is to be changed; give one of --weight, --deadline, --entity, "
        "--types, --scale-factor-min and --scale-factor-max");
  }
  ApplyUpdate(update, &spec);
  return ParseJobSpec(FormatJobSpec(spec), "update").status();
}

}  // namespace gavel
