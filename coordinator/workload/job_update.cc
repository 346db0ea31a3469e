#include "coordinator/workload/job_update.h"

#include <algorithm>
#include <string_view>

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
  if (update.types && std::ranges::count(*update.types, "") > 0) {
    return absl::InvalidArgumentError(
        "--types has an empty name; write v100,p100, or all for any type");
  }
  ApplyUpdate(update, &spec);
  // "update:12:1: weight is -1; ...": of a file that nobody wrote.
  constexpr std::string_view kSource = "update";
  const absl::Status status =
      ParseJobSpec(FormatJobSpec(spec), kSource).status();
  std::string_view message = ToStd(status.message());
  if (!message.starts_with(kSource)) return status;
  message.remove_prefix(kSource.size());
  message.remove_prefix(
      std::min(message.find_first_not_of(":0123456789 "), message.size()));
  return {status.code(), ToAbsl(message)};
}

}  // namespace gavel
