#include "coordinator/engine/elastic.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace gavel {
namespace {

// More workers are worth having if they give at least this part of the ideal
// speed-up, which is proportional to the number of workers.
constexpr double kEfficiencyMin = 0.25;

bool IsFasterByEnough(double before_steps_per_s, int before,
                      double after_steps_per_s, int after) {
  const double ideal = static_cast<double>(after) / before - 1;
  return after_steps_per_s >= before_steps_per_s * (1 + kEfficiencyMin * ideal);
}

class Sizes {
 public:
  Sizes(std::vector<SizedJob> jobs, std::vector<int> free,
        const std::vector<int>& capacity, const std::vector<std::string>& types,
        const ElasticOptions& options)
      : jobs_(std::move(jobs)),
        free_(std::move(free)),
        capacity_(capacity),
        types_(types),
        options_(options),
        before_(jobs_.size()),
        reasons_(jobs_.size()),
        blocked_(free_.size(), false) {
    for (size_t i = 0; i < jobs_.size(); ++i) before_[i] = jobs_[i].size;
  }

  std::vector<Resize> Choose() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].type.has_value()) continue;
      came_.push_back(i);
      MakeWayFor(i);
    }
    for (const size_t i : came_) KeepSize(i);
    if (!options_.keep_running) {
      for (size_t i = 0; i < jobs_.size(); ++i) GiveBackSlow(i);
    }
    Grow(&SizedJob::size_asked);
    Grow(&SizedJob::size_max);
    std::vector<Resize> resizes;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].size == before_[i]) continue;
      resizes.push_back({jobs_[i].id, jobs_[i].size, reasons_[i]});
    }
    return resizes;
  }

 private:
  double Speed(const SizedJob& job, int size) const {
    return job.speed(*job.type, size).steps_per_s;
  }

  // The change of speed from `from` to `to` workers, as a part of the speed at
  // the size that the job asked for: steps of different jobs can't be compared.
  double Gain(const SizedJob& job, int from, int to) const {
    const double asked = Speed(job, job.size_asked);
    if (!(asked > 0)) return 0;
    return (Speed(job, to) - Speed(job, from)) / asked;
  }

  // ---- 1. make room for waiting jobs

  void MakeWayFor(size_t i) {
    if (FitInto(i)) return;
    const SizedJob& job = jobs_[i];
    const auto missing = [&](size_t type) {
      return job.size_min - free_[type];
    };
    std::optional<size_t> best;
    for (size_t type = 0; type < free_.size(); ++type) {
      if (options_.keep_running || !job.usable[type] ||
          missing(type) > Spare(type)) {
        continue;
      }
      if (!best || missing(type) < missing(*best)) best = type;
    }
    if (!best) return Block(job);
    while (missing(*best) > 0) TakeOne(*best, job);
    FitInto(i);
  }

  // Blocks growth on each type that could hold the waiting job: it may need the
  // idle accelerators there in the next round.
  void Block(const SizedJob& job) {
    for (size_t type = 0; type < free_.size(); ++type) {
      if (job.usable[type] && capacity_[type] >= job.size_min) {
        blocked_[type] = true;
      }
    }
  }

  // Places the job on the usable type with the most free accelerators. Returns
  // false if no type has enough.
  bool FitInto(size_t i) {
    SizedJob& job = jobs_[i];
    std::optional<size_t> best;
    for (size_t type = 0; type < free_.size(); ++type) {
      if (!job.usable[type] || free_[type] < job.size_min) continue;
      if (!best || free_[type] > free_[*best]) best = type;
    }
    if (!best) return false;
    job.type = best;
    const int idle = free_[*best];
    const int size = std::min(job.size_asked, idle);
    if (size < job.size) {
      reasons_[i] = reason::ShrunkToFit{types_[*best]};
    } else if (size > job.size) {
      reasons_[i] = reason::Grown{types_[*best], idle,
                                  Speed(job, size) - Speed(job, job.size)};
    }
    job.size = size;
    free_[*best] -= size;
    return true;
  }

  // FitInto may have given the job fewer workers than it had before. This gives
  // it as many of them back as are free on a type that is not blocked.
  void KeepSize(size_t i) {
    SizedJob& job = jobs_[i];
    if (!job.type || blocked_[*job.type] || job.size >= before_[i]) return;
    const int more = std::min(before_[i] - job.size, free_[*job.type]);
    job.size += more;
    free_[*job.type] -= more;
  }

  int Spare(size_t type) const {
    int spare = 0;
    for (const SizedJob& job : jobs_) {
      if (job.type == type) spare += job.size - job.size_min;
    }
    return spare;
  }

  void TakeOne(size_t type, const SizedJob& waiting) {
    std::optional<size_t> giver;
    double least = std::numeric_limits<double>::infinity();
    bool spares = false;  // it has more than it asked for
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const SizedJob& job = jobs_[i];
      if (job.type != type || job.size <= job.size_min) continue;
      const bool beyond = job.size > job.size_asked;
      const double loss = Gain(job, job.size - 1, job.size);
      if (giver && (spares && !beyond)) continue;
      if (giver && spares == beyond && loss > least) continue;
      giver = i;
      least = loss;
      spares = beyond;
    }
    --jobs_[*giver].size;
    ++free_[type];
    reasons_[*giver] = reason::ShrunkForJob{types_[type], waiting.id};
  }

  // ---- 2. give back workers that do not pay

  void GiveBackSlow(size_t i) {
    SizedJob& job = jobs_[i];
    if (!job.type || job.rests || job.size <= job.size_asked) return;
    const Throughput now = job.speed(*job.type, job.size);
    if (now.source == ThroughputSource::kGuessed) return;
    for (int size = job.size_asked; size < job.size; ++size) {
      const Throughput less = job.speed(*job.type, size);
      if (less.source == ThroughputSource::kGuessed ||
          IsFasterByEnough(less.steps_per_s, size, now.steps_per_s, job.size)) {
        continue;
      }
      free_[*job.type] += job.size - size;
      job.size = size;
      job.rests = true;
      reasons_[i] = reason::ShrunkSlow{types_[*job.type], now.steps_per_s,
                                       less.steps_per_s};
      return;
    }
  }

  // ---- 3. grow into idle accelerators

  void Grow(int SizedJob::*bound) {
    const std::vector<int> idle = free_;
    std::vector<int> sizes;
    for (const SizedJob& job : jobs_) sizes.push_back(job.size);
    while (std::optional<size_t> next = MostGain(bound)) {
      ++jobs_[*next].size;
      --free_[*jobs_[*next].type];
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      SizedJob& job = jobs_[i];
      if (job.size == sizes[i]) continue;
      const double before = Speed(job, before_[i]);
      const double gain = Speed(job, job.size) - before;
      if (gain * options_.horizon_s <=
          Speed(job, job.size) * job.resize_cost_s) {
        free_[*job.type] += job.size - sizes[i];
        job.size = sizes[i];
        continue;
      }
      reasons_[i] = reason::Grown{types_[*job.type], idle[*job.type], gain};
    }
  }

  std::optional<size_t> MostGain(int SizedJob::*bound) const {
    std::optional<size_t> most;
    double gain = 0;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const SizedJob& job = jobs_[i];
      if (!MayGrow(i) || job.size >= job.*bound) continue;
      const double own = Gain(job, job.size, job.size + 1);
      if (own <= gain) continue;
      most = i;
      gain = own;
    }
    return most;
  }

  // The speed at the present size must not be a guess: otherwise the gain could
  // not be computed.
  bool MayGrow(size_t i) const {
    const SizedJob& job = jobs_[i];
    if (!job.type || job.rests || free_[*job.type] == 0 ||
        blocked_[*job.type] || job.size < before_[i] ||
        (options_.keep_running && !job.starts)) {
      return false;
    }
    const Throughput now = job.speed(*job.type, before_[i]);
    return now.source != ThroughputSource::kGuessed &&
           IsFasterByEnough(now.steps_per_s, before_[i],
                            Speed(job, job.size + 1), job.size + 1);
  }

  std::vector<SizedJob> jobs_;
  std::vector<int> free_;
  const std::vector<int>& capacity_;
  const std::vector<std::string>& types_;
  const ElasticOptions options_;
  std::vector<int> before_;
  std::vector<Reason> reasons_;
  std::vector<size_t> came_;   // jobs that waited
  std::vector<bool> blocked_;  // by type: a waiting job could use it
};

}  // namespace

std::vector<Resize> ChooseSizes(std::vector<SizedJob> jobs,
                                std::vector<int> free,
                                const std::vector<int>& capacity,
                                const std::vector<std::string>& types,
                                const ElasticOptions& options) {
  return Sizes(std::move(jobs), std::move(free), capacity, types, options)
      .Choose();
}

}  // namespace gavel
