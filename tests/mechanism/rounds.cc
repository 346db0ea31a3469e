#include "tests/mechanism/rounds.h"

#include <numeric>

#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

double Sum(const std::vector<double>& row) {
  return std::accumulate(row.begin(), row.end(), 0.0);
}

}  // namespace

Rounds::Rounds(const Cluster& cluster, std::vector<RoundUnit> the_units)
    : units(std::move(the_units)), cluster_(cluster) {
  for (const RoundUnit& unit : units) {
    meant_s_[unit.unit].assign(cluster.types().size(), 0);
    total_s_[unit.unit].assign(cluster.types().size(), 0);
  }
}

void Rounds::SetOut() {
  const size_t types = cluster_.types().size();
  for (RoundUnit& unit : units) {
    received.Rows(unit.unit, types, unit.time_received_s, unit.deficit_s);
  }
}

RoundAssignment Rounds::Run(const RoundOptions& options) {
  SetOut();
  RoundAssignment assignment = PlanRound(cluster_, units, options);
  EXPECT_EQ(RoundErrors(cluster_, units, assignment), "");
  ++rounds_;
  for (const RoundUnit& unit : units) {
    const auto found = assignment.find(unit.unit);
    const std::vector<AcceleratorId> next = found == assignment.end()
                                                ? std::vector<AcceleratorId>()
                                                : found->second;
    Count(unit, next);
  }
  Hold(assignment, units);
  for (const RoundUnit& unit : units) Book(unit, unit.holds);
  return assignment;
}

void Rounds::Run(const RoundOptions& options, int rounds) {
  for (int round = 0; round < rounds; ++round) Run(options);
}

void Rounds::Count(const RoundUnit& unit,
                   const std::vector<AcceleratorId>& next) {
  if (unit.holds.empty() || next == unit.holds) return;
  ++changes_;
  lost_s_ += unit.scale_factor *
             (next.empty() ? unit.preempt_cost_s : unit.move_cost_s);
  if (next.empty()) return;
  const auto type = static_cast<size_t>(cluster_.TypeOf(next.front()));
  if (TypeHeld(cluster_, unit) == type) ++moves_within_type_;
}

void Rounds::Book(const RoundUnit& unit,
                  const std::vector<AcceleratorId>& next) {
  std::vector<double>& meant_s = meant_s_[unit.unit];
  std::vector<double>& total_s = total_s_[unit.unit];
  if (!next.empty()) {
    auto type = static_cast<size_t>(cluster_.TypeOf(next.front()));
    if (unit.claimed != kNoIndex) type = unit.claimed;
    received.Add(unit.unit, type, kRound_s);
    total_s[type] += kRound_s;
  }
  for (size_t j = 0; j < unit.share.size(); ++j) {
    received.Owe(unit.unit, j, unit.share[j] * kRound_s);
    meant_s[j] += unit.share[j] * kRound_s;
    worst_debt_s_ = std::max(worst_debt_s_, meant_s[j] - total_s[j]);
  }
}

double Rounds::Share(const RoundUnit& unit, size_t type) const {
  return total_s_.at(unit.unit)[type] / (rounds_ * kRound_s);
}

double Rounds::WorstShare(double share_min) const {
  double worst = 1;
  for (const auto& [unit, meant_s] : meant_s_) {
    if (Sum(meant_s) < share_min * rounds_ * kRound_s) continue;
    worst = std::min(worst, Sum(total_s_.at(unit)) / Sum(meant_s));
  }
  return worst;
}

}  // namespace gavel::testing
