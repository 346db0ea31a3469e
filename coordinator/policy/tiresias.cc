// Tiresias (Gu et al., NSDI'19): preemptive scheduling by the service that a
// job has attained, which is its accelerators times the time that it ran.
//
// `tiresias` is the paper's discretised least attained service (section 3.3):
// jobs are in queues by thresholds of attained service, a job of an earlier
// queue goes before one of a later queue, and inside a queue the earlier
// arrival goes first. So a job is preempted when it crosses a threshold, and
// not over and over by jobs of nearly the same service. A job that has waited
// for many times the time that it ran is promoted to the first queue.
//
// `tiresias_gittins` uses the Gittins index inside the paper's discretised
// queues: the largest ratio, over horizons, of the chance that the job ends
// within the horizon to the service that it is expected to take until then. The
// distribution of total service is that of the jobs present whose steps are
// known; without any it is `tiresias`.
//
// A gang that has no room is passed over. Each job takes the type with its
// highest throughput among those with room. The mechanism places gangs on one
// server where it can; Tiresias spreads gangs of models that do not mind.
#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

// Upper ends of the queues but the last, in accelerator-seconds. The paper
// tunes them to its traces; these are an hour and half a day of one
// accelerator.
constexpr std::array<double, 2> kThresholds = {3'600, 43'200};
// The paper's promote knob, for which it gives no value.
constexpr double kWaitsPerRun = 8;
// Sizes that stand for the distribution of total service.
constexpr size_t kSizesMax = 256;

double Attained(const PolicyJob& job) {
  return job.time_received_s * job.scale_factor;
}

size_t QueueOf(const PolicyJob& job) {
  const double waited_s = job.time_since_start_s - job.time_received_s;
  const bool starves =
      job.time_received_s > 0 && waited_s > kWaitsPerRun * job.time_received_s;
  if (starves) return 0;
  const auto* const end =
      std::upper_bound(kThresholds.begin(), kThresholds.end(), Attained(job));
  return static_cast<size_t>(end - kThresholds.begin());
}

// The distribution of the jobs' total service in accelerator-seconds.
class ServiceSizes {
 public:
  explicit ServiceSizes(const Assigner& assigner) {
    std::vector<double> all;
    for (const size_t job : assigner.queue()) {
      const PolicyJob& of = assigner.Job(job);
      const auto type = assigner.BestFit(job);
      if (of.steps_remaining <= 0 || !type) continue;
      const double left_s =
          of.steps_remaining / assigner.Throughput(job, *type);
      all.push_back(Attained(of) + left_s * of.scale_factor);
    }
    std::sort(all.begin(), all.end());
    const size_t count = std::min(all.size(), kSizesMax);
    for (size_t i = 0; i < count; ++i) {
      sizes_.push_back(all[(2 * i + 1) * all.size() / (2 * count)]);
    }
  }
  bool empty() const { return sizes_.empty(); }

  // 0: no job of the distribution is larger than `attained`.
  double GittinsIndex(double attained) const {
    const auto first = std::upper_bound(sizes_.begin(), sizes_.end(), attained);
    const auto larger = static_cast<double>(sizes_.end() - first);
    double best = 0;
    double sum = 0;    // of the service that jobs within the horizon still take
    double ended = 0;  // jobs within the horizon
    for (auto size = first; size != sizes_.end(); ++size) {
      const double horizon = *size - attained;
      sum += horizon;
      ended += 1;
      best = std::max(best, ended / (sum + (larger - ended) * horizon));
    }
    return best;
  }

 private:
  std::vector<double> sizes_;  // ascending
};

}  // namespace

PolicyResult SolveTiresias(const PolicyProblem& problem, bool gittins) {
  Assigner assigner(problem);
  const ServiceSizes sizes(assigner);
  struct Entry {
    size_t queue;
    double index;  // the smaller one goes first
    size_t job;
  };
  std::vector<Entry> entries;
  for (const size_t job : assigner.queue()) {  // by arrival
    const PolicyJob& of = assigner.Job(job);
    const double index = gittins ? -sizes.GittinsIndex(Attained(of)) : 0;
    entries.push_back({QueueOf(of), index, job});
  }
  std::stable_sort(
      entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.queue, a.index) < std::tie(b.queue, b.index);
      });
  for (const Entry& entry : entries) {
    const auto stays = assigner.FitWhereItRuns(entry.job);
    const auto type = stays ? stays : assigner.BestFit(entry.job);
    if (type) assigner.Assign(entry.job, *type);
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
