// The part of price_pass.h that looks at a whole box of prices at once: which
// jobs choose the same edge of their hull everywhere in it. Included after
// price_pass_body.h, under the same rules.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_SPLIT_BODY_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_SPLIT_BODY_H_

#include "coordinator/policy/lp/price_pass_body.h"

namespace gavel {
namespace {

// Of what is compared: where rounding could decide, a job is open.
constexpr double kSplitSlack = 1e-11;
// A demand of kFinish is a power series in this part at most.
constexpr double kSeriesMax = 0.05;

// A corner of a hull: a type, or none (the origin).
struct Corner {
  Lanes type;
  Lanes rate;
  Lanes cost;
  Lanes radius;  // of its price
  Lanes gain;    // steps that count
};

// kWidth jobs in a box: from `from`, `part` = (demand - from.rate) / run of the
// way to `to`. A job that is not `moving` stays on `from`.
struct Choice {
  Corner from;
  Corner to;
  Lanes per_step;  // 1 / run; 0 for one that stays
  Demand demand;
  Mask settled;
  Lanes part;
};

inline Lanes Absolute(Lanes value) {
  return Select(value < All(0), -value, value);
}

template <bool kGain>
inline __attribute__((always_inline)) Lanes CostOf(const PricePass& pass,
                                                   const double* prices,
                                                   size_t j, Lanes throughput,
                                                   Lanes gain) {
  const Lanes price = All(prices[j]);
  return kGain ? price - gain * (All(pass.worth[j]) * throughput) : price;
}

// A choice is the best one where every other corner lies above the line of its
// edge. How far above is linear in the prices, so it is worst in a corner of
// the box.
template <bool kGain>
inline __attribute__((always_inline)) Choice ChoiceIn(const PricePass& pass,
                                                      size_t job,
                                                      const PriceBox& box) {
  const Lanes zero = All(0);
  const Lanes one = All(1);
  const Demand low = DemandAt(pass, job, box.level - box.level_radius);
  const Demand high = DemandAt(pass, job, box.level + box.level_radius);
  Choice choice;
  choice.demand = DemandAt(pass, job, box.level);
  const Walk walk = WalkOf<kGain>(pass, job, choice.demand.rate, box.prices);
  const Lanes gain = kGain ? Load(pass.gain + job) : zero;
  // It demands nothing, or it goes on to the end for what it gains.
  const Mask nothing = walk.to < zero;
  const Mask stays = kGain ? nothing | (walk.part >= one) : nothing;
  Corner from = {Select(stays, walk.to, walk.from), zero, zero, zero, zero};
  Corner to = {walk.to, zero, zero, zero, zero};
  const double* throughputs = pass.throughputs +
                              job / kPriceLanes * pass.types * kPriceLanes +
                              job % kPriceLanes;
  for (size_t j = 0; j < pass.types; ++j) {
    const Lanes throughput = Load(throughputs + j * kPriceLanes);
    const Lanes cost = CostOf<kGain>(pass, box.prices, j, throughput, gain);
    const Lanes type = All(static_cast<double>(j));
    const auto take = [&](Corner* corner) {
      const Mask here = corner->type == type;
      corner->rate = Select(here, throughput, corner->rate);
      corner->cost = Select(here, cost, corner->cost);
      corner->radius = Select(here, All(box.radius[j]), corner->radius);
      if (kGain) {
        const Lanes steps = gain * (All(pass.worth[j]) * throughput);
        corner->gain = Select(here, steps, corner->gain);
      }
    };
    take(&from);
    take(&to);
  }
  const Lanes rise = to.cost - from.cost;
  choice.per_step = Select(stays, zero, one / (to.rate - from.rate));
  Mask settled = True();
  const auto above = [&](Lanes rate, Lanes cost, Lanes radius) {
    const Lanes way = (rate - from.rate) * choice.per_step;
    const Lanes along = way * rise;
    const Lanes margin =
        radius + Absolute(one - way) * from.radius + Absolute(way) * to.radius;
    const Lanes slack =
        All(kSplitSlack) *
        (Absolute(cost) + Absolute(from.cost) + Absolute(along));
    return cost - from.cost - along > margin + slack;
  };
  for (size_t j = 0; j < pass.types; ++j) {
    const Lanes throughput = Load(throughputs + j * kPriceLanes);
    const Lanes cost = CostOf<kGain>(pass, box.prices, j, throughput, gain);
    const Lanes type = All(static_cast<double>(j));
    // Prices are never below 0: without throughput it is never chosen.
    settled = settled &
              ((throughput <= zero) | (from.type == type) | (to.type == type) |
               above(throughput, cost, All(box.radius[j])));
  }
  settled = settled & ((from.type < zero) | above(zero, zero, zero));
  // One that stays has all that it demands; one that moves is on the edge.
  const Lanes first = (low.rate - from.rate) * choice.per_step;
  const Lanes last = (high.rate - from.rate) * choice.per_step;
  settled = settled & ((stays & (high.rate <= from.rate)) |
                       (Not(stays) & (first >= zero) & (last <= one)));
  if (kGain) {
    const Lanes margin =
        from.radius + to.radius +
        All(kSplitSlack) * (Absolute(from.cost) + Absolute(to.cost));
    settled = settled & (stays | (rise > margin));
  } else {
    // Whatever it costs, it demands nothing.
    settled = settled | (nothing & (high.rate <= zero));
  }
  if (pass.curve == DemandCurve::kFinish) {
    const Lanes left =
        All(-box.level) * Load(pass.b + job) - Load(pass.c + job);
    settled = settled & (All(box.level_radius) * Load(pass.b + job) <=
                         All(kSeriesMax) * left);
  } else {
    settled = settled & (low.slope == high.slope);
  }
  choice.from = from;
  choice.to = to;
  choice.settled = settled;
  choice.part = (choice.demand.rate - from.rate) * choice.per_step;
  return choice;
}

// One lane of what settled jobs add to the terms of a type.
inline void AddTerms(double type, const double (*terms)[kWidth], size_t lane,
                     double sign, size_t count, PriceSettled* sums) {
  if (type < 0) return;
  double* usage = sums->usage[static_cast<size_t>(type)];
  for (size_t k = 0; k < count; ++k) usage[k] += sign * terms[k][lane];
}

template <bool kGain>
inline __attribute__((always_inline)) size_t SplitBlocks(const PricePass& pass,
                                                         const PriceBox& box,
                                                         PriceSettled* settled,
                                                         uint32_t* open) {
  const bool finish = pass.curve == DemandCurve::kFinish;
  const size_t count = finish ? kPriceTerms : 2;
  size_t opened = 0;
  for (size_t first = 0; first < pass.blocks; first += kBlocksOfSum) {
    const size_t end =
        first + kBlocksOfSum < pass.blocks ? first + kBlocksOfSum : pass.blocks;
    PriceSettled sums;
    for (size_t job = first * kPriceLanes; job < end * kPriceLanes;
         job += kWidth) {
      const Choice choice = ChoiceIn<kGain>(pass, job, box);
      const Lanes held = Load(pass.accelerators + job);
      Lanes term = held * choice.demand.slope * choice.per_step;
      Lanes ratio = All(0);
      if (finish) {
        const Lanes b = Load(pass.b + job);
        ratio = b / (All(-box.level) * b - Load(pass.c + job));
      }
      double from[kWidth];
      double to[kWidth];
      double there[kWidth];
      double gains[kWidth];
      double holds[kWidth];
      double terms[kPriceTerms][kWidth];
      Store(choice.from.type, from);
      Store(choice.to.type, to);
      Store(Select(choice.settled, All(1), All(0)), there);
      Store(held, holds);
      Store(held * choice.part, terms[0]);
      for (size_t k = 1; k < count; ++k) {
        Store(term, terms[k]);
        term = term * ratio;
      }
      if (kGain) {
        Store(held * (choice.from.gain +
                      choice.part * (choice.to.gain - choice.from.gain)),
              gains);
      }
      for (size_t i = 0; i < kWidth; ++i) {
        if (holds[i] == 0) continue;  // no job
        if (there[i] == 0) {
          open[opened++] = static_cast<uint32_t>(job + i);
          continue;
        }
        if (kGain) sums.gain += gains[i];
        if (from[i] >= 0)
          sums.usage[static_cast<size_t>(from[i])][0] += holds[i];
        AddTerms(from[i], terms, i, -1, count, &sums);
        AddTerms(to[i], terms, i, 1, count, &sums);
      }
    }
    settled->gain += sums.gain;
    for (size_t j = 0; j < pass.types; ++j) {
      for (size_t k = 0; k < count; ++k) {
        settled->usage[j][k] += sums.usage[j][k];
      }
    }
  }
  return opened;
}

// The smallest box of all points; `prices` and `radius` are [J].
inline PriceBox BoxOf(size_t types, const PricePoint* points, size_t count,
                      double* prices, double* radius) {
  const auto size = static_cast<double>(count);
  PriceBox box{0, 0, prices, radius};
  for (size_t k = 0; k < count; ++k) box.level += points[k].level / size;
  for (size_t j = 0; j < types; ++j) {
    prices[j] = 0;
    radius[j] = 0;
    for (size_t k = 0; k < count; ++k) prices[j] += points[k].prices[j] / size;
  }
  const auto widen = [](double value, double center, double* to) {
    const double away = value < center ? center - value : value - center;
    if (away > *to) *to = away;
  };
  for (size_t k = 0; k < count; ++k) {
    widen(points[k].level, box.level, &box.level_radius);
    for (size_t j = 0; j < types; ++j) {
      widen(points[k].prices[j], prices[j], &radius[j]);
    }
  }
  return box;
}

// Adds what kWidth jobs, from the first of these rows on, spend on two types.
inline void Spend(Lanes from, Lanes from_part, Lanes to, Lanes to_part,
                  size_t types, double* rows) {
  double from_of[kWidth];
  double to_of[kWidth];
  double from_parts[kWidth];
  double to_parts[kWidth];
  Store(from, from_of);
  Store(to, to_of);
  Store(from_part, from_parts);
  Store(to_part, to_parts);
  for (size_t i = 0; i < kWidth; ++i) {
    double* row = rows + i * types;
    if (from_of[i] >= 0) row[static_cast<size_t>(from_of[i])] += from_parts[i];
    if (to_of[i] >= 0) row[static_cast<size_t>(to_of[i])] += to_parts[i];
  }
}

// Jobs that are settled in the box of all points need no walk for each.
template <bool kGain>
inline __attribute__((always_inline)) void ShareBlocks(const PricePass& pass,
                                                       const PricePoint* points,
                                                       size_t count,
                                                       double* shares) {
  double prices[kPriceTypesMax];
  double radius[kPriceTypesMax];
  const PriceBox box = BoxOf(pass.types, points, count, prices, radius);
  const size_t jobs = pass.blocks * kPriceLanes;
  for (size_t job = 0; job < jobs; job += kWidth) {
    const Choice choice = ChoiceIn<kGain>(pass, job, box);
    const bool all = !Any(Not(choice.settled));
    double* rows = shares + job * pass.types;
    // Of all points, if all are settled; in the same order as without.
    Lanes from_part = All(0);
    Lanes to_part = All(0);
    for (size_t k = 0; k < count; ++k) {
      const Demand demand = DemandAt(pass, job, points[k].level);
      const Lanes weight = All(points[k].weight);
      const Lanes part = (demand.rate - choice.from.rate) * choice.per_step;
      if (all) {
        from_part = from_part + weight * (All(1) - part);
        to_part = to_part + weight * part;
        continue;
      }
      const Walk walk = WalkOf<kGain>(pass, job, demand.rate, points[k].prices);
      const Mask settled = choice.settled;
      Spend(Select(settled, choice.from.type, walk.from),
            weight * Select(settled, All(1) - part, FromPart(walk)),
            Select(settled, choice.to.type, walk.to),
            weight * Select(settled, part, walk.part), pass.types, rows);
    }
    if (all) {
      Spend(choice.from.type, from_part, choice.to.type, to_part, pass.types,
            rows);
    }
  }
}

void Share(const PricePass& pass, const PricePoint* points, size_t count,
           double* shares) {
  if (pass.gain == nullptr) {
    ShareBlocks<false>(pass, points, count, shares);
  } else {
    ShareBlocks<true>(pass, points, count, shares);
  }
}

size_t Split(const PricePass& pass, const PriceBox& box, PriceSettled* settled,
             uint32_t* open) {
  if (pass.gain == nullptr) {
    return SplitBlocks<false>(pass, box, settled, open);
  }
  return SplitBlocks<true>(pass, box, settled, open);
}

}  // namespace
}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_SPLIT_BODY_H_
