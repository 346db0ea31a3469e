#include "coordinator/mechanism/placement.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace gavel {

Placement::Placement(const RoundView& view, const Choice& choice,
                     FreePlaces* free)
    : view_(view), table_(view.table()), choice_(choice), free_(free) {
  if (free_ == nullptr) {
    given_.assign(view.cluster().accelerators().size(), 0);
  }
  const std::vector<uint32_t>& type_of = choice.type_of();
  chosen_.reserve(choice.in_turn().size());
  for (size_t i = 0; i < table_.size(); ++i) {
    const uint32_t u = view.Ordered(i);
    if (type_of[u] != kNoIndex) chosen_.push_back({u, type_of[u]});
  }
  placed_.resize(chosen_.size());
}

RoundAssignment Placement::PlaceAll(double moves_within_s) {
  KeepOwn();
  if (table_.packed()) InheritFromPairs();
  const bool slow = !table_.slow().empty();
  const bool avoided = table_.any_avoided();
  if (free_ == nullptr && (slow || avoided || !moving_.empty())) {
    free_ = &own_.emplace(view_.cluster(), given_);
  }
  if (slow) SetAllAside();
  PlaceOthers();
  if (avoided && moves_within_s > 0) {
    ChangePlaces();
    LeaveAvoided();
  }
  if (slow) LeaveStragglers(moves_within_s);
  for (size_t type = 0; type < aside_.size(); ++type) Return(type);
  for (uint32_t c = 0; avoided && c < chosen_.size(); ++c) {
    const bool none = placed_[c].second.empty();
    if (none && table_.Avoids(chosen_[c].unit)) unplaced_.push_back(chosen_[c]);
  }
  std::erase_if(placed_,
                [](const auto& entry) { return entry.second.empty(); });
  return RoundAssignment(std::move(placed_));
}

void Placement::KeepOwn() {
  for (uint32_t c = 0; c < chosen_.size(); ++c) {
    const auto [u, type] = chosen_[c];
    if (view_.Held(u) == type && !MustLeave(u) && Keep(table_.holds(u))) {
      Give(c, table_.holds(u));
      kept_.push_back(c);
    } else {
      moving_.push_back(c);
    }
  }
}

// Places a pair where one of its jobs runs now, and a single job where it runs
// now as part of a pair, so that at least this job need not move.
void Placement::InheritFromPairs() {
  std::vector<bool> placed(table_.size(), false);  // by unit
  for (uint32_t c = 0; c < chosen_.size(); ++c) {
    placed[chosen_[c].unit] = !placed_[c].second.empty();
  }
  std::vector<uint32_t> holder(view_.jobs(), kNoIndex);  // by job
  for (size_t i = 0; i < table_.size(); ++i) {
    const uint32_t u = view_.Ordered(i);
    if (view_.Held(u) == kNoIndex || placed[u]) continue;
    holder[view_.Job(u)] = holder[view_.Partner(u)] = u;
  }
  std::erase_if(moving_, [&](uint32_t c) {
    const uint32_t u = chosen_[c].unit;
    return Inherit(c, holder[view_.Job(u)]) ||
           Inherit(c, holder[view_.Partner(u)]);
  });
}

bool Placement::Inherit(uint32_t c, uint32_t from) {
  const auto [u, type] = chosen_[c];
  if (from == kNoIndex || from == u || view_.Held(from) != type) return false;
  const std::span<const AcceleratorId> holds = table_.holds(from);
  if (table_.scale_factor(u) != table_.scale_factor(from)) return false;
  const RoundTable::Avoided avoided = table_.AvoidedBy(u);
  const auto avoids = [&](AcceleratorId id) { return avoided.contains(id); };
  if (std::ranges::any_of(holds, avoids) || !Keep(holds)) return false;
  Give(c, holds);
  return true;
}

// Places large gangs first, while there are large holes. Among units of one
// size, those come first that chose while fast accelerators were left (see
// Late), then those that avoid some accelerators, before the others leave them
// only these, then those with a home, before another unit takes it.
void Placement::PlaceOthers() {
  const std::vector<bool> late = Late();
  const auto before = [&](uint32_t a, uint32_t b) {
    const auto key = [&](uint32_t c) {
      const uint32_t u = chosen_[c].unit;
      return std::tuple(-table_.scale_factor(u), !late.empty() && late[c],
                        !table_.Avoids(u), table_.home_server(u).empty());
    };
    return key(a) < key(b);
  };
  if (!std::is_sorted(moving_.begin(), moving_.end(), before)) {
    std::stable_sort(moving_.begin(), moving_.end(), before);
  }
  for (const uint32_t c : moving_) {
    const auto [u, type] = chosen_[c];
    placed_[c] = {table_.unit(u), TakeUnavoided(u, type)};
  }
}

void Placement::SetAllAside() {
  aside_.resize(view_.cluster().types().size());
  for (const auto& [id, speed] : table_.slow()) {
    const uint32_t type = view_.TypeOf(id);
    if (type != kNoIndex) aside_[type].push_back(id);
  }
  for (size_t type = 0; type < aside_.size(); ++type) SetAside(type);
}

void Placement::SetAside(size_t type) {
  std::erase_if(aside_[type], [&](AcceleratorId id) { return !IsFree(id); });
  for (const AcceleratorId id : aside_[type]) free_->Claim(id);
}

void Placement::Return(size_t type) {
  for (const AcceleratorId id : aside_[type]) free_->Release(id);
}

void Placement::SortByTurn(std::vector<uint32_t>& chosen) const {
  std::vector<uint32_t> turns(table_.size(), kNoIndex);  // by unit
  const std::vector<uint32_t>& in_turn = choice_.in_turn();
  for (uint32_t i = 0; i < in_turn.size(); ++i) turns[in_turn[i]] = i;
  std::ranges::stable_sort(chosen, {}, [&](uint32_t c) {
    const uint32_t u = chosen_[c].unit;
    return std::pair(-table_.scale_factor(u), turns[u]);
  });
}

// Returns by index into chosen_ whether the unit is late: when its turn came,
// largest units first, too few accelerators as fast as their type were left for
// it. Empty if no straggler is set aside: then no unit is late.
std::vector<bool> Placement::Late() const {
  if (std::ranges::all_of(aside_, [](const auto& ids) { return ids.empty(); }))
    return {};
  std::vector<uint32_t> in_turn = moving_;
  SortByTurn(in_turn);
  std::vector<int> fast = free_->Counts();
  std::vector<int> slow;
  for (const auto& ids : aside_) slow.push_back(static_cast<int>(ids.size()));
  std::vector<bool> late(chosen_.size(), false);
  for (const uint32_t c : in_turn) {
    const auto [u, type] = chosen_[c];
    const int wanted = table_.scale_factor(u);
    late[c] = fast[type] < wanted;
    const int taken = late[c] ? std::min(slow[type], wanted) : 0;
    slow[type] -= taken;
    fast[type] -= wanted - taken;
  }
  return late;
}

// Takes stragglers only if the other accelerators are too few, or if a gang
// fits on one server only with them: what the gang would lose when spread over
// several servers is not known.
std::vector<AcceleratorId> Placement::Take(uint32_t unit, size_t type) {
  const auto wanted = static_cast<size_t>(table_.scale_factor(unit));
  std::span<const AcceleratorId> own = table_.own(unit);
  const auto take = [&] {
    return free_->Take(view_.cluster(), type, wanted, table_.home_server(unit),
                       own);
  };
  if (aside_.empty() || aside_[type].empty()) return take();
  if (free_->LargestHole(type) >= wanted) return take();
  const bool few = free_->Count(type) < wanted;
  Return(type);
  const bool with_slow = few || free_->LargestHole(type) >= wanted;
  if (!with_slow) SetAside(type);
  // One slow rank slows down the whole gang, so the gang may as well have the
  // other stragglers, too.
  if (with_slow && own.empty()) own = aside_[type];
  std::vector<AcceleratorId> taken = take();
  if (with_slow) SetAside(type);
  return taken;
}

// Units move to idle accelerators only, so that no other unit is displaced.
void Placement::LeaveStragglers(double moves_within_s) {
  std::erase_if(kept_, [&](uint32_t c) {
    return !LeavePays(chosen_[c].unit, moves_within_s);
  });
  SortByTurn(kept_);
  for (const uint32_t c : kept_) {
    Leave(c, [&](AcceleratorId id) { return IsSlow(id); });
  }
}

bool Placement::LeavePays(uint32_t unit, double moves_within_s) const {
  if (table_.unit(unit).packed()) return false;
  double speed = 1;
  for (const AcceleratorId id : table_.holds(unit)) {
    const auto found = table_.slow().find(id);
    if (found != table_.slow().end()) speed = std::min(speed, found->second);
  }
  return (1 - speed) * moves_within_s > table_.costs(unit).move_s;
}

// Moves a kept unit off the accelerators for which `leaves` is true, to idle
// ones. The unit stays where it is if that would take more servers than now or
// if there are too few idle accelerators.
template <class Leaves>
void Placement::Leave(uint32_t c, const Leaves& leaves) {
  const auto [u, type] = chosen_[c];
  const std::span<const AcceleratorId> holds = table_.holds(u);
  const auto wanted = static_cast<size_t>(table_.scale_factor(u));
  const auto set_rest_given = [&](bool given) {
    for (const AcceleratorId id : holds) {
      if (!leaves(id)) SetGiven(id, given);
    }
  };
  set_rest_given(false);
  const Hidden hidden = Hide(u, type, /*only_never=*/false);
  std::vector<AcceleratorId> taken =
      free_->Take(view_.cluster(), type, wanted, table_.home_server(u), holds);
  Show(hidden);
  if (!taken.empty() && ServersOf(taken) <= ServersOf(holds)) {
    placed_[c].second = std::move(taken);
    for (const AcceleratorId id : holds) {
      if (!leaves(id)) continue;
      IsSlow(id) ? aside_[type].push_back(id) : SetGiven(id, false);
    }
    return;
  }
  for (const AcceleratorId id : taken) SetGiven(id, false);
  set_rest_given(true);
}

Placement::Hidden Placement::Hide(uint32_t unit, size_t type, bool only_never) {
  Hidden hidden{type, {}, {}};
  for (const auto& [id, never] : table_.AvoidedBy(unit)) {
    if (view_.TypeOf(id) != type || (only_never && !never)) continue;
    if (!aside_.empty() && std::erase(aside_[type], id) > 0) {
      hidden.aside.push_back(id);
    } else if (IsFree(id)) {
      free_->Claim(id);
      hidden.free.push_back(id);
    }
  }
  return hidden;
}

void Placement::Show(const Hidden& hidden) {
  for (const AcceleratorId id : hidden.free) free_->Release(id);
  for (const AcceleratorId id : hidden.aside) aside_[hidden.type].push_back(id);
}

std::vector<AcceleratorId> Placement::TakeUnavoided(uint32_t unit,
                                                    size_t type) {
  if (!table_.Avoids(unit)) return Take(unit, type);
  std::vector<AcceleratorId> taken;
  for (const bool only_never : {false, true}) {
    const Hidden hidden = Hide(unit, type, only_never);
    taken = Take(unit, type);
    Show(hidden);
    if (!taken.empty()) break;
  }
  return taken;
}

bool Placement::MustLeave(uint32_t unit) const {
  const RoundTable::Avoided avoided = table_.AvoidedBy(unit);
  return std::ranges::any_of(table_.holds(unit), [&](AcceleratorId id) {
    const auto found = avoided.find(id);
    return found != avoided.end() && found->second;
  });
}

void Placement::LeaveAvoided() {
  std::vector<uint32_t> leaving;
  for (const uint32_t c : kept_) {
    const uint32_t u = chosen_[c].unit;
    if (table_.Avoids(u) && !table_.unit(u).packed()) leaving.push_back(c);
  }
  SortByTurn(leaving);
  for (const uint32_t c : leaving) {
    const uint32_t u = chosen_[c].unit;
    const RoundTable::Avoided avoided = table_.AvoidedBy(u);
    const auto leaves = [&](AcceleratorId id) { return avoided.contains(id); };
    if (std::ranges::none_of(table_.holds(u), leaves)) continue;
    Leave(c, leaves);
    if (!std::ranges::equal(placed_[c].second, table_.holds(u)))
      std::erase(kept_, c);
  }
}

// If a single worker may use none of the free accelerators, it takes the
// accelerator of another single worker that may use one of them. Otherwise it
// would wait for as long as that other one runs.
void Placement::ChangePlaces() {
  for (const uint32_t c : moving_) {
    const uint32_t u = chosen_[c].unit;
    if (!placed_[c].second.empty() || table_.scale_factor(u) != 1) continue;
    if (table_.unit(u).packed()) continue;
    const auto other = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](auto k) { return ChangePlaces(c, k); });
    if (other != kept_.rend()) kept_.erase(std::next(other).base());
  }
}

bool Placement::ChangePlaces(uint32_t c, uint32_t other) {
  const auto [u, type] = chosen_[other];
  if (type != chosen_[c].type || table_.scale_factor(u) != 1) return false;
  const AcceleratorId place = placed_[other].second.front();
  if (table_.unit(u).packed() ||
      table_.AvoidedBy(chosen_[c].unit).contains(place)) {
    return false;
  }
  const Hidden hidden = Hide(u, type, /*only_never=*/false);
  std::vector<AcceleratorId> taken = Take(u, type);
  Show(hidden);
  if (taken.empty()) return false;
  placed_[other].second = std::move(taken);
  Give(c, {&place, 1});
  return true;
}

void Placement::Give(uint32_t c, std::span<const AcceleratorId> accelerators) {
  placed_[c] = {table_.unit(chosen_[c].unit),
                {accelerators.begin(), accelerators.end()}};
}

// Takes exactly these accelerators. Returns false, and takes nothing, if one of
// them is not free any more.
bool Placement::Keep(std::span<const AcceleratorId> accelerators) {
  for (size_t i = 0; i < accelerators.size(); ++i) {
    if (!IsFree(accelerators[i])) {
      while (i-- > 0) SetGiven(accelerators[i], false);
      return false;
    }
    SetGiven(accelerators[i], true);
  }
  return true;
}

size_t Placement::ServersOf(std::span<const AcceleratorId> accelerators) const {
  std::set<std::string_view> servers;
  for (const AcceleratorId id : accelerators) {
    servers.insert(view_.cluster().accelerator(id).server);
  }
  return servers.size();
}

void Placement::SetGiven(AcceleratorId id, bool given) {
  if (free_ == nullptr) {
    given_[id.value() - 1] = given ? 1 : 0;
  } else {
    given ? free_->Claim(id) : free_->Release(id);
  }
}

}  // namespace gavel
