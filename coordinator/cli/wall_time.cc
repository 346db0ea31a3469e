#include "coordinator/cli/wall_time.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "core/text.h"

namespace gavel {
namespace {

// Seconds of "30m"; below 0: it is no such thing.
double ParseAge(const std::string& text) {
  char* end = nullptr;
  const double count = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (end == text.c_str() || !std::isfinite(count) || count < 0) return -1;
  if (unit == "s") return count;
  if (unit == "m") return 60 * count;
  if (unit == "h") return 3600 * count;
  return unit == "d" ? 86400 * count : -1;
}

absl::StatusOr<double> ParseTime(const std::string& text, double now_s,
                                 bool ahead) {
  if (const double age_s = ParseAge(text); age_s >= 0) {
    return ahead ? now_s + age_s : now_s - age_s;
  }
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
                           "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    const char* end = strptime(text.c_str(), form, &parts);
    if (end == nullptr || *end != '\0') continue;
    parts.tm_isdst = -1;
    const std::time_t time = std::mktime(&parts);
    if (time >= 0) return static_cast<double>(time);
  }
  return absl::InvalidArgumentError(StrCat(
      "\"", text,
      "\" is no time; write 2026-11-21, 2026-11-21T18:30, or 2h for two hours ",
      ahead ? "from now" : "ago"));
}

}  // namespace

absl::StatusOr<double> ParseWallTime(const std::string& text, double now_s) {
  return ParseTime(text, now_s, /*ahead=*/false);
}

absl::StatusOr<double> ParseTimeAhead(const std::string& text, double now_s) {
  return ParseTime(text, now_s, /*ahead=*/true);
}

std::string FormatWallTime(double time_s) {
  if (!(time_s > 0) || time_s > 1e11) return "-";
  const auto time = static_cast<std::time_t>(time_s);
  std::tm parts{};
  std::array<char, 32> text{};
  if (localtime_r(&time, &parts) == nullptr) return "-";
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

}  // namespace gavel
