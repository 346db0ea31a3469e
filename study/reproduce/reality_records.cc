#include "study/reproduce/reality_records.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::study {
namespace {

class Mean {
 public:
  void Add(double value) {
    sum_ += value;
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  double value() const { return empty() ? 0 : sum_ / count_; }

 private:
  double sum_ = 0;
  double count_ = 0;
};

struct Losses {
  Mean start, finish, pause, resume, move;
};

// When the accelerator of a lease was last another's, before it.
using Ends = std::map<std::string, std::vector<Time>>;

Ends EndsOf(const std::vector<LiveJob>& jobs) {
  Ends ends;
  for (const LiveJob& job : jobs) {
    for (const LiveLease& lease : job.leases) {
      ends[lease.accelerator].push_back(lease.to_s);
    }
  }
  for (auto& [accelerator, times] : ends) std::ranges::sort(times);
  return ends;
}

Time FreeBefore(const Ends& ends, const LiveLease& lease) {
  const std::vector<Time>& times = ends.at(lease.accelerator);
  const auto after = std::ranges::upper_bound(times, lease.from_s);
  return after == times.begin() ? -kNever : *std::prev(after);
}

void AddLosses(const LiveJob& job, const Ends& ends, Losses* losses) {
  Time ready_s = job.submitted_s;
  const LiveLease* last = nullptr;
  for (const LiveLease& lease : job.leases) {
    const auto first = std::ranges::lower_bound(job.steps, lease.from_s, {},
                                                &TracedStep::end_s);
    const auto end =
        std::ranges::upper_bound(job.steps, lease.to_s, {}, &TracedStep::end_s);
    if (first < end) {
      const double gap_s =
          first->begin_s - std::max(ready_s, FreeBefore(ends, lease));
      Mean& mean = last == nullptr                          ? losses->start
                   : last->accelerator == lease.accelerator ? losses->resume
                                                            : losses->move;
      mean.Add(std::max(0.0, gap_s));
      const double left_s = std::max(0.0, lease.to_s - std::prev(end)->end_s);
      if (lease.paused) {
        losses->pause.Add(left_s);
      } else {
        losses->finish.Add(
            std::max(left_s, job.ended_s - std::prev(end)->end_s));
      }
      last = &lease;
    }
    ready_s = lease.to_s;
  }
}

double ValueOr(const Mean& mean, const Mean& of_all) {
  return mean.empty() ? of_all.value() : mean.value();
}

Overhead OverheadOf(const Losses& losses, const Losses& all) {
  Overhead overhead;
  overhead.start_s =
      ValueOr(losses.start, all.start) + ValueOr(losses.finish, all.finish);
  overhead.pause_s = ValueOr(losses.pause, all.pause);
  overhead.resume_s = ValueOr(losses.resume, all.resume);
  const Mean& move = all.move.empty() ? all.resume : all.move;
  overhead.move_s = ValueOr(losses.move, move);
  return overhead;
}

std::string FormatOverhead(std::string_view type, const Overhead& overhead) {
  return absl::StrFormat(
      "[\"%s\"]\nstart_s = %.6f\npause_s = %.6f\nresume_s = %.6f\n"
      "move_s = %.6f\n",
      type, overhead.start_s, overhead.pause_s, overhead.resume_s,
      overhead.move_s);
}

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

absl::StatusOr<std::vector<LiveJob>> ReadLiveJobs(const Json& jobs,
                                                  const Json& leases) {
  std::vector<LiveJob> live;
  std::map<uint64_t, size_t> index_of;
  for (const Json& row : jobs) {
    LiveJob& job = live.emplace_back();
    job.name = row.value("name", "");
    job.type = row.value("app", "");
    job.submitted_s = row.value("submitted_s", 0.0);
    job.ended_s = row.value("ended_s", 0.0);
    job.pauses = row.value("pauses", uint64_t{0});
    index_of[row.value("job", uint64_t{0})] = live.size() - 1;
    if (job.ended_s <= 0 || row.value("state", "") != "CD") {
      return absl::InvalidArgumentError(StrCat(
          "job ", job.name,
          " did not finish: ", row.value("reason", "it is not known why")));
    }
  }
  for (const Json& row : leases) {
    const auto found = index_of.find(row.value("job", uint64_t{0}));
    if (found == index_of.end() || row.value("rank", 0) != 0) continue;
    live[found->second].leases.push_back(
        {row.value("uuid", ""), row.value("from_s", 0.0),
         row.value("to_s", 0.0), row.value("ended", "") == "paused"});
  }
  for (LiveJob& job : live) {
    std::ranges::sort(job.leases, {}, &LiveLease::from_s);
    // A lease that the end of the job ended may have no end of its own.
    for (LiveLease& lease : job.leases) {
      if (lease.to_s <= 0) lease.to_s = job.ended_s;
    }
  }
  return live;
}

LiveFigures FiguresOf(const std::vector<LiveJob>& jobs) {
  LiveFigures figures;
  Time first_s = kNever;
  Time last_s = -kNever;
  Mean jct;
  for (const LiveJob& job : jobs) {
    first_s = std::min(first_s, job.submitted_s);
    last_s = std::max(last_s, job.ended_s);
    jct.Add(job.ended_s - job.submitted_s);
    figures.pauses += job.pauses;
  }
  figures.makespan_s = jobs.empty() ? 0 : last_s - first_s;
  figures.avg_jct_s = jct.value();
  return figures;
}

Overheads MeasureOverheads(const std::vector<LiveJob>& jobs) {
  const Ends ends = EndsOf(jobs);
  Losses all;
  std::map<std::string, Losses> by_type;
  for (const LiveJob& job : jobs) {
    AddLosses(job, ends, &all);
    AddLosses(job, ends, &by_type[job.type]);
  }
  Overheads overheads;
  overheads.all = OverheadOf(all, all);
  for (const auto& [type, losses] : by_type) {
    overheads.by_type[type] = OverheadOf(losses, all);
  }
  return overheads;
}

std::string FormatOverheads(const Overheads& overheads) {
  std::string text = FormatOverhead("*", overheads.all);
  for (const auto& [type, overhead] : overheads.by_type) {
    text += FormatOverhead(type, overhead);
  }
  return text;
}

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
