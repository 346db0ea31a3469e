#include "coordinator/server/limits.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "coordinator/workload/job_array.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kMinute_s = 60;

absl::Status Exceeded(const std::string& user, std::string_view what,
                      std::string_view remedy) {
  return absl::ResourceExhaustedError(
      StrCat("user ", user, " ", what, "; ", remedy,
             ", or ask an operator for a higher quota"));
}

}  // namespace

absl::Status CheckWeight(std::string_view what, double weight,
                         const WeightBounds& bounds) {
  if (weight >= bounds.min && weight <= bounds.max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(what, ": weight ", weight, " is not between ", bounds.min, " and ",
             bounds.max,
             "; choose another, or ask an operator for other bounds "
             "(--weight-min and --weight-max of the coordinator)"));
}

absl::Status CheckAllowance(std::string_view what, const Allowance& allowance,
                            double weight, std::string* entity) {
  if (weight > allowance.weight_max) {
    return absl::PermissionDeniedError(
        StrCat(what, ": weight ", weight, " exceeds your largest, ",
               allowance.weight_max,
               "; lower it, or ask an operator for a higher weight_max"));
  }
  const std::vector<std::string>& entities = allowance.entities;
  if (entity->empty()) {
    if (!entities.empty()) *entity = entities.front();
    return absl::OkStatus();
  }
  if (std::ranges::find(entities, *entity) != entities.end()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(StrCat(
      what, ": you may not submit for entity \"", *entity, "\"; ",
      entities.empty() ? "leave it out"
                       : StrCat("choose ", absl::StrJoin(entities, " or ")),
      ", or ask an operator to name it among your entities"));
}

absl::Status Quota::CheckRate(Time now, const std::string& user) {
  if (options_.submissions_per_minute_max == 0) return absl::OkStatus();
  std::deque<Time>& times = submissions_[user];
  while (!times.empty() && times.front() <= now - kMinute_s) times.pop_front();
  if (times.size() >=
      static_cast<size_t>(options_.submissions_per_minute_max)) {
    return Exceeded(user,
                    StrCat("has submitted ", times.size(),
                           " jobs within a minute, which is the limit"),
                    "wait a minute");
  }
  times.push_back(now);
  return absl::OkStatus();
}

absl::Status Quota::Take(Time now, const std::string& user, const JobSpec& spec,
                         const std::map<JobId, Job>& jobs) {
  // First, for it does not grow with the jobs.
  GAVEL_RETURN_IF_ERROR(CheckRate(now, user));
  return Check(user, spec, jobs);
}

absl::Status Quota::Check(const std::string& user, const JobSpec& spec,
                          const std::map<JobId, Job>& jobs) const {
  // Each element of an array is a job. They ask for as many accelerators as
  // those that may run at once.
  const auto elements = static_cast<int>(IndicesOf(spec).size());
  const int at_once = AtOnceOf(spec);
  int active = 0;
  int accelerators =
      spec.MostWorkers() *
      (at_once > 0 ? std::min(at_once, elements) : std::max(1, elements));
  JobId array;
  int of_array = 0;
  for (const auto& [id, job] : jobs) {
    if (job.spec.owner != user) continue;
    if (!job.active() && job.state != JobState::kHeld) continue;
    ++active;
    of_array = job.array == array ? of_array + 1 : 1;
    array = job.array;
    const bool limited = array.valid() && job.array_at_once > 0;
    if (limited && of_array > job.array_at_once) continue;
    accelerators += job.spec.MostWorkers();
  }
  if (options_.jobs_max > 0 && elements > 0 &&
      active + elements > options_.jobs_max) {
    return Exceeded(
        user,
        StrCat("has ", active,
               " jobs that have not ended, and "
               "would have ",
               active + elements, ", the quota is ", options_.jobs_max),
        "submit fewer elements or wait for jobs to end");
  }
  if (options_.jobs_max > 0 && active >= options_.jobs_max) {
    return Exceeded(user,
                    StrCat("has ", active,
                           " jobs that have not ended, the "
                           "quota is ",
                           options_.jobs_max),
                    "wait for one to end or cancel one");
  }
  if (options_.accelerators_max > 0 &&
      accelerators > options_.accelerators_max) {
    return Exceeded(user,
                    StrCat("would ask for ", accelerators,
                           " accelerators at once, the quota is ",
                           options_.accelerators_max),
                    "lower scale_factor or wait for a job to end");
  }
  return absl::OkStatus();
}

}  // namespace gavel
