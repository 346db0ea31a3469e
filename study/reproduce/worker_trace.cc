#include "study/reproduce/worker_trace.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "coordinator/cli/files.h"
#include "coordinator/cli/json.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr size_t kTraceFileBytesMax = size_t{256} << 20;
constexpr double kMicrosecond_s = 1e-6;

double NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

absl::StatusOr<std::vector<TracedStep>> ParseWorkerTrace(
    std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_trace = json.is_object() && json.contains("traceEvents") &&
                        json["traceEvents"].is_array() &&
                        json.contains("otherData") &&
                        json["otherData"].contains("monotonic_origin_us");
  if (!is_trace) {
    return absl::InvalidArgumentError(StrCat(
        source,
        ": is no trace of this version's runtime; build the program with it"));
  }
  if (NumberOf(json["otherData"], "dropped_events") > 0) {
    return absl::InvalidArgumentError(
        StrCat(source,
               ": the first steps were dropped, there were too many; let the "
               "program train for a shorter time"));
  }
  const double origin_us = NumberOf(json["otherData"], "monotonic_origin_us");
  std::vector<TracedStep> steps;
  for (const Json& event : json["traceEvents"]) {
    if (!event.is_object() || event.value("ph", Json()) != "X" ||
        event.value("name", Json()) != "step") {
      continue;
    }
    const double begin_us = origin_us + NumberOf(event, "ts");
    steps.push_back({begin_us * kMicrosecond_s,
                     (begin_us + NumberOf(event, "dur")) * kMicrosecond_s});
  }
  std::ranges::sort(steps, {}, &TracedStep::begin_s);
  return steps;
}

absl::StatusOr<std::vector<TracedStep>> ReadWorkerTrace(
    const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::FailedPreconditionError(StrCat(
        path,
        ": the program has written no trace; is its loop a gavel::Iterator?"));
  }
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kTraceFileBytesMax));
  return ParseWorkerTrace(text, path);
}

}  // namespace gavel::study
