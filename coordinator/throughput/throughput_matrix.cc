#include "coordinator/throughput/throughput_matrix.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gavel {
namespace {

// Measurements older than this, in seconds of running, are forgotten.
constexpr double kMeasuringWindow_s = 60;
// A smaller change is noise: not worth another solve.
constexpr double kRelativeChangeMin = 0.05;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

void ThroughputMatrix::AddJob(JobId job,
                              const std::map<std::string, double>& given) {
  auto& types = figures_[job];
  types.clear();
  for (const auto& [type, steps_per_s] : given) {
    types[type].given = steps_per_s;
  }
  ratios_.clear();
}

void ThroughputMatrix::RemoveJob(JobId job) {
  figures_.erase(job);
  ratios_.clear();
}

bool ThroughputMatrix::Measure(JobId job, std::string_view type,
                               double steps_per_s, double window_s) {
  const bool plausible = std::isfinite(steps_per_s) && steps_per_s > 0 &&
                         std::isfinite(window_s) && window_s > 0;
  const auto row = figures_.find(job);
  if (!plausible || row == figures_.end()) return false;

  const double before = Get(job, type).steps_per_s;
  Figure& figure = row->second[std::string(type)];
  const bool first = figure.measured < 0;
  // Slow drift must count too: the change is taken from the figure that was
  // last announced, not from the last measurement.
  if (first) figure.announced = before;
  const double weight_new_s = std::min(window_s, kMeasuringWindow_s);
  const double weight_old_s = first
                                  ? 0
                                  : std::min(figure.measured_weight_s,
                                             kMeasuringWindow_s - weight_new_s);
  const double weight_s = weight_old_s + weight_new_s;
  const double old_part = first ? 0 : figure.measured * weight_old_s;
  figure.measured = (old_part + steps_per_s * weight_new_s) / weight_s;
  figure.measured_weight_s = weight_s;
  ratios_.clear();

  const double change = std::abs(figure.measured - figure.announced);
  if (change <= kRelativeChangeMin * figure.announced) return false;
  figure.announced = figure.measured;
  return true;
}

Throughput ThroughputMatrix::Get(JobId job, std::string_view type) const {
  const auto row = figures_.find(job);
  if (row == figures_.end()) return {1.0, ThroughputSource::kGuessed};
  const auto found = row->second.find(type);
  if (found == row->second.end()) {
    return {Guess(row->second, type), ThroughputSource::kGuessed};
  }
  const Figure& figure = found->second;
  if (figure.measured >= 0) {
    return {figure.measured, ThroughputSource::kMeasured};
  }
  return {figure.given, ThroughputSource::kGiven};
}

bool ThroughputMatrix::NeedsTrial(JobId job, std::string_view type) const {
  return Get(job, type).source == ThroughputSource::kGuessed;
}

double ThroughputMatrix::Guess(const Figures& figures,
                               std::string_view type) const {
  std::vector<double> known;      // of the job itself, on other types
  std::vector<double> estimates;  // of the asked type, one per known one
  for (const auto& [other, figure] : figures) {
    const double steps_per_s = figure.Value();
    // "Cannot run there" says nothing of the speed elsewhere; and a guess of 0
    // would keep the job from ever being tried.
    if (steps_per_s <= 0) continue;
    known.push_back(steps_per_s);
    const double ratio = Ratio(type, other);
    if (ratio > 0) estimates.push_back(steps_per_s * ratio);
  }
  if (!estimates.empty()) return Mean(estimates);
  return known.empty() ? 1.0 : Mean(known);
}

double ThroughputMatrix::Ratio(std::string_view type,
                               std::string_view other) const {
  const auto [cached, inserted] = ratios_.try_emplace(
      std::pair(std::string(type), std::string(other)), 0.0);
  if (!inserted) return cached->second;
  std::vector<double> ratios;
  for (const auto& [job, figures] : figures_) {
    const auto asked = figures.find(type);
    const auto base = figures.find(other);
    if (asked == figures.end() || base == figures.end()) continue;
    if (asked->second.Value() <= 0 || base->second.Value() <= 0) continue;
    ratios.push_back(asked->second.Value() / base->second.Value());
  }
  if (!ratios.empty()) cached->second = Median(std::move(ratios));
  return cached->second;
}

}  // namespace gavel
