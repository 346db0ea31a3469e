#include "study/reproduce/reality_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"

namespace gavel::study {
namespace {

// Of the time in which the accelerators do the jobs.
constexpr double kArrivalPart = 0.8;

// In (0, 1], the same with every standard library.
double Draw(std::mt19937_64& random) {
  return 1 - static_cast<double>(random() >> 11) * 0x1.0p-53;
}

double Fastest(const std::vector<double>& steps_per_s) {
  return *std::ranges::max_element(steps_per_s);
}

// Accelerators of each job's fastest type that do as much as all together.
double Capacity(const RealityThroughputs& throughputs) {
  double capacity = 0;
  for (const std::vector<double>& row : throughputs.steps_per_s) {
    for (size_t type = 0; type < row.size(); ++type) {
      capacity += throughputs.counts[type] * row[type] / Fastest(row);
    }
  }
  return capacity / static_cast<double>(throughputs.steps_per_s.size());
}

}  // namespace

std::vector<RealityJob> MakeRealityTrace(
    const RealityTraceOptions& options, const RealityThroughputs& throughputs) {
  std::mt19937_64 random(options.seed);
  const double ratio = options.duration_max_s / options.duration_min_s;
  const double mean_s =
      ratio > 1
          ? (options.duration_max_s - options.duration_min_s) / std::log(ratio)
          : options.duration_min_s;
  const double interarrival_s = kArrivalPart * mean_s / Capacity(throughputs);
  std::vector<size_t> order;
  std::vector<RealityJob> jobs;
  double arrival_s = 0;
  for (int i = 0; i < options.jobs; ++i) {
    if (order.empty()) {
      order.resize(throughputs.steps_per_s.size());
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t k = order.size(); k > 1; --k) {
        std::swap(order[k - 1], order[random() % k]);
      }
    }
    RealityJob& job = jobs.emplace_back();
    job.workload = order.back();
    order.pop_back();
    const double duration_s =
        options.duration_min_s * std::pow(ratio, Draw(random));
    job.steps = static_cast<uint64_t>(
        std::ceil(duration_s * Fastest(throughputs.steps_per_s[job.workload])));
    job.arrival_s = arrival_s;
    // Whole milliseconds: the text of the trace has all of it.
    arrival_s +=
        std::round(-std::log(Draw(random)) * interarrival_s * 1e3) / 1e3;
  }
  return jobs;
}

std::string FormatRealityTrace(const std::vector<RealityJob>& jobs,
                               const std::vector<ProfileWorkload>& workloads) {
  std::string text;
  for (const RealityJob& job : jobs) {
    absl::StrAppendFormat(
        &text, "[[job]]\ntype = \"%s\"\nsteps_total = %d\narrival_s = %.3f\n",
        workloads[job.workload].type, job.steps, job.arrival_s);
  }
  return text;
}

}  // namespace gavel::study
