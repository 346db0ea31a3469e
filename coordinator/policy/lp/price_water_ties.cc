#include "coordinator/policy/lp/price_water_ties.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

namespace gavel::policy {
namespace {

// A job that could have this much less than it has still rises: rounding.
constexpr double kMoreMin = 1e-9;
// A column that is too dear by this part only is as good as the others.
constexpr double kTieSlack = 1e-9;
// Mixtures of two columns that cost the same but for rounding.
constexpr double kSameCost = 1e-13;

// All of the time on a column, or none at all.
struct Choice {
  double speed = 0;
  double cost = 0;
};

// A job pays worth for each step/s, and has time for each accelerator second:
// the supporting line of its choices at what it has.
struct Line {
  double worth = 0;
  double time = 0;
};

// The cheapest mixture of a slower and a faster choice that has `has`.
std::optional<Line> LineAt(std::span<const Choice> choices, double has) {
  std::optional<Line> line;
  double least = 0;
  for (const Choice& slow : choices) {
    if (slow.speed >= has) continue;
    for (const Choice& fast : choices) {
      if (fast.speed < has) continue;
      const double worth = (fast.cost - slow.cost) / (fast.speed - slow.speed);
      const double cost = slow.cost + worth * (has - slow.speed);
      const bool same = line.has_value() && cost <= least * (1 + kSameCost) &&
                        worth > line->worth;
      if (line.has_value() && cost >= least && !same) continue;
      least = line.has_value() ? std::min(least, cost) : cost;
      line = Line{worth, worth * slow.speed - slow.cost};
    }
  }
  return line;
}

// The columns that are equally good for one job.
struct JobTies {
  uint64_t free = 0;         // those that cost nothing (bit j)
  int freedom = 0;           // dimensions of what it can choose
  std::vector<double> kind;  // those that are equal here exchange nothing
};

JobTies TiesOf(const WaterEnd& end, std::span<const double> prices, size_t job,
               std::vector<Choice>& choices) {
  const PriceJobs& jobs = end.jobs;
  choices.assign(1, Choice{});
  for (size_t j = 0; j < jobs.types; ++j) {
    choices.push_back(
        {jobs.Throughput(job, j), jobs.accelerators[job] * prices[j]});
  }
  JobTies ties;
  const std::optional<Line> line = LineAt(choices, end.has[job]);
  if (!line.has_value()) return ties;
  int points = line->time <= kTieSlack * line->worth * end.has[job] ? 1 : 0;
  std::set<double> speeds;
  if (points > 0) speeds.insert(0);
  for (size_t j = 0; j < jobs.types; ++j) {
    const auto& [speed, cost] = choices[j + 1];
    const double paid = cost + line->time;
    const double earned = line->worth * speed;
    if (speed <= 0 || paid - earned > kTieSlack * (paid + earned)) continue;
    // Of free columns only the fastest are among them: any of those.
    const bool another = cost > 0 || ties.free == 0;
    if (cost <= 0) ties.free |= uint64_t{1} << j;
    points += another ? 1 : 0;
    speeds.insert(speed);
    ties.kind.insert(ties.kind.end(), {static_cast<double>(j), speed});
  }
  ties.kind.insert(ties.kind.end(), {jobs.accelerators[job], end.has[job]});
  ties.freedom = points - (speeds.size() > 1 ? 2 : 1);
  return ties;
}

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

bool ExchangeMatters(const WaterEnd& end) {
  const std::vector<double> prices = PricesOfColumns(end.jobs, end.scarcity);
  const std::vector<bool> free = FreeTypes(end.jobs, end.scarcity);
  std::vector<Choice> choices;
  std::set<uint64_t> left;  // free columns of frozen jobs that have a choice
  std::set<std::vector<double>> kinds;
  int freedom = 0;
  for (size_t m = 0; m < end.has.size(); ++m) {
    if (RisesOn(end.has[m], FastestFree(end.jobs, free, m))) continue;
    const JobTies ties = TiesOf(end, prices, m, choices);
    if (ties.freedom <= 0) continue;
    left.insert(ties.free);
    if (kinds.insert(ties.kind).second) freedom += ties.freedom;
  }
  const auto scarce = std::ranges::count_if(
      end.scarcity, [](double price) { return price > 0; });
  return freedom >= scarce && left.size() >= 2;
}

}  // namespace gavel::policy
