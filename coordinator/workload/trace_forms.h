// The parsers behind ParseTrace(), one per form, and what a job of a trace may
// say. Internal to this folder.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_
#define GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/workload/toml_reader.h"
#include "coordinator/workload/trace.h"

namespace gavel {

// Far enough for seconds since 1970, and steps that can be counted one by one.
inline constexpr double kTraceTimeMax_s = 1e11;
inline constexpr double kTraceStepsMax = 9007199254740992;  // 2^53
inline constexpr int kTraceScaleFactorMax = 4096;
inline constexpr int kTraceJobsMax = 1'000'000;  // by `count` of TOML

inline constexpr NumberRange kTraceSteps = {.above_min = true,
                                            .max = kTraceStepsMax};
inline constexpr NumberRange kTraceDuration = {.above_min = true,
                                               .max = kTraceTimeMax_s};
inline constexpr NumberRange kTraceArrival = {.max = kTraceTimeMax_s};
inline constexpr NumberRange kTraceWeight = {.above_min = true, .max = 1e9};
inline constexpr NumberRange kTraceSlo = {.above_min = true, .max = 1e9};

// True when `arrival_s` is before that of the last job of `trace`.
inline bool IsBeforeLastArrival(const Trace& trace, double arrival_s) {
  return !trace.jobs.empty() && arrival_s < trace.jobs.back().arrival_s;
}

// The text has at least one line that is not blank, and no byte order mark. The
// result may have no jobs.
absl::StatusOr<Trace> ParseGavelTrace(std::string_view text,
                                      std::string_view source);
absl::StatusOr<Trace> ParseCsvTrace(std::string_view text,
                                    std::string_view source);
absl::StatusOr<Trace> ParseTomlTrace(std::string_view text,
                                     std::string_view source);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_
