#include "coordinator/engine/throughput_matrix.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/locality.h"

namespace gavel {
namespace {

constexpr double kRateWindow_s = 60;

}  // namespace

void AcceleratorSpeeds::Measure(JobId job, std::string_view type,
                                AcceleratorId accelerator, double steps_per_s,
                                double window_s) {
  if (!std::isfinite(steps_per_s) || !(steps_per_s > 0) ||
      !std::isfinite(window_s) || !(window_s > 0)) {
    return;
  }
  Rates& rates = rates_[{job, std::string(type)}];
  Rate& rate = rates[accelerator];
  const double fresh_s = std::min(window_s, kRateWindow_s);
  const double old_s = std::min(rate.weight_s, kRateWindow_s - fresh_s);
  rate.steps_per_s =
      (rate.steps_per_s * old_s + steps_per_s * fresh_s) / (old_s + fresh_s);
  rate.weight_s = old_s + fresh_s;
  if (rates.size() < 2) return;
  // Where it ran before, that is compared with the new figure, too.
  for (const auto& [other, unused] : rates) Compare(job, rates, other);
}

void AcceleratorSpeeds::Compare(JobId job, const Rates& rates,
                                AcceleratorId accelerator) {
  std::vector<double> others;
  for (const auto& [other, rate] : rates) {
    if (other != accelerator) others.push_back(rate.steps_per_s);
  }
  Ratios& ratios = ratios_[accelerator];
  std::erase_if(ratios, [&](const auto& told) { return told.first == job; });
  ratios.emplace_back(
      job, rates.at(accelerator).steps_per_s / Median(std::move(others)));
  if (ratios.size() > kJobsKept) ratios.erase(ratios.begin());
  slow_.erase(accelerator);
  if (ratios.size() < kJobsMin) return;
  std::vector<double> values;
  for (const auto& [id, ratio] : ratios) values.push_back(ratio);
  const double speed = Median(std::move(values));
  if (speed <= kSlowMax) slow_[accelerator] = speed;
}

void AcceleratorSpeeds::RemoveJob(JobId job) {
  rates_.erase(rates_.lower_bound({job, ""}),
               rates_.lower_bound({JobId(job.value() + 1), ""}));
}

void AcceleratorSpeeds::Forget(AcceleratorId accelerator) {
  for (auto& [job, rates] : rates_) rates.erase(accelerator);
  ratios_.erase(accelerator);
  slow_.erase(accelerator);
}

double AcceleratorSpeeds::Of(AcceleratorId accelerator) const {
  const auto found = slow_.find(accelerator);
  return found == slow_.end() ? 1 : found->second;
}

namespace {

// Measurements older than this, in seconds of running, are forgotten.
constexpr double kMeasuringWindow_s = 60;
// A smaller change is noise: not worth another solve.
constexpr double kRelativeChangeMin = 0.05;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

bool IsPlausible(double steps_per_s, double window_s) {
  return std::isfinite(steps_per_s) && steps_per_s > 0 &&
         std::isfinite(window_s) && window_s > 0;
}

// True when the figure has moved since it was last announced; `before`: what
// was taken for it before it was ever measured.
bool Average(ThroughputMatrix::Figure& figure, double before,
             double steps_per_s, double window_s, Time now) {
  const bool first = figure.measured < 0;
  // Slow drift must count too: the change is taken from the figure that was
  // last announced, not from the last measurement.
  if (first) figure.announced = before;
  const double age_s = std::max(0.0, now - figure.measured_at);
  const double kept = std::exp2(-age_s / ThroughputMatrix::kHalfLife_s);
  const double weight_new_s = std::min(window_s, kMeasuringWindow_s);
  const double weight_old_s = first
                                  ? 0
                                  : std::min(kept * figure.measured_weight_s,
                                             kMeasuringWindow_s - weight_new_s);
  const double weight_s = weight_old_s + weight_new_s;
  const double old_part = first ? 0 : figure.measured * weight_old_s;
  figure.measured = (old_part + steps_per_s * weight_new_s) / weight_s;
  figure.measured_weight_s = weight_s;
  const double seen_s =
      first ? 0 : std::min(kept * figure.seen_s, ThroughputMatrix::kHalfLife_s);
  const double usual_part = seen_s > 0 ? figure.usual * seen_s : 0;
  figure.seen_s = seen_s + window_s;
  figure.usual = (usual_part + steps_per_s * window_s) / figure.seen_s;
  figure.measured_at = now;
  const double value = figure.Value();
  const double change = std::abs(value - figure.announced);
  if (change <= kRelativeChangeMin * figure.announced) return false;
  figure.announced = value;
  return true;
}

}  // namespace

void ThroughputMatrix::AddJob(JobId job,
                              const std::map<std::string, double>& given,
                              int scale_factor) {
  scale_factors_[job] = scale_factor;
  auto& types = figures_[job];
  types.clear();
  for (const auto& [type, steps_per_s] : given) {
    types[type].given = steps_per_s;
  }
  ratios_.clear();
}

void ThroughputMatrix::AddGiven(JobId job,
                                const std::map<std::string, double>& given) {
  const auto row = figures_.find(job);
  if (row == figures_.end()) return;
  for (const auto& [type, steps_per_s] : given) {
    if (row->second.contains(type)) continue;
    row->second[type].given = steps_per_s;
    ++version_;
    ratios_.clear();
  }
}

void ThroughputMatrix::RemoveJob(JobId job) {
  figures_.erase(job);
  scale_factors_.erase(job);
  estimates_.erase(job);
  barred_.erase(job);
  std::erase_if(sizes_,
                [job](const auto& entry) { return entry.first.first == job; });
  std::erase_if(pairs_,
                [job](const auto& entry) { return entry.first.Holds(job); });
  ratios_.clear();
}

bool ThroughputMatrix::Measure(JobId job, std::string_view type,
                               double steps_per_s, double window_s, Time now) {
  ++version_;
  const auto row = figures_.find(job);
  if (!IsPlausible(steps_per_s, window_s) || row == figures_.end()) {
    return false;
  }
  const double before = Get(job, type).steps_per_s;
  ratios_.clear();
  return Average(row->second[type], before, steps_per_s, window_s, now);
}

bool ThroughputMatrix::MeasureSize(JobId job, std::string_view type,
                                   int workers, double steps_per_s,
                                   double window_s, Time now) {
  ++version_;
  const auto asked = scale_factors_.find(job);
  if (asked == scale_factors_.end()) return false;
  if (asked->second == workers) {
    return Measure(job, type, steps_per_s, window_s, now);
  }
  if (!IsPlausible(steps_per_s, window_s)) return false;
  const double before = AtSize(job, type, workers).steps_per_s;
  return Average(sizes_[{job, workers}][type], before, steps_per_s, window_s,
                 now);
}

void ThroughputMatrix::ExcludeSize(JobId job, std::string_view type,
                                   int workers) {
  ++version_;
  if (!scale_factors_.contains(job)) return;
  sizes_[{job, workers}][type].out_of_memory = true;
}

Throughput ThroughputMatrix::AtSize(JobId job, std::string_view type,
                                    int workers) const {
  const Throughput asked = Get(job, type);
  if (IsBarred(job, type)) return asked;
  const auto size = scale_factors_.find(job);
  std::map<int, double> known;
  if (asked.source != ThroughputSource::kGuessed) {
    if (size == scale_factors_.end() || size->second == workers) return asked;
    known[size->second] = asked.steps_per_s;
  }
  for (auto it = sizes_.lower_bound({job, 0});
       it != sizes_.end() && it->first.first == job; ++it) {
    const auto found = it->second.find(type);
    if (found == it->second.end()) continue;
    const int measured = it->first.second;
    const double steps_per_s = found->second.Value();
    if (measured == workers || (measured < workers && steps_per_s == 0)) {
      return {steps_per_s, ThroughputSource::kMeasured};
    }
    if (steps_per_s > 0) known[measured] = steps_per_s;
  }
  if (known.empty()) return asked;
  // Whether there are more or fewer: how many times as many.
  const auto distance = [&](const auto& entry) {
    return std::abs(std::log(static_cast<double>(workers) / entry.first));
  };
  const auto nearest = std::min_element(
      known.begin(), known.end(),
      [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  const double ratio = static_cast<double>(workers) / nearest->first;
  return {nearest->second * std::pow(ratio, kScalingExponent),
          ThroughputSource::kGuessed};
}

bool ThroughputMatrix::MeasureTogether(JobId job, JobId other,
                                       std::string_view type,
                                       double steps_per_s, double window_s,
                                       double prior, Time now) {
  if (!IsPlausible(steps_per_s, window_s) || !figures_.contains(job) ||
      !figures_.contains(other)) {
    return false;
  }
  PairFigure& pair = pairs_[PairOf(job, other)][type];
  Figure& figure = job < other ? pair.first : pair.second;
  if (prior > 0) figure.given = prior;
  return Average(figure, prior, steps_per_s, window_s, now);
}

const ThroughputMatrix::Figure* ThroughputMatrix::FindFigure(
    JobId job, std::string_view type) const {
  const auto row = figures_.find(job);
  if (row == figures_.end()) return nullptr;
  const auto found = row->second.find(type);
  return found == row->second.end() ? nullptr : &found->second;
}

const ThroughputMatrix::PairFigure* ThroughputMatrix::FindPair(
    JobId job, JobId other, std::string_view type) const {
  const auto row = pairs_.find(PairOf(job, other));
  if (row == pairs_.end()) return nullptr;
  const auto found = row->second.find(type);
  return found == row->second.end() ? nullptr : &found->second;
}

std::optional<double> ThroughputMatrix::Together(JobId job, JobId other,
                                                 std::string_view type) const {
  const PairFigure* pair = FindPair(job, other, type);
  if (pair == nullptr) return std::nullopt;
  const Figure& figure = job < other ? pair->first : pair->second;
  if (figure.out_of_memory) return 0;
  if (figure.measured < 0) return std::nullopt;
  return figure.Value();
}

void ThroughputMatrix::SetBarred(JobId job,
                                 std::set<std::string, std::less<>> types) {
  const auto before = barred_.find(job);
  const bool same =
      before == barred_.end() ? types.empty() : before->second == types;
  if (same) return;
  ++version_;
  if (types.empty()) {
    barred_.erase(job);
  } else {
    barred_[job] = std::move(types);
  }
}

bool ThroughputMatrix::IsBarred(JobId job, std::string_view type) const {
  if (barred_.empty()) return false;
  if (const auto at = SplitTypeName(type)) type = at->type;
  const auto found = barred_.find(job);
  return found != barred_.end() && found->second.contains(type);
}

void ThroughputMatrix::Exclude(JobId job, std::string_view type) {
  ++version_;
  const auto row = figures_.find(job);
  if (row == figures_.end()) return;
  row->second[type].out_of_memory = true;
  ratios_.clear();
}

void ThroughputMatrix::ExcludePair(JobId job, JobId other,
                                   std::string_view type) {
  ++version_;
  PairFigure& pair = pairs_[PairOf(job, other)][type];
  pair.first.out_of_memory = true;
  pair.second.out_of_memory = true;
}

std::set<JobId> ThroughputMatrix::UnlikeTheirKind() const {
  const auto is_news = [](const Figure& figure) {
    if (figure.out_of_memory) return true;
    if (figure.measured < 0) return false;
    return !(figure.given > 0) || std::abs(figure.Value() - figure.given) >
                                      kRelativeChangeMin * figure.given;
  };
  std::set<JobId> jobs;
  for (const auto& [unit, types] : pairs_) {
    for (const auto& [type, figures] : types) {
      if (is_news(figures.first)) jobs.insert(unit.job);
      if (is_news(figures.second)) jobs.insert(unit.partner);
    }
  }
  return jobs;
}

bool ThroughputMatrix::Readmit(JobId job) {
  ++version_;
  bool any = false;
  if (const auto row = figures_.find(job); row != figures_.end()) {
    for (auto& [type, figure] : row->second) {
      any |= figure.out_of_memory;
      figure.out_of_memory = false;
    }
    // Nothing else is known of them.
    absl::erase_if(row->second, [](const auto& entry) {
      return entry.second.given < 0 && entry.second.measured < 0;
    });
  }
  for (auto it = sizes_.lower_bound({job, 0});
       it != sizes_.end() && it->first.first == job; ++it) {
    any |= absl::erase_if(it->second, [](const auto& entry) {
             return entry.second.out_of_memory;
           }) > 0;
  }
  for (auto& [unit, types] : pairs_) {
    if (!unit.Holds(job)) continue;
    any |= absl::erase_if(types, [](const auto& entry) {
             return entry.second.first.out_of_memory;
           }) > 0;
  }
  ratios_.clear();
  return any;
}

bool ThroughputMatrix::IsExcluded(JobId job, std::string_view type) const {
  const Figure* figure = FindFigure(job, type);
  return figure != nullptr && figure->out_of_memory;
}

bool ThroughputMatrix::HasExclusions(JobId job) const {
  const auto row = figures_.find(job);
  if (row != figures_.end() &&
      std::any_of(row->second.begin(), row->second.end(),
                  [](const auto& f) { return f.second.out_of_memory; })) {
    return true;
  }
  return std::any_of(pairs_.begin(), pairs_.end(), [job](const auto& pair) {
    return pair.first.Holds(job) &&
           std::any_of(
               pair.second.begin(), pair.second.end(),
               [](const auto& f) { return f.second.first.out_of_memory; });
  });
}

Throughput ThroughputMatrix::Get(JobId job, std::string_view type) const {
  const auto row = figures_.find(job);
  if (IsBarred(job, type)) return {0, ThroughputSource::kGiven};
  if (row == figures_.end()) return {1.0, ThroughputSource::kGuessed};
  const auto found = row->second.find(type);
  if (found == row->second.end()) {
    const double estimate = Estimated(job, type);
    return {estimate > 0 ? estimate : Guess(row->second, type),
            ThroughputSource::kGuessed};
  }
  const Figure& figure = found->second;
  if (figure.out_of_memory) return {0, ThroughputSource::kMeasured};
  if (figure.measured >= 0) {
    return {figure.Value(), ThroughputSource::kMeasured};
  }
  return {figure.given, ThroughputSource::kGiven};
}

void ThroughputMatrix::Estimate(JobId job,
                                std::map<std::string, double> steps_per_s) {
  if (!figures_.contains(job)) return;
  ++version_;
  auto& estimates = estimates_[job];
  estimates.clear();
  estimates.insert(steps_per_s.begin(), steps_per_s.end());
}

double ThroughputMatrix::Estimated(JobId job, std::string_view type) const {
  const auto row = estimates_.find(job);
  if (row == estimates_.end()) return 0;
  const auto found = row->second.find(type);
  return found == row->second.end() ? 0 : found->second;
}

ThroughputMatrix::Contradiction ThroughputMatrix::Contradicted(
    JobId job, std::string_view type) const {
  Contradiction told;
  const Figure* found = FindFigure(job, type);
  if (found == nullptr) return told;
  const Figure& figure = *found;
  if (figure.measured < 0 || figure.seen_s < kTellingMin_s) return told;
  told.measured = figure.measured;
  const auto off = [&](double said) {
    return said > 0 && std::abs(figure.measured - said) > kWorthTelling * said;
  };
  if (off(figure.given)) told.given = figure.given;
  if (off(figure.usual)) told.before = figure.usual;
  return told;
}

bool ThroughputMatrix::NeedsTrial(JobId job, std::string_view type) const {
  return !IsBarred(job, type) && FindFigure(job, type) == nullptr;
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
