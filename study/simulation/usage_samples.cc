#include "study/simulation/usage_samples.h"

#include <utility>

namespace gavel {
namespace {

// Sums samples weighted by time into one.
class Mean {
 public:
  void Add(const UsageSample& sample, double weight) {
    if (sum_.busy.empty()) {
      sum_.busy.resize(sample.busy.size());
      first_s_ = sample.time_s;
    }
    for (size_t j = 0; j < sum_.busy.size(); ++j) {
      sum_.busy[j] += weight * sample.busy[j];
    }
    sum_.waiting_jobs += weight * sample.waiting_jobs;
    weight_ += weight;
    last_ = sample;
  }
  bool has_time() const { return weight_ > 0; }
  UsageSample Take() {
    UsageSample mean = weight_ > 0 ? sum_ : last_;
    if (weight_ > 0) {
      for (double& busy : mean.busy) busy /= weight_;
      mean.waiting_jobs /= weight_;
    }
    mean.time_s = first_s_;
    *this = Mean();
    return mean;
  }

 private:
  UsageSample sum_;
  UsageSample last_;
  double weight_ = 0;
  Time first_s_ = 0;
};

}  // namespace

std::vector<UsageSample> ThinUsage(const std::vector<UsageSample>& usage,
                                   size_t samples_max) {
  if (usage.size() <= samples_max || samples_max == 0) return usage;
  const Time begins = usage.front().time_s;
  const double span =
      (usage.back().time_s - begins) / static_cast<double>(samples_max - 1);
  std::vector<UsageSample> thinned;
  Mean mean;
  for (size_t i = 0; i < usage.size(); ++i) {
    const bool is_last = i + 1 == usage.size();
    const Time ends = is_last ? usage[i].time_s : usage[i + 1].time_s;
    mean.Add(usage[i], ends - usage[i].time_s);
    const double due = begins + span * static_cast<double>(thinned.size() + 1);
    if (!is_last && ends < due) continue;
    // The last one is an instant; alone it would be a spike of no width.
    const bool has_time = mean.has_time();
    UsageSample sample = mean.Take();
    if (has_time || thinned.empty()) thinned.push_back(std::move(sample));
  }
  return thinned;
}

}  // namespace gavel
