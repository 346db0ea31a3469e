#include "coordinator/mechanism/choice.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "core/radix_sort.h"

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

namespace {

constexpr uint64_t kNoClaim = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kHighest = kNoClaim - 1;

// Candidates are gathered in pieces, as far as there is room for them: at first
// about so many and one and a half times as many as there is room, and then
// four times as many.
constexpr size_t kPieceMin = 64;
constexpr size_t kPieceGrowth = 4;
// A sample of so many units decides where a piece ends.
constexpr size_t kSampleUnits = 4096;
// Units are looked at in blocks of so many.
constexpr size_t kBlockUnits = 1024;

// Relative: types that are worth as much to rounding are alike.
constexpr double kWorthGainMin = 1e-9;
// Each time those move that can; what they leave may be better for others.
constexpr int kUpgradePassesMax = 16;

// Gavel's order, by (time received + head start) / share: the reciprocal of
// section 5.1's priority, up to a factor of the type.
class PriorityKey {
 public:
  PriorityKey(const RoundTable& table, double head_start_s)
      : table_(table), head_start_s_(head_start_s) {}

  uint64_t operator()(size_t u, size_t j) const {
    const double received_s =
        std::max(0.0, table_.received_s(u)[j]) + head_start_s_;
    const uint64_t bits = OrderedBits(received_s / table_.share(u)[j]);
    const bool claims = table_.share(u)[j] > kShareMin && table_.usable(u, j);
    return claims ? bits : kNoClaim;
  }
  // Without a division: nearly all candidates of a large round end here.
  auto Below(uint64_t high) const {
    constexpr double kRounding = 1e-9;
    const double limit = high == kHighest
                             ? std::numeric_limits<double>::infinity()
                             : FromOrderedBits(high) * (1 + kRounding) +
                                   std::numeric_limits<double>::min();
    const size_t types = table_.types();
    const double* received_s = table_.received_s(0).data();
    const double* share = table_.share(0).data();
    return [=, head_start_s = head_start_s_](size_t u, size_t j) {
      return received_s[u * types + j] + head_start_s <=
             limit * share[u * types + j];
    };
  }

 private:
  const RoundTable& table_;
  double head_start_s_;
};

// Any other order.
template <class Function>
class PlainKey {
 public:
  explicit PlainKey(Function key) : key_(std::move(key)) {}
  uint64_t operator()(size_t u, size_t j) const { return key_(u, j); }
  auto Below(uint64_t) const {
    return [](size_t, size_t) { return true; };
  }

 private:
  Function key_;
};

}  // namespace

Choice::Choice(const RoundView& view, const RoundOptions& options)
    : view_(view),
      options_(options),
      room_(view.capacity()),
      scale_factor_min_(std::numeric_limits<int>::max()),
      type_of_(view.table().size(), kNoIndex),
      taken_(view.jobs(), false) {
  for (size_t u = 0; u < view.table().size(); ++u) {
    scale_factor_min_ =
        std::min(scale_factor_min_, view.table().scale_factor(u));
  }
  scale_factor_min_ = std::max(scale_factor_min_, 1);
}

void Choice::KeepRunning() {
  if (view_.table().held().empty()) return;
  for (size_t i = 0; i < view_.table().size(); ++i) {
    const uint32_t u = view_.Ordered(i);
    if (const uint32_t held = view_.Held(u); held != kNoIndex) Take(u, held);
  }
}

void Choice::Take(size_t unit, size_t type) {
  assert(unit < type_of_.size());
  const int scale_factor = view_.table().scale_factor(unit);
  if (type >= room_.size() || scale_factor < 1 || room_[type] < scale_factor ||
      !Free(unit)) {
    return;
  }
  room_[type] -= scale_factor;
  type_of_[unit] = static_cast<uint32_t>(type);
  in_turn_.push_back(static_cast<uint32_t>(unit));
  taken_[view_.Job(unit)] = taken_[view_.Partner(unit)] = true;
}

// With a queue per type, the remainder of one type goes out before the next
// type has its turn, as in the original: its first type is never idle for the
// sake of a share of another.
void Choice::TakeAll() {
  const size_t types = view_.types();
  if (types == 0 || !HasRoom({0, types})) return;
  if (options_.mechanism == MechanismKind::kMoveAware) {
    debts_.emplace(view_, options_.round_duration_s);
  }
  const size_t step = options_.queue == QueueKind::kGlobal ? types : 1;
  for (size_t begin = 0; begin < types; begin += step) {
    TakeByPriority({begin, begin + step});
    if (!options_.work_conserving) continue;
    const bool upgrades =
        step == types && view_.table().has_worth() && types > 1;
    if (upgrades) Upgrade();
    // Among leftovers, jobs alone go first.
    TakeLeftovers({begin, begin + step}, /*packed=*/false);
    if (view_.table().packed()) {
      TakeLeftovers({begin, begin + step}, /*packed=*/true);
    }
    if (upgrades) Upgrade();
  }
}

bool Choice::HasRoom(TypeRange types) const {
  return std::any_of(room_.begin() + static_cast<std::ptrdiff_t>(types.begin),
                     room_.begin() + static_cast<std::ptrdiff_t>(types.end),
                     [&](int room) { return room >= scale_factor_min_; });
}

// Most candidates of a large round are never reached: they are neither kept nor
// sorted.
template <class Key, class Ties>
void Choice::TakeInOrder(TypeRange types, Key key, Ties ties) {
  const auto before = [&](const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key < b.key : ties(a, b);
  };
  size_t piece = kPieceMin;
  for (size_t j = types.begin; j < types.end; ++j) {
    const auto room = static_cast<size_t>(room_[j]);
    piece += room + room / 2;
  }
  uint64_t low = 0;
  while (HasRoom(types)) {
    const uint64_t high = HighestOf(types, key, low, piece);
    Gather(types, key, low, high);
    TakeGathered(types, piece, before);
    if (high == kHighest) return;
    low = high + 1;
    piece *= kPieceGrowth;
  }
}

// A key that about `wanted` candidates from `low` on have or are below.
template <class Key>
uint64_t Choice::HighestOf(TypeRange types, Key key, uint64_t low,
                           size_t wanted) {
  const size_t units = view_.table().size();
  if (units * (types.end - types.begin) <= 2 * wanted) return kHighest;
  const size_t stride = units / kSampleUnits + 1;
  std::vector<uint64_t> sample;
  for (size_t u = 0; u < units; u += stride) {
    if (!Free(u)) continue;
    for (size_t j = types.begin; j < types.end; ++j) {
      const uint64_t k = key(u, j);
      if (k >= low && k != kNoClaim && HasRoom(u, j)) sample.push_back(k);
    }
  }
  // A few more: another pass over all units costs more than they do.
  const size_t index = wanted / stride + 4;
  if (index + index / 4 >= sample.size()) return kHighest;
  const auto nth = sample.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(sample.begin(), nth, sample.end());
  return std::min(*nth, kHighest);
}

// Written without branches on what differs from unit to unit, but those that
// hardly ever go the other way.
template <class Key>
void Choice::Gather(TypeRange types, Key key, uint64_t low, uint64_t high) {
  const size_t units = view_.table().size();
  const size_t width = types.end - types.begin;
  const auto below = key.Below(high);
  std::array<uint32_t, kBlockUnits> near;
  size_t count = 0;
  for (size_t begin = 0; begin < units; begin += kBlockUnits) {
    const size_t end = std::min(units, begin + kBlockUnits);
    size_t near_count = 0;
    for (size_t u = begin; u < end; ++u) {
      bool any = false;
      for (size_t j = types.begin; j < types.end; ++j) any |= below(u, j);
      near[near_count] = static_cast<uint32_t>(u);
      near_count += any ? 1 : 0;
    }
    if (candidates_.size() < count + near_count * width) {
      candidates_.resize(2 * count + near_count * width);
    }
    for (const uint32_t u : std::span(near).first(near_count)) {
      if (!Free(u)) continue;
      for (size_t j = types.begin; j < types.end; ++j) {
        const uint64_t k = key(u, j);
        candidates_[count] = {k, u, static_cast<uint32_t>(j)};
        count += static_cast<size_t>((k >= low) & (k <= high) & HasRoom(u, j));
      }
    }
  }
  candidates_.resize(count);
}

template <class Before>
void Choice::TakeGathered(TypeRange types, size_t piece, Before before) {
  auto next = candidates_.begin();
  while (next != candidates_.end() && HasRoom(types)) {
    auto stop = candidates_.end();
    // Many equal keys.
    if (static_cast<size_t>(stop - next) > 4 * piece) {
      stop = next + static_cast<std::ptrdiff_t>(piece);
      std::nth_element(next, stop, candidates_.end(), before);
    }
    RadixSort(std::span(next, stop), before);
    for (; next != stop; ++next) Take(next->unit, next->type);
    piece *= kPieceGrowth;
  }
}

// Gavel section 5.2, algorithm 1: by priority, what fits, each job once.
void Choice::TakeByPriority(TypeRange types) {
  const RoundTable& table = view_.table();
  const auto ties = [&](const Candidate& a, const Candidate& b) {
    const auto rank = [&](const Candidate& c) {
      return std::tuple(
          -table.deficit_s(c.unit)[c.type], -table.share(c.unit)[c.type],
          view_.Claimed(c.unit) != c.type, view_.Position(c.unit), c.type);
    };
    return rank(a) < rank(b);
  };
  if (!debts_)
    return TakeInOrder(
        types, PriorityKey(table, HeadStartSeconds(options_.round_duration_s)),
        ties);
  const auto key = [&](size_t u, size_t j) {
    const bool claims = table.share(u)[j] > kShareMin && table.usable(u, j);
    if (!claims) return kNoClaim;
    if (options_.work_conserving && debts_->StaysForNow(u)) return kNoClaim;
    return OrderedBits(debts_->Standing(u, j));
  };
  TakeInOrder(types, PlainKey(key), ties);
}

// An idle accelerator is of use to any unit that can run there; the one that
// received least comes first, or the one that gains most.
void Choice::TakeLeftovers(TypeRange types, bool packed) {
  if (!HasRoom(types)) return;
  const RoundTable& table = view_.table();
  const auto key = [&](size_t u, size_t j) {
    if (!table.usable(u, j) || table.unit(u).packed() != packed) {
      return kNoClaim;
    }
    if (options_.leftovers_by_worth) return OrderedBits(-Worth(u, j));
    if (debts_) return OrderedBits(debts_->LeftoverStanding(u, j));
    double received_s = 0;
    for (const double seconds : table.received_s(u)) received_s += seconds;
    return OrderedBits(received_s);
  };
  const auto ties = [&](const Candidate& a, const Candidate& b) {
    const auto rank = [&](const Candidate& c) {
      return std::tuple(view_.Position(c.unit), view_.Held(c.unit) != c.type,
                        c.type);
    };
    return rank(a) < rank(b);
  };
  TakeInOrder(types, PlainKey(key), ties);
}

// A unit chosen on a slower type goes to a better one that is idle; the largest
// gain first.
void Choice::Upgrade() {
  for (int pass = 0; pass < kUpgradePassesMax; ++pass) {
    if (!HasRoom({0, view_.types()})) return;
    bool moved = false;
    for (const Better& better : Upgrades()) {
      if (type_of_[better.unit] != better.from ||
          !HasRoom(better.unit, better.to)) {
        continue;
      }
      Move(better.unit, better.to);
      moved = true;
    }
    if (!moved) return;
  }
}

std::vector<Choice::Better> Choice::Upgrades() const {
  const RoundTable& table = view_.table();
  std::vector<Better> upgrades;
  for (uint32_t u = 0; u < table.size(); ++u) {
    if (!MayMove(u)) continue;
    const uint32_t from = type_of_[u];
    const double worth = Worth(u, from);
    for (uint32_t to = 0; to < view_.types(); ++to) {
      if (to == from || !table.usable(u, to) || !HasRoom(u, to)) continue;
      const double gain = Worth(u, to) - worth;
      if (gain <= kWorthGainMin * std::abs(worth)) continue;
      upgrades.push_back({table.scale_factor(u) * gain, u, from, to});
    }
  }
  const auto rank = [&](const Better& one) {
    return std::tuple(-one.gain, view_.Position(one.unit), one.to);
  };
  std::ranges::sort(upgrades, {}, rank);
  return upgrades;
}

void Choice::Move(uint32_t unit, uint32_t to) {
  const RoundTable& table = view_.table();
  uint32_t& type = type_of_[unit];
  if (claimed_.empty()) claimed_.assign(table.size(), kNoIndex);
  // No unit claims an accelerator that was left over.
  if (claimed_[unit] == kNoIndex && table.share(unit)[type] > kShareMin) {
    claimed_[unit] = type;
  }
  room_[type] += table.scale_factor(unit);
  room_[to] -= table.scale_factor(unit);
  type = to;
}

std::vector<RoundAssignment::Claim> Choice::Claims() const {
  std::vector<RoundAssignment::Claim> claims;
  for (size_t u = 0; u < claimed_.size(); ++u) {
    if (claimed_[u] == kNoIndex || claimed_[u] == type_of_[u]) continue;
    claims.emplace_back(view_.table().unit(u).job,
                        static_cast<int>(claimed_[u]));
  }
  std::ranges::sort(claims);
  return claims;
}

double Choice::Worth(size_t unit, size_t type) const {
  const double worth = view_.table().worth(unit)[type];
  const uint32_t held = view_.Held(unit);
  const double move_s = view_.table().costs(unit).move_s;
  const bool moves = held != kNoIndex && held != type;
  if (!debts_ || !moves || !(move_s > 0)) return worth;
  return worth * std::max(0.0, 1 - move_s / options_.round_duration_s);
}

// Only jobs that run alone may move, except those that keep their accelerators.
bool Choice::MayMove(size_t unit) const {
  const RoundTable& table = view_.table();
  const bool stays = options_.keep_running && view_.Held(unit) != kNoIndex;
  return type_of_[unit] != kNoIndex && !table.unit(unit).packed() && !stays;
}

}  // namespace gavel
