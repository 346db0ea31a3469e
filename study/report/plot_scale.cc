#include "study/report/plot_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace gavel::study {
namespace {

constexpr double kTicksWanted = 6;

// 1, 2, 2.5 or 5 times a power of ten.
double NiceStep(double span) {
  const double raw = span / kTicksWanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

}  // namespace

void PlotRange::Add(double value) {
  if (!std::isfinite(value)) return;
  min = empty ? value : std::min(min, value);
  max = empty ? value : std::max(max, value);
  empty = false;
}

std::string PlotNumber(double value, int digits) {
  if (std::abs(value) < 1e-12) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-4)
    return absl::StrFormat("%.*g", digits, value);
  const int whole = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string text =
      absl::StrFormat("%.*f", std::clamp(digits - whole, 0, 9), value);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

PlotScale::PlotScale(double min, double max, bool log)
    : min_(min), max_(max), log_(log) {}

PlotScale PlotScale::Linear(PlotRange range, bool from_zero) {
  double min = range.empty ? 0 : range.min;
  double max = range.empty ? 1 : range.max;
  if (from_zero) min = std::min(0.0, min);
  if (max - min < 1e-9 * std::max(1.0, std::abs(max))) {
    max += std::max(1.0, std::abs(max) * 0.1);
  }
  const double step = NiceStep(max - min);
  PlotScale scale(std::floor(min / step + 1e-9) * step,
                  std::ceil(max / step - 1e-9) * step, false);
  scale.MakeLinearTicks(step);
  return scale;
}

PlotScale PlotScale::Fixed(double min, double max) {
  if (!(max > min)) max = min + 1;
  PlotScale scale(min, max, false);
  scale.MakeLinearTicks(NiceStep(max - min));
  return scale;
}

PlotScale PlotScale::Log(PlotRange range) {
  const double least = range.empty || range.max <= 0 ? 0.1 : range.max * 1e-6;
  const double min = std::max(range.empty ? 1.0 : range.min, least);
  const double max = std::max(range.empty ? 10.0 : range.max, min * 1.01);
  // Ends at 1, 2 or 5 times a power of ten.
  const auto end = [](double value, bool up) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    double best = up ? 10 * power : power;
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = factor * power;
      if (up && at >= value * 0.9999) best = std::min(best, at);
      if (!up && at <= value * 1.0001) best = std::max(best, at);
    }
    return best;
  };
  PlotScale scale(end(min, false), end(max, true), true);
  scale.MakeLogTicks();
  return scale;
}

void PlotScale::MakeLinearTicks(double step) {
  const double first = std::ceil(min_ / step - 1e-9);
  const double last = std::floor(max_ / step + 1e-9);
  for (double i = first; i <= last; ++i) {
    ticks_.push_back({i * step, PlotNumber(i * step)});
  }
}

void PlotScale::MakeLogTicks() {
  const bool few = max_ / min_ < 150;
  const double first = std::floor(std::log10(min_) + 1e-9);
  for (double power = first; std::pow(10, power) <= max_ * 1.0001; ++power) {
    for (int factor = 1; factor <= 9; ++factor) {
      const double value = factor * std::pow(10, power);
      if (value < min_ * 0.9999 || value > max_ * 1.0001) continue;
      const bool named = factor == 1 || (few && (factor == 2 || factor == 5));
      ticks_.push_back({value, named ? PlotNumber(value) : ""});
    }
  }
}

void PlotScale::Place(double low, double high) {
  low_ = low;
  high_ = high;
}

double PlotScale::Forward(double value) const {
  if (!log_) return value;
  return std::log10(std::max(value, min_));
}

double PlotScale::At(double value) const {
  const double from = Forward(min_);
  const double part = (Forward(value) - from) / (Forward(max_) - from);
  return low_ + std::clamp(part, -0.01, 1.01) * (high_ - low_);
}

}  // namespace gavel::study
