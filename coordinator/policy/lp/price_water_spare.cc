#include "coordinator/policy/lp/price_water_spare.h"

#include <algorithm>

#include "coordinator/policy/lp/price_proof.h"

namespace gavel {
namespace {

// A job that could have this much more is not held back.
constexpr double kMoreMin = 1e-9;
// Time is given up where the job would have no more than this part of what it
// has, were it always there, ...
constexpr double kSlowMax = 1e-2;
// ... and that is so many times as large a part of the accelerators as it is a
// part of the level.
constexpr double kGainMin = 1e4;

size_t Within(const PriceJobs& jobs, size_t column) {
  return jobs.within.empty() ? column : jobs.within[column];
}

// If all who rise on have all that they can have where each is fastest.
std::vector<bool> WantedTypes(const PricePass& pass, const WaterEnd& end,
                              const std::vector<bool>& free) {
  const PriceJobs& jobs = end.jobs;
  std::vector<double> asked(jobs.types, 0.0);
  const auto ask = [&](size_t job, size_t j, double time) {
    const double accelerators = jobs.accelerators[job] * time;
    asked[j] += accelerators;
    if (Within(jobs, j) != j) asked[Within(jobs, j)] += accelerators;
  };
  for (size_t m = 0; m < end.has.size(); ++m) {
    const double most = FastestFree(jobs, free, m);
    const bool rises = RisesOn(end.has[m], most);
    for (size_t j = 0; j < jobs.types; ++j) {
      if (!rises) {
        ask(m, j, end.shares[m * jobs.types + j]);
      } else if (free[j] && jobs.Throughput(m, j) >= most) {
        ask(m, j, std::min(pass.c[m], most) / most);
        break;
      }
    }
  }
  std::vector<bool> wanted(jobs.types, false);
  for (size_t j = 0; j < jobs.types; ++j) {
    const size_t whole = Within(jobs, j);
    wanted[j] = free[j] && (asked[j] > jobs.capacity[j] ||
                            asked[whole] > jobs.capacity[whole]);
  }
  return wanted;
}

// What the job does on the wanted columns, and could do on the others.
struct OnWanted {
  double part = 0;     // of the accelerators of one of them
  double fastest = 0;  // of those that it uses
  double fastest_elsewhere = 0;
};

OnWanted LookAt(const WaterEnd& end, size_t job) {
  OnWanted found;
  for (size_t j = 0; j < end.jobs.types; ++j) {
    const double speed = end.jobs.Throughput(job, j);
    const double share = end.shares[job * end.jobs.types + j];
    if (!end.wanted[j]) {
      found.fastest_elsewhere = std::max(found.fastest_elsewhere, speed);
      continue;
    }
    if (share <= 0) continue;
    const double held = end.jobs.accelerators[job] * share;
    found.part = std::max(found.part, held / end.jobs.capacity[j]);
    found.fastest = std::max(found.fastest, speed);
  }
  return found;
}

// What the job alone costs at least, at `prices` of columns, on those that it
// is not kept off.
double CostOf(const PricePass& pass, const WaterEnd& end, size_t job,
              std::span<const double> prices,
              const std::vector<bool>& kept_off) {
  PriceJobs one = MakePriceJobs(1, end.jobs.capacity);
  one.accelerators[0] = end.jobs.accelerators[job];
  for (size_t j = 0; j < one.types; ++j) {
    if (!kept_off[j]) one.Throughput(0, j) = end.jobs.Throughput(job, j);
  }
  PriceDemand demand;
  demand.a = {pass.a[job]};
  demand.c = {pass.c[job]};
  PadDemand(one, &demand);
  return LeastCostOf(PassOf(one, demand), end.level, prices).cost;
}

}  // namespace

std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity) {
  std::vector<bool> free(jobs.types);
  for (size_t j = 0; j < jobs.types; ++j) {
    free[j] = scarcity[j] <= 0 && scarcity[Within(jobs, j)] <= 0;
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

void FindSpare(const PricePass& pass, WaterEnd* end) {
  const std::vector<bool> free = FreeTypes(end->jobs, end->scarcity);
  end->wanted = WantedTypes(pass, *end, free);
  if (std::ranges::find(end->wanted, true) == end->wanted.end()) return;
  const std::vector<double> prices = PricesOfColumns(end->jobs, end->scarcity);
  const std::vector<bool> nowhere(end->jobs.types, false);
  double of_level = 0;  // what all of it costs
  for (size_t m = 0; m < end->has.size(); ++m) {
    if (RisesOn(end->has[m], FastestFree(end->jobs, free, m))) continue;
    const OnWanted found = LookAt(*end, m);
    if (found.part <= 0 || found.fastest > kSlowMax * end->has[m] ||
        found.fastest_elsewhere < end->has[m]) {
      continue;
    }
    if (of_level == 0) {
      of_level = end->level * LeastCostOf(pass, end->level, prices).slope;
    }
    const double more = CostOf(pass, *end, m, prices, end->wanted) -
                        CostOf(pass, *end, m, prices, nowhere);
    if (more <= of_level * std::min(kGivenUpMax, found.part / kGainMin)) {
      end->spare.push_back({more / of_level, m});
    }
  }
  std::ranges::sort(end->spare, {}, &WaterSpare::cost);
}

}  // namespace gavel
