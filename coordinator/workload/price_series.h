// Prices of accelerators over time. Given text, not files. A value, thread-safe
// once parsed.
#ifndef GAVEL_COORDINATOR_WORKLOAD_PRICE_SERIES_H_
#define GAVEL_COORDINATOR_WORKLOAD_PRICE_SERIES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/units.h"

namespace gavel {

class PriceSeries {
 public:
  // No prices: all 0, for ever.
  PriceSeries() = default;
  // Constant ones, "v100=0.74,p100=0.43" or "gcp": those of the original, in
  // dollars per GPU and hour (v100 0.74, p100 0.43, k80 0.135).
  // INVALID_ARGUMENT names the part that is wrong.
  static absl::StatusOr<PriceSeries> Constant(std::string_view prices);
  // CSV with the header "time_s,type,price" (in any order), price per
  // accelerator and hour from that time on. INVALID_ARGUMENT as
  // "SOURCE:LINE:COLUMN: what; remedy": negative, NaN, missing fields.
  static absl::StatusOr<PriceSeries> Parse(std::string_view csv,
                                           std::string_view source);

  bool empty() const { return prices_.empty(); }
  bool Has(std::string_view type) const { return prices_.contains(type); }
  std::vector<std::string> Types() const;
  // Before its first price a type has that one; one that is not named: 0.
  double At(std::string_view type, Time time) const;
  // When the next price of any type changes after `time`; kNever: never.
  Time NextChange(Time time) const;

 private:
  void DropWhatDoesNotChange();

  // By type: each price from its time on, never the same twice in a row.
  std::map<std::string, std::map<Time, double>, std::less<>> prices_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_PRICE_SERIES_H_
