// Passes over many jobs (price_pass.h) by a search whose prices move less and
// less: near where it is, nearly all jobs choose as they did, and what they use
// together is a polynomial of the level. So it keeps boxes of prices and
// levels, each within the one before and with fewer jobs that are still open,
// and sums over the jobs of the innermost box that holds a point. Exact, to
// rounding, everywhere. Called by the searches of the price method. Borrows the
// pass; not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_ZOOM_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_ZOOM_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel {

class PriceZoom {
 public:
  PriceZoom(const PricePass& pass, std::span<const double> capacity,
            PassVersion version);
  ~PriceZoom();
  PriceZoom(const PriceZoom&) = delete;
  PriceZoom& operator=(const PriceZoom&) = delete;

  // As SumPass.
  PriceSums operator()(double level, std::span<const double> prices);

  // Points are expected within `part` of this one: of the level, and of the
  // worth of all accelerators.
  void Expect(double level, std::span<const double> prices, double part);

  // Jobs that were looked at so far, in passes over all of them.
  double work() const { return work_; }

 private:
  struct Box;
  struct Point {
    double level = 0;
    std::vector<double> prices;
  };

  const PricePass& PassOfBox(size_t depth) const;
  double SizeOfBox(size_t depth) const;
  bool Holds(const Box& box, const Point& point) const;
  size_t Depth(const Point& point) const;
  void Remember(const Point& point);
  void Narrow(size_t depth, const Point& point);
  void Add(size_t depth, const Point& center, double level_radius,
           std::vector<double> radius);
  double Size(const Point& center, double level_radius,
              std::span<const double> radius) const;

  static constexpr size_t kRecent = 4;

  const PricePass& pass_;
  std::span<const double> capacity_;
  PassVersion version_;
  std::vector<std::unique_ptr<Box>> boxes_;  // outermost first
  std::array<Point, kRecent> recent_;
  size_t points_ = 0;
  double work_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_ZOOM_H_
