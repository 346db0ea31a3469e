#include "coordinator/cli/progress_bar.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "coordinator/cli/table.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kBarWidth = 30;
// Before that the speed says little.
constexpr double kFractionKnown = 0.005;

}  // namespace

std::string RenderBar(std::string_view label, double fraction, double elapsed_s,
                      std::string_view note, size_t width) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto full = static_cast<size_t>(
      std::lround(fraction * static_cast<double>(kBarWidth)));
  std::string line = StrCat(label, " [", std::string(full, '#'),
                            std::string(kBarWidth - full, '.'), "] ",
                            absl::StrFormat("%3.0f %%", 100 * fraction));
  if (fraction >= kFractionKnown && fraction < 1) {
    StrAppend(&line, "  ",
              FormatDuration(elapsed_s * (1 - fraction) / fraction), " left");
  }
  if (!note.empty()) StrAppend(&line, "  ", note);
  return Cut(line, width > 1 ? width - 1 : 1) + "\n";
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.5) return absl::StrFormat("%.0f s", seconds);
  const double minutes = seconds / 60;
  if (minutes < 59.5) {
    const long whole = std::lround(seconds);
    return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  }
  const long whole_minutes = std::lround(minutes);
  if (whole_minutes < 48 * 60) {
    return absl::StrFormat("%d h %02d min", whole_minutes / 60,
                           whole_minutes % 60);
  }
  return absl::StrFormat("%.1f days", minutes / 60 / 24);
}

std::string FormatHours(double seconds) {
  const double hours = seconds / 3600;
  if (!std::isfinite(hours)) return "-";
  return absl::StrFormat(std::abs(hours) < 99.995 ? "%.2f h" : "%.1f h", hours);
}

std::string FormatPercent(double fraction) {
  if (!std::isfinite(fraction)) return "-";
  return absl::StrFormat("%.1f %%", 100 * fraction);
}

std::string FormatNumber(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  return absl::StrFormat("%.*f", decimals, value);
}

}  // namespace gavel
