#include "coordinator/jobs/time_received.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gavel {
namespace {

// `values` cut or filled with zeros to `types` entries.
std::vector<double> Resized(std::vector<double> values, size_t types) {
  values.resize(types, 0.0);
  return values;
}

}  // namespace

void TimeReceived::Add(JobId job, size_t type, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return;
  Seconds& received = seconds_[job];
  if (received.total.size() <= type) {
    received.total.resize(type + 1, 0.0);
    received.since_reset.resize(type + 1, 0.0);
  }
  received.total[type] += seconds;
  received.since_reset[type] += seconds;
}

void TimeReceived::Reset(double head_start_s) {
  head_start_s_ = head_start_s;
  for (auto& [job, received] : seconds_) {
    received.since_reset.assign(received.since_reset.size(), 0.0);
  }
}

// One factor for all types: the mechanism compares across them.
void TimeReceived::Age(double keep_s) {
  double most = 0;
  for (const auto& [job, received] : seconds_) {
    for (double seconds : received.since_reset) most = std::max(most, seconds);
  }
  if (most <= keep_s) return;
  for (auto& [job, received] : seconds_) {
    for (double& seconds : received.since_reset) seconds *= keep_s / most;
  }
}

void TimeReceived::Remove(JobId job) { seconds_.erase(job); }

double TimeReceived::Total(JobId job) const {
  const auto found = seconds_.find(job);
  if (found == seconds_.end()) return 0;
  const std::vector<double>& total = found->second.total;
  return std::accumulate(total.begin(), total.end(), 0.0);
}

std::vector<double> TimeReceived::TotalByType(JobId job, size_t types) const {
  const auto found = seconds_.find(job);
  if (found == seconds_.end()) return std::vector<double>(types, 0.0);
  return Resized(found->second.total, types);
}

std::vector<double> TimeReceived::SinceReset(JobId job, size_t types) const {
  std::vector<double> seconds = ShareSinceReset(job, types, 1.0);
  for (double& value : seconds) value += head_start_s_;
  return seconds;
}

std::vector<double> TimeReceived::ShareSinceReset(JobId job, size_t types,
                                                  double elapsed_s) const {
  const auto found = seconds_.find(job);
  if (found == seconds_.end()) return std::vector<double>(types, 0.0);
  std::vector<double> shares = Resized(found->second.since_reset, types);
  for (double& share : shares) share /= elapsed_s;
  return shares;
}

}  // namespace gavel
