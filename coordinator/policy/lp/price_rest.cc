#include "coordinator/policy/lp/price_rest.h"

#include <algorithm>
#include <numeric>

namespace gavel::policy {
namespace {

// A job that could have this much less than it has still rises: rounding.
constexpr double kMoreMin = 1e-9;
// Columns of which less than this part is left are full.
constexpr double kLeftMin = 1e-9;

}  // namespace

std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity) {
  std::vector<bool> free(jobs.types);
  for (size_t j = 0; j < jobs.types; ++j) {
    free[j] = scarcity[j] <= 0 && scarcity[jobs.Within(j)] <= 0;
  }
  return free;
}

double FastestFree(const PriceJobs& jobs, const std::vector<bool>& free,
                   size_t job) {
  double most = 0;
  for (size_t j = 0; j < jobs.types; ++j) {
    if (free[j]) most = std::max(most, jobs.Throughput(job, j));
  }
  return most;
}

bool RisesOn(double has, double most) { return most >= has * (1 - kMoreMin); }

PriceRest::PriceRest(const PriceJobs& jobs)
    : jobs_(jobs),
      members_(jobs.size),
      columns_(jobs.types),
      free_(jobs.types),
      left_(jobs.capacity),
      shares_(jobs.size * jobs.types, 0.0) {
  for (size_t m = 0; m < jobs.size; ++m) members_[m].job = m;
  std::iota(columns_.begin(), columns_.end(), size_t{0});
}

double PriceRest::Speed(const RestMember& member, size_t column) const {
  const double throughput = jobs_.Throughput(member.job, column);
  if (!member.tied) return throughput;
  return throughput == member.speed ? 1 : 0;
}

PriceJobs PriceRest::Jobs() const {
  std::vector<double> capacity;
  for (const size_t j : columns_) capacity.push_back(left_[j]);
  PriceJobs jobs = MakePriceJobs(members_.size(), std::move(capacity));
  if (!jobs_.within.empty()) {
    for (const size_t j : columns_) {
      const auto at = std::ranges::find(columns_, jobs_.within[j]);
      jobs.within.push_back(static_cast<size_t>(at - columns_.begin()));
    }
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    jobs.accelerators[i] = jobs_.accelerators[members_[i].job];
    for (size_t t = 0; t < columns_.size(); ++t) {
      jobs.Throughput(i, t) = Speed(members_[i], columns_[t]);
    }
  }
  return jobs;
}

// If `but_tied`, not those on free columns, which it can exchange.
void PriceRest::Keep(size_t i, std::span<const double> shares, bool but_tied) {
  const size_t m = members_[i].job;
  for (size_t t = 0; t < columns_.size(); ++t) {
    const size_t j = columns_[t];
    const double share = shares[i * columns_.size() + t];
    if (share <= 0 || (but_tied && free_[j])) continue;
    shares_[m * jobs_.types + j] += share;
    const double held = jobs_.accelerators[m] * share;
    left_[j] -= held;
    if (jobs_.Within(j) != j) left_[jobs_.Within(j)] -= held;
  }
}

void PriceRest::FreezeAll(std::span<const double> shares) {
  for (size_t i = 0; i < members_.size(); ++i) Keep(i, shares, false);
  members_.clear();
}

void PriceRest::Freeze(std::span<const double> shares,
                       const std::vector<bool>& free,
                       const std::vector<bool>& rises) {
  free_.assign(jobs_.types, false);
  for (size_t t = 0; t < columns_.size(); ++t) free_[columns_[t]] = free[t];
  std::vector<RestMember> rising;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (rises[i]) {
      rising.push_back(members_[i]);
      continue;
    }
    const RestMember tied = TiedPart(i, shares);
    Keep(i, shares, tied.time > 0);
    if (tied.time > 0) rising.push_back(tied);
  }
  members_ = std::move(rising);
  const auto is_full = [&](size_t j) {
    return left_[j] <= kLeftMin * jobs_.capacity[j];
  };
  std::erase_if(columns_, [&](size_t j) {
    return !free_[j] || is_full(j) || is_full(jobs_.Within(j));
  });
  // Those that can use no column any more, of which next to nothing was left.
  std::erase_if(members_, [&](const RestMember& member) {
    return std::ranges::none_of(columns_,
                                [&](size_t j) { return Speed(member, j) > 0; });
  });
}

// Time of the member on free columns that it could have on another one as well;
// none: 0.
RestMember PriceRest::TiedPart(size_t i, std::span<const double> shares) const {
  RestMember tied{members_[i].job, true};
  double time = 0;  // whatever it has on free columns is at one speed
  for (size_t t = 0; t < columns_.size(); ++t) {
    const double share = shares[i * columns_.size() + t];
    if (!free_[columns_[t]] || share <= 0) continue;
    time += share;
    const double speed = Speed(members_[i], columns_[t]);
    const auto as_fast = std::ranges::count_if(columns_, [&](size_t j) {
      return free_[j] && Speed(members_[i], j) == speed;
    });
    if (as_fast > 1) tied.speed = jobs_.Throughput(tied.job, columns_[t]);
  }
  if (tied.speed > 0) tied.time = time;
  return tied;
}

}  // namespace gavel::policy
