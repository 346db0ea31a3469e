#include "coordinator/mechanism/debts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gavel {
namespace {

bool Served(const RoundUnit& unit) {
  return std::any_of(unit.time_received_s.begin(), unit.time_received_s.end(),
                     [](double seconds) { return seconds > 0; });
}

// Time received / share of all units together, by type.
std::vector<double> CommonSeconds(const RoundTable& table) {
  const size_t types = table.cluster.types().size();
  std::vector<double> common_s(types, 0.0);
  for (size_t j = 0; j < types; ++j) {
    double received_s = 0;
    double share = 0;
    for (const RoundUnit& unit : table.units) {
      if (At(unit.share, j) <= kShareMin) continue;
      received_s += At(unit.time_received_s, j);
      share += At(unit.share, j);
    }
    if (share > 0) common_s[j] = received_s / share;
  }
  return common_s;
}

}  // namespace

double LeadSeconds(double cost_s, double round_duration_s) {
  if (!(cost_s > 0) || !(round_duration_s > 0)) return 0;
  const double horizon_s = kLeadHorizonRounds * round_duration_s;
  return std::min(std::sqrt(2 * cost_s * horizon_s),
                  kLeadRoundsMax * round_duration_s);
}

Debts::Debts(const RoundTable& table, double round_duration_s)
    : table_(table),
      round_duration_s_(round_duration_s),
      served_(table.jobs, false) {
  bool deficits = true;
  for (size_t u = 0; u < table.units.size(); ++u) {
    deficits = deficits && !table.units[u].deficit_s.empty();
    if (!Served(table.units[u])) continue;
    served_[table.rows[u].job] = served_[table.rows[u].partner] = true;
  }
  if (!deficits) common_s_ = CommonSeconds(table);
}

bool Debts::IsNew(uint32_t unit) const {
  const RoundRow& row = table_.rows[unit];
  return !served_[row.job] || !served_[row.partner];
}

double Debts::Debt(uint32_t unit, size_t type) const {
  const RoundUnit& entry = table_.units[unit];
  if (!entry.deficit_s.empty()) return At(entry.deficit_s, type);
  return At(entry.share, type) * At(common_s_, type) -
         At(entry.time_received_s, type);
}

// With the lead of a change that costs so much.
double Debts::OwnStanding(uint32_t unit, size_t type, double cost_s) const {
  const double share = At(table_.units[unit].share, type);
  const double lead_s = LeadSeconds(cost_s, round_duration_s_) *
                        std::min(1.0, share / kLeadShareMin);
  return -(Debt(unit, type) + lead_s) / share;
}

double Debts::Standing(uint32_t unit, size_t type) const {
  if (IsNew(unit)) return -std::numeric_limits<double>::infinity();
  const RoundUnit& entry = table_.units[unit];
  const uint32_t held = table_.rows[unit].held;
  if (held == type) return OwnStanding(unit, type, entry.preempt_cost_s);
  const double standing = -Debt(unit, type) / At(entry.share, type);
  if (held == kNone && entry.owed_part > kOwedPartMax) {
    return OwnStanding(unit, type, entry.preempt_cost_s);
  }
  if (held == kNone || At(entry.share, held) <= kShareMin) return standing;
  const double stay = OwnStanding(unit, held, entry.preempt_cost_s);
  const double move = OwnStanding(
      unit, held, std::max(entry.preempt_cost_s, entry.move_cost_s));
  if (standing >= stay || standing < move) return standing;
  return std::nextafter(stay, std::numeric_limits<double>::infinity());
}

bool Debts::StaysForNow(uint32_t unit) const {
  const RoundUnit& entry = table_.units[unit];
  const uint32_t held = table_.rows[unit].held;
  if (held == kNone || At(entry.share, held) > kShareMin) return false;
  const double bound_s = std::min(
      entry.move_cost_s, LeadSeconds(entry.move_cost_s, round_duration_s_));
  for (size_t j = 0; j < entry.share.size(); ++j) {
    if (At(entry.share, j) <= kShareMin) continue;
    if (!(Debt(unit, j) < bound_s)) return false;
  }
  return held < entry.usable.size() && entry.usable[held];
}

double Debts::LeftoverStanding(uint32_t unit, size_t type) const {
  const RoundUnit& entry = table_.units[unit];
  double standing = 0;
  for (size_t j = 0; j < table_.cluster.types().size(); ++j) {
    standing -= Debt(unit, j);
  }
  if (table_.rows[unit].held != type) return standing;
  return standing - LeadSeconds(entry.preempt_cost_s, round_duration_s_);
}

}  // namespace gavel
