#include <algorithm>

#include "study/simulation/simulation_store.h"

namespace gavel::study {
namespace {

// The mean of samples [begin, end), weighted by their time; the last of them
// when they last no time.
UsageSample MeanOf(const std::vector<UsageSample>& usage, size_t begin,
                   size_t end) {
  const Time until =
      end < usage.size() ? usage[end].time_s : usage.back().time_s;
  UsageSample mean = usage[begin];
  if (until <= mean.time_s) mean = usage[end - 1];
  mean.time_s = usage[begin].time_s;
  if (until <= mean.time_s) return mean;
  std::ranges::fill(mean.busy, 0.0);
  mean.waiting_jobs = 0;
  double span = 0;
  for (size_t i = begin; i < end; ++i) {
    const Time ends = i + 1 < usage.size() ? usage[i + 1].time_s : until;
    const double weight = ends - usage[i].time_s;
    for (size_t j = 0; j < mean.busy.size(); ++j) {
      mean.busy[j] += weight * usage[i].busy[j];
    }
    mean.waiting_jobs += weight * usage[i].waiting_jobs;
    span += weight;
  }
  for (double& busy : mean.busy) busy /= span;
  mean.waiting_jobs /= span;
  return mean;
}

}  // namespace

std::vector<UsageSample> ThinUsage(const std::vector<UsageSample>& usage,
                                   size_t samples_max) {
  if (usage.size() <= samples_max || samples_max == 0) return usage;
  const Time begins = usage.front().time_s;
  const Time ends = usage.back().time_s;
  const double span = (ends - begins) / static_cast<double>(samples_max - 1);
  std::vector<UsageSample> thinned;
  size_t first = 0;
  for (size_t i = 1; i <= usage.size(); ++i) {
    const bool is_last = i == usage.size();
    const Time until = is_last ? ends : usage[i].time_s;
    const double due = begins + span * static_cast<double>(thinned.size() + 1);
    if (!is_last && until < due) continue;
    // The last one is an instant; alone it would be a spike of no width.
    if (until > usage[first].time_s || thinned.empty()) {
      thinned.push_back(MeanOf(usage, first, i));
    }
    first = i;
  }
  return thinned;
}

}  // namespace gavel::study
