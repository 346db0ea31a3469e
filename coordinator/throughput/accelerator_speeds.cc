#include "coordinator/throughput/accelerator_speeds.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "coordinator/throughput/median.h"

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

}  // namespace gavel
