#include "coordinator/workload/price_series.h"

#include <algorithm>
#include <iterator>

#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Google's in 2020, which the original has in its code.
constexpr std::string_view kGcpName = "gcp";
constexpr std::string_view kGcpPrices = "v100=0.74,p100=0.43,k80=0.135";

constexpr NumberRange kPrice = {.max = 1e9};
constexpr NumberRange kPriceTime = {.max = 1e12};

}  // namespace

absl::StatusOr<PriceSeries> PriceSeries::Constant(std::string_view prices) {
  PriceSeries series;
  GAVEL_ASSIGN_OR_RETURN(
      const auto parts,
      ParseNamedNumbers(prices == kGcpName ? kGcpPrices : prices, kPrice,
                        kGcpPrices));
  for (const auto& [type, price] : parts) {
    if (!IsValidName(type)) {
      return absl::InvalidArgumentError(RefusalOfType(type));
    }
    series.prices_[type].emplace(0, price);
  }
  return series;
}

absl::StatusOr<PriceSeries> PriceSeries::Parse(std::string_view csv,
                                               std::string_view source) {
  PriceSeries series;
  absl::Status status;
  CsvReader reader(csv, source, status);
  const size_t time = reader.RequireColumn({"time_s"});
  const size_t type = reader.RequireColumn({"type"});
  const size_t price = reader.RequireColumn({"price"});
  reader.RefuseOtherColumns();
  while (reader.NextRow()) {
    const std::string_view name = reader.Text(type);
    if (!IsValidName(name)) reader.Fail(type, RefusalOfType(name));
    const double time_s = reader.Number(time, kPriceTime);
    if (!series.prices_[std::string(name)]
             .emplace(time_s, reader.Number(price, kPrice))
             .second) {
      reader.Fail(time, StrCat(name, " has two prices from ", reader.Text(time),
                               " s on; remove one"));
    }
  }
  GAVEL_RETURN_IF_ERROR(status);
  if (series.empty()) {
    return absl::InvalidArgumentError(
        StrCat(source,
               ":1:1: there are no prices; write a line for each "
               "change below the header time_s,type,price"));
  }
  series.DropWhatDoesNotChange();
  return series;
}

void PriceSeries::DropWhatDoesNotChange() {
  for (auto& [type, prices] : prices_) {
    for (auto it = std::next(prices.begin()); it != prices.end();) {
      const bool changes = it->second != std::prev(it)->second;
      it = changes ? std::next(it) : prices.erase(it);
    }
  }
}

std::vector<std::string> PriceSeries::Types() const {
  std::vector<std::string> types;
  for (const auto& [type, prices] : prices_) types.push_back(type);
  return types;
}

double PriceSeries::At(std::string_view type, Time time) const {
  const auto found = prices_.find(type);
  if (found == prices_.end()) return 0;
  const std::map<Time, double>& prices = found->second;
  const auto next = prices.upper_bound(time);
  return next == prices.begin() ? next->second : std::prev(next)->second;
}

Time PriceSeries::NextChange(Time time) const {
  Time change = kNever;
  for (const auto& [type, prices] : prices_) {
    auto next = prices.upper_bound(time);
    // The first price holds before its time, too.
    if (next == prices.begin()) ++next;
    if (next != prices.end()) change = std::min(change, next->first);
  }
  return change;
}

}  // namespace gavel
