#include "coordinator/policy/problem.h"

#include <algorithm>
#include <cmath>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

absl::Status CheckSizes(const PolicyProblem& problem) {
  const size_t types = problem.types.size();
  if (problem.capacity.size() != types) {
    return absl::InvalidArgumentError(
        StrCat("problem: ", problem.capacity.size(), " capacities for ", types,
               " accelerator types; give one for each"));
  }
  if (problem.throughputs.size() != problem.jobs.size() * types) {
    return absl::InvalidArgumentError(
        StrCat("problem: ", problem.throughputs.size(), " throughputs for ",
               problem.jobs.size(), " jobs x ", types,
               " accelerator types; give one for each pair"));
  }
  for (size_t j = 0; j < types; ++j) {
    if (problem.capacity[j] >= 0) continue;
    return absl::InvalidArgumentError(StrCat("type ", problem.types[j],
                                             ": capacity ", problem.capacity[j],
                                             " is negative; give 0 or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const PolicyProblem& problem, size_t m) {
  const PolicyJob& job = problem.jobs[m];
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        StrCat("job ", job.id.value(), ": ", what...));
  };
  if (m > 0 && !(problem.jobs[m - 1].id < job.id)) {
    return refuse("comes after job ", problem.jobs[m - 1].id.value(),
                  "; give each job once, in ascending order of ids");
  }
  if (job.scale_factor < 1) {
    return refuse("scale factor ", job.scale_factor, "; give 1 or more");
  }
  if (!std::isfinite(job.weight) || job.weight <= 0) {
    return refuse("weight ", job.weight, "; give a finite one above 0");
  }
  const std::span<const double> row = problem.Row(m);
  for (size_t j = 0; j < row.size(); ++j) {
    if (std::isfinite(row[j]) && row[j] >= 0) continue;
    return refuse("throughput ", row[j], " on ", problem.types[j],
                  "; give steps/s, 0 when it cannot run there");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProblem(const PolicyProblem& problem) {
  GAVEL_RETURN_IF_ERROR(CheckSizes(problem));
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    GAVEL_RETURN_IF_ERROR(CheckJob(problem, m));
  }
  return absl::OkStatus();
}

UsableJobs FindUsableJobs(const PolicyProblem& problem) {
  UsableJobs usable;
  usable.types = problem.types.size();
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const std::span<const double> given = problem.Row(m);
    std::vector<double> row(given.begin(), given.end());
    for (size_t j = 0; j < row.size(); ++j) {
      if (problem.capacity[j] < problem.jobs[m].scale_factor) row[j] = 0;
    }
    if (std::all_of(row.begin(), row.end(), [](double t) { return t == 0; })) {
      usable.left_out.push_back(problem.jobs[m].id);
      continue;
    }
    usable.jobs.push_back(m);
    usable.throughputs.insert(usable.throughputs.end(), row.begin(), row.end());
  }
  return usable;
}

}  // namespace gavel
