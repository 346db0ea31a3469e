#include "coordinator/engine/type_worth.h"

#include <algorithm>

#include "coordinator/engine/type_names.h"

namespace gavel {
namespace {

std::vector<double> StepsTogether(const WorthTerms& terms,
                                  const ShareUnit& unit) {
  std::vector<double> steps_per_s;
  for (const std::string& type : terms.types) {
    const auto of = [&](JobId job, JobId beside) {
      return terms.throughputs.Together(job, beside, type).value_or(0);
    };
    steps_per_s.push_back(of(unit.job, unit.partner) +
                          of(unit.partner, unit.job));
  }
  return steps_per_s;
}

// As in the policy's problem.
void DivideByCost(const WorthTerms& terms, std::vector<double>& worth) {
  std::map<std::string, double> prices(terms.prices.begin(),
                                       terms.prices.end());
  NameInFull(terms.types, &prices);
  for (size_t type = 0; type < worth.size(); ++type) {
    const auto price = prices.find(terms.types[type]);
    if (price != prices.end() && price->second > 0) {
      worth[type] /= price->second;
    }
  }
}

}  // namespace

void AddWorth(TypeWorth worth, const WorthTerms& terms, const ShareUnit& unit,
              const Job& job, RoundUnit& row) {
  // Nobody moves pairs, and their leftovers go by time received.
  const bool unused = worth == TypeWorth::kSpeed && unit.packed();
  if (worth == TypeWorth::kAlike || unused || terms.types.empty()) return;
  row.worth = unit.packed() ? StepsTogether(terms, unit) : job.steps_per_s;
  row.worth.resize(terms.types.size(), 0);
  double one = job.scale_factor;
  if (worth == TypeWorth::kSpeed) one = std::ranges::max(row.worth);
  if (!(one > 0)) return;
  for (double& steps_per_s : row.worth) steps_per_s /= one;
  if (worth == TypeWorth::kThroughputPerCost) DivideByCost(terms, row.worth);
}

}  // namespace gavel
