#include "coordinator/mechanism/debts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace gavel {
namespace {

bool Served(const RoundTable& table, size_t unit) {
  const std::span<const double> row = table.received_s(unit);
  return std::any_of(row.begin(), row.end(),
                     [](double seconds) { return seconds > 0; });
}

}  // namespace

double LeadSeconds(double cost_s, double round_duration_s) {
  if (!(cost_s > 0) || !(round_duration_s > 0)) return 0;
  const double horizon_s = kLeadHorizonRounds * round_duration_s;
  return std::min(std::sqrt(2 * cost_s * horizon_s),
                  kLeadRoundsMax * round_duration_s);
}

Debts::Debts(const RoundView& view, double round_duration_s)
    : view_(view),
      table_(view.table()),
      round_duration_s_(round_duration_s),
      served_(view.jobs(), false) {
  for (size_t u = 0; u < table_.size(); ++u) {
    if (!Served(table_, u)) continue;
    served_[view.Job(u)] = served_[view.Partner(u)] = true;
  }
}

bool Debts::IsNew(size_t unit) const {
  return !served_[view_.Job(unit)] || !served_[view_.Partner(unit)];
}

// With the lead of a change that costs so much.
double Debts::OwnStanding(size_t unit, size_t type, double cost_s) const {
  const double share = table_.share(unit)[type];
  const double lead_s = LeadSeconds(cost_s, round_duration_s_) *
                        std::min(1.0, share / kLeadShareMin);
  return -(Debt(unit, type) + lead_s) / share;
}

double Debts::Standing(size_t unit, size_t type) const {
  if (IsNew(unit)) return -std::numeric_limits<double>::infinity();
  const RoundTable::Costs& costs = table_.costs(unit);
  const uint32_t held = view_.Claimed(unit);
  if (held == type) return OwnStanding(unit, type, costs.preempt_s);
  const std::span<const double> share = table_.share(unit);
  const double standing = -Debt(unit, type) / share[type];
  if (held == kNoIndex && costs.owed_part > kOwedPartMax) {
    return OwnStanding(unit, type, costs.preempt_s);
  }
  if (!HasShare(unit, held)) return standing;
  const double stay = OwnStanding(unit, held, costs.preempt_s);
  const double move =
      OwnStanding(unit, held, std::max(costs.preempt_s, costs.move_s));
  if (standing >= stay || standing < move) return standing;
  return std::nextafter(stay, std::numeric_limits<double>::infinity());
}

bool Debts::StaysForNow(size_t unit) const {
  const uint32_t held = view_.Held(unit);
  if (held == kNoIndex || HasShare(unit, view_.Claimed(unit))) return false;
  const double move_s = table_.costs(unit).move_s;
  const double bound_s =
      std::min(move_s, LeadSeconds(move_s, round_duration_s_));
  for (size_t j = 0; j < view_.types(); ++j) {
    if (!HasShare(unit, static_cast<uint32_t>(j))) continue;
    if (!(Debt(unit, j) < bound_s)) return false;
  }
  return held < view_.types() && table_.usable(unit, held);
}

double Debts::LeftoverStanding(size_t unit, size_t type) const {
  double standing = 0;
  for (size_t j = 0; j < view_.types(); ++j) standing -= Debt(unit, j);
  if (view_.Held(unit) != type) return standing;
  return standing -
         LeadSeconds(table_.costs(unit).preempt_s, round_duration_s_);
}

bool Debts::HasShare(size_t unit, uint32_t type) const {
  return type < view_.types() && table_.share(unit)[type] > kShareMin;
}

}  // namespace gavel
