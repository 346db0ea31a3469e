// The parsers behind ParseTrace(), one per form, and what a job of a trace may
// say. Internal to this folder.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_
#define GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_

#include <cstddef>
#include <map>
#include <string>
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

// Counts the rows of a trace that have nothing to run, by the reason.
class IdleRows {
 public:
  void Count(std::string_view what) { ++rows_[std::string(what)]; }
  // "2 rows of 0 steps are left out" for each.
  void Tell(Trace& trace) const;

 private:
  std::map<std::string, size_t> rows_;
};

// Whether it names the duration or the accelerators of jobs.
bool IsHeaderOfCsv(std::string_view line);

// The text has at least one line that is neither blank nor a comment, and no
// byte order mark. The result may have no jobs.
absl::StatusOr<Trace> ParseGavelTrace(std::string_view text,
                                      std::string_view source);
absl::StatusOr<Trace> ParseCsvTrace(std::string_view text,
                                    std::string_view source,
                                    std::string_view ignored_columns);
absl::StatusOr<Trace> ParseTomlTrace(std::string_view text,
                                     std::string_view source);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TRACE_FORMS_H_
