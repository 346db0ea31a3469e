#include "coordinator/policy/lp/price_zoom.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gavel {
namespace {

// Fewer open jobs than this are summed faster than split.
constexpr size_t kSplitFrom = 512;
// A box is this many times as wide as the last points are apart,
constexpr double kRoom = 2;
// and at most this part of the one around it.
constexpr double kShrink = 0.4;
// Levels are known better than prices, to this part.
constexpr double kLevelPart = 0.5;
// In a larger box than this most jobs are open.
constexpr double kLargest = 0.1;
// Above 0, so that what never moved may move by a rounding.
constexpr double kRadiusMin = 1e-13;

}  // namespace

struct PriceZoom::Box {
  double level = 0;
  double level_radius = 0;
  std::vector<double> prices;
  std::vector<double> radius;
  double size = 0;
  PriceSettled settled;
  PriceJobs jobs;  // that are open
  PriceDemand demand;
  std::vector<double> gain;
  PricePass pass;
};

namespace {

std::vector<double> Picked(const double* from, std::span<const uint32_t> jobs) {
  std::vector<double> values;
  if (from == nullptr) return values;
  values.reserve(jobs.size() + kPriceLanes);
  for (const uint32_t m : jobs) values.push_back(from[m]);
  return values;
}

PriceJobs PickedJobs(const PricePass& pass, std::span<const double> capacity,
                     std::span<const uint32_t> picked) {
  PriceJobs jobs =
      MakePriceJobs(picked.size(), {capacity.begin(), capacity.end()});
  for (size_t i = 0; i < picked.size(); ++i) {
    const size_t m = picked[i];
    jobs.accelerators[i] = pass.accelerators[m];
    const double* from = pass.throughputs +
                         m / kPriceLanes * pass.types * kPriceLanes +
                         m % kPriceLanes;
    double* to = &jobs.Throughput(i, 0);
    for (size_t j = 0; j < pass.types; ++j) {
      to[j * kPriceLanes] = from[j * kPriceLanes];
    }
  }
  return jobs;
}

// What settled jobs use and pay at a level `away` from that of their box.
void AddSettled(const PriceSettled& settled, size_t terms, double away,
                std::span<const double> prices, PriceSums* sums) {
  for (size_t j = 0; j < prices.size(); ++j) {
    const double* usage = settled.usage[j];
    double value = 0;
    double slope = 0;
    for (size_t k = terms; k-- > 0;) {
      slope = slope * away + value;
      value = value * away + usage[k];
    }
    sums->usage[j] += value;
    sums->cost += prices[j] * value;
    sums->slope += prices[j] * slope;
  }
  sums->cost -= settled.gain;
}

}  // namespace

PriceZoom::PriceZoom(const PricePass& pass, std::span<const double> capacity,
                     PassVersion version)
    : pass_(pass), capacity_(capacity), version_(version) {}

PriceZoom::~PriceZoom() = default;

const PricePass& PriceZoom::PassOfBox(size_t depth) const {
  return depth == 0 ? pass_ : boxes_[depth - 1]->pass;
}

double PriceZoom::SizeOfBox(size_t depth) const {
  return depth == 0 ? kLargest : boxes_[depth - 1]->size;
}

// Relative: of the level, and of what all accelerators are worth.
double PriceZoom::Size(const Point& center, double level_radius,
                       std::span<const double> radius) const {
  double width = 0;
  double worth = 0;
  for (size_t j = 0; j < radius.size(); ++j) {
    width += radius[j] * capacity_[j];
    worth += center.prices[j] * capacity_[j];
  }
  const double size =
      worth > 0 ? width / worth : std::numeric_limits<double>::infinity();
  return level_radius > 0
             ? std::max(size, level_radius / std::abs(center.level))
             : size;
}

bool PriceZoom::Holds(const Box& box, const Point& point) const {
  if (!(std::abs(point.level - box.level) <= box.level_radius)) return false;
  for (size_t j = 0; j < box.prices.size(); ++j) {
    if (!(std::abs(point.prices[j] - box.prices[j]) <= box.radius[j])) {
      return false;
    }
  }
  return true;
}

// How many boxes hold the point.
size_t PriceZoom::Depth(const Point& point) const {
  size_t depth = 0;
  while (depth < boxes_.size() && Holds(*boxes_[depth], point)) ++depth;
  return depth;
}

void PriceZoom::Remember(const Point& point) {
  recent_[points_++ % kRecent] = point;
}

// A box around the last points, if it would be much smaller than that at
// `depth`.
void PriceZoom::Narrow(size_t depth, const Point& point) {
  if (points_ < kRecent) return;
  double level_radius = 0;
  std::vector<double> radius(point.prices.size(), 0.0);
  for (const Point& recent : recent_) {
    level_radius = std::max(level_radius, std::abs(recent.level - point.level));
    for (size_t j = 0; j < radius.size(); ++j) {
      radius[j] =
          std::max(radius[j], std::abs(recent.prices[j] - point.prices[j]));
    }
  }
  if (level_radius > 0) level_radius += kRadiusMin * std::abs(point.level);
  for (size_t j = 0; j < radius.size(); ++j) {
    radius[j] += kRadiusMin / capacity_[j];
  }
  if (kRoom * Size(point, level_radius, radius) > kShrink * SizeOfBox(depth)) {
    return;
  }
  for (double& one : radius) one *= kRoom;
  Add(depth, point, kRoom * level_radius, std::move(radius));
}

void PriceZoom::Add(size_t depth, const Point& center, double level_radius,
                    std::vector<double> radius) {
  const PricePass& outer = PassOfBox(depth);
  if (outer.blocks * kPriceLanes < kSplitFrom) return;
  auto box = std::make_unique<Box>();
  box->level = center.level;
  box->level_radius = level_radius;
  box->prices = center.prices;
  box->radius = std::move(radius);
  box->size = Size(center, level_radius, box->radius);
  std::vector<uint32_t> open;
  box->settled = SplitPass(
      outer, {box->level, level_radius, box->prices.data(), box->radius.data()},
      &open, version_);
  work_ +=
      static_cast<double>(outer.blocks) / static_cast<double>(pass_.blocks);
  box->jobs = PickedJobs(outer, capacity_, open);
  box->demand = {outer.curve, Picked(outer.a, open), Picked(outer.b, open),
                 Picked(outer.c, open)};
  PadDemand(box->jobs, &box->demand);
  box->pass = PassOf(box->jobs, box->demand);
  if (outer.gain != nullptr) {
    box->gain = Picked(outer.gain, open);
    box->gain.resize(box->jobs.accelerators.size(), 0.0);
    box->pass.gain = box->gain.data();
    box->pass.worth = outer.worth;
  }
  boxes_.resize(depth);
  boxes_.push_back(std::move(box));
}

void PriceZoom::Expect(double level, std::span<const double> prices,
                       double part) {
  std::vector<double> radius(prices.size());
  for (size_t j = 0; j < radius.size(); ++j) {
    // Prices of types that are nearly free move less than all others.
    radius[j] = part * (prices[j] + part / capacity_[j]);
  }
  Add(0, {level, {prices.begin(), prices.end()}},
      kLevelPart * part * std::abs(level), std::move(radius));
}

PriceSums PriceZoom::operator()(double level, std::span<const double> prices) {
  const Point point = {level, {prices.begin(), prices.end()}};
  Remember(point);
  size_t depth = Depth(point);
  Narrow(depth, point);
  depth = Depth(point);
  const PricePass& pass = PassOfBox(depth);
  PriceSums sums = SumPass(pass, level, prices, version_);
  work_ += static_cast<double>(pass.blocks) / static_cast<double>(pass_.blocks);
  const size_t terms = pass.curve == DemandCurve::kFinish ? kPriceTerms : 2;
  for (size_t i = 0; i < depth; ++i) {
    AddSettled(boxes_[i]->settled, terms, level - boxes_[i]->level, prices,
               &sums);
  }
  return sums;
}

}  // namespace gavel
