// The round mechanism turns fractions of time into the accelerators of each
// unit in the next round (Gavel section 5). It is pure and deterministic: ties
// are broken by job id, never by hash order. The engine calls it at each round
// and whenever an accelerator is idle.
#ifndef GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
#define GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"

namespace gavel {

// The free accelerators of a cluster, by type and server: where a unit of a
// round goes. Made for one plan, or kept from one to the next by a caller that
// plans few units at a time. Not thread-safe.

// The free accelerators of one type, server by server.
class FreeAccelerators {
 public:
  // Servers one after the other, by name, and so their indices. `given`:
  // a unit has it. Returns the room that it is in.
  uint32_t Add(const Cluster::Place& place, bool given);
  // All are there.
  void Close();

  size_t count() const { return count_; }
  // The most that are free on one server.
  size_t LargestHole();
  // One of the room that was given, and one that was free.
  void Release(uint32_t room, AcceleratorId id);
  void Claim(uint32_t room, AcceleratorId id);

  // `wanted` accelerators, ascending, at the tightest level that has room: in a
  // group, on one server, in one rack, else on the fewest servers.
  // `home_server` first among servers that serve as well, `own` accelerators
  // first on their server or in their group. Empty when there are not as many.
  std::vector<AcceleratorId> Take(const Cluster& cluster, size_t wanted,
                                  const std::string& home_server,
                                  std::span<const AcceleratorId> own);

 private:
  // One server's accelerators of the type. The free ones are
  // free_[begin, begin + free), ascending.
  struct Room {
    uint32_t server = 0;
    AcceleratorId first;  // one of them
    size_t begin = 0;
    size_t free = 0;
    size_t size = 0;  // usable ones, free or not
    uint32_t rack = Cluster::kNowhere;
  };
  // A group, in its room.
  struct Group {
    uint32_t room = 0;
    size_t free = 0;
  };

  std::span<AcceleratorId> FreeIn(const Room& room) {
    return {free_.data() + room.begin, room.free};
  }
  void File(size_t room);
  // Not 0: the room is in rooms_with_[free], free > 0.
  uint8_t& Filed(size_t room, size_t free) {
    return filed_[rooms_[room].begin + free - 1];
  }
  void Count(uint32_t room, AcceleratorId id, int change);
  std::optional<size_t> BestWith(size_t free);
  size_t BestRoom(size_t needed, std::optional<size_t> home);
  std::optional<uint32_t> BestGroup(size_t needed, std::optional<size_t> home,
                                    std::span<const AcceleratorId> own) const;
  std::optional<uint32_t> BestRack(size_t needed) const;
  size_t BestRoomOf(uint32_t rack, size_t needed) const;
  uint32_t GroupOf(AcceleratorId id) const;
  void Arrange(std::span<AcceleratorId> free, size_t wanted,
               std::span<const AcceleratorId> own,
               std::optional<uint32_t> group) const;
  std::optional<size_t> Find(const Cluster& cluster,
                             const std::string& server) const;

  std::vector<AcceleratorId> free_;  // room by room
  std::vector<Room> rooms_;          // by the server's name
  size_t count_ = 0;                 // that are free
  // By the number of free accelerators: a heap of rooms, those in use first,
  // then by name. A room that has another number by now is passed over.
  std::vector<std::vector<uint64_t>> rooms_with_;
  std::vector<uint8_t> filed_;
  // By number, as Cluster::Place has it; the accelerators that are in a group;
  // and how many are free in each rack. Empty where none is declared.
  std::map<uint32_t, Group> groups_;
  std::map<AcceleratorId, uint32_t> group_of_;
  std::map<uint32_t, size_t> racks_;
};

class FreePlaces {
 public:
  // The cluster must not gain or lose accelerators from then on. `given` is
  // indexed by accelerator id - 1, and not 0 for an accelerator that a unit
  // has.
  FreePlaces(const Cluster& cluster, std::span<const uint8_t> given);

  // By type: how many are free.
  std::vector<int> Counts() const;
  // How many accelerators of a type are free, and how many of them are on one
  // server.
  size_t Count(size_t type) const { return types_[type].count(); }
  size_t LargestHole(size_t type) { return types_[type].LargestHole(); }
  bool IsFree(AcceleratorId id) const { return given_[id.value() - 1] == 0; }
  // Usable ones: of one that is given, and of one that is free.
  void Release(AcceleratorId id);
  void Claim(AcceleratorId id);
  // As FreeAccelerators::Take.
  std::vector<AcceleratorId> Take(const Cluster& cluster, size_t type,
                                  size_t wanted, const std::string& home_server,
                                  std::span<const AcceleratorId> own);

 private:
  FreeAccelerators& OfType(AcceleratorId id) {
    return types_[type_of_[id.value() - 1]];
  }

  std::vector<FreeAccelerators> types_;
  std::vector<uint32_t> type_of_;  // by accelerator id - 1, as the next two
  std::vector<uint8_t> given_;
  std::vector<uint32_t> rooms_;  // of its type
};

// kGavel: the paper's; every round the highest priorities, whatever it costs
// to change. kMoveAware: a unit keeps its accelerators over consecutive rounds
// while the others' debts allow, and longer the more a change costs.
enum class MechanismKind : uint8_t { kGavel, kMoveAware };
// kGlobal: one queue over all types. kPerType: type by type in the cluster's
// order, as the original without --enable_global_queue: what is left of a type
// is given away before the next one's turn.
enum class QueueKind : uint8_t { kGlobal, kPerType };

// "gavel", "move_aware"; "global", "per_type". nullopt: no such name.
std::optional<MechanismKind> FindMechanism(std::string_view name);
std::optional<QueueKind> FindQueue(std::string_view name);
std::string_view MechanismName(MechanismKind kind);
std::string_view QueueName(QueueKind kind);

// Each unit counts as having received this much on each type in addition to its
// real time: half a round, as in the original at a reset. Without it a unit
// that has received nothing is infinitely behind, and the smallest shares
// (those of gangs) get a whole round there first.
inline double HeadStartSeconds(double round_duration_s) {
  return std::isfinite(round_duration_s) ? std::max(0.0, round_duration_s / 2)
                                         : 0;
}

// Priorities of Gavel section 5.1: share / fraction of the type's time that
// the unit received, each with the head start. [units x J]; 0 where share is 0,
// infinity where it has received nothing. They compare units on one type;
// PlanRound compares across types by share / time received, which orders each
// type the same way.
std::vector<std::vector<double>> Priorities(const RoundTable& units,
                                            double head_start_s = 0);

// The accelerators of each unit in a round, ascending by unit; jobs in no
// unit of it wait.
class RoundAssignment {
 public:
  using Entry = std::pair<ShareUnit, std::vector<AcceleratorId>>;
  // A job and a type, as an index into the cluster's.
  using Claim = std::pair<JobId, int>;

  RoundAssignment() = default;
  // Takes ascending entries, and claims.
  explicit RoundAssignment(std::vector<Entry> entries,
                           std::vector<Claim> claims = {})
      : entries_(std::move(entries)), claims_(std::move(claims)) {
    assert(std::is_sorted(entries_.begin(), entries_.end()));
    assert(std::is_sorted(claims_.begin(), claims_.end()));
  }
  // In any order.
  RoundAssignment(std::initializer_list<Entry> entries) : entries_(entries) {
    std::sort(entries_.begin(), entries_.end());
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  // end(): it waits.
  std::vector<Entry>::const_iterator find(const ShareUnit& unit) const;
  bool contains(const ShareUnit& unit) const { return find(unit) != end(); }
  // The unit must be in the assignment.
  const std::vector<AcceleratorId>& at(const ShareUnit& unit) const;
  template <class Predicate>
  void EraseIf(Predicate predicate) {
    std::erase_if(entries_, predicate);
  }
  // Jobs that were chosen for a share of this type and run on a better one that
  // is idle, ascending. The round's time counts as that of this type: else they
  // would never have the share of it that they are owed, and others would wait
  // for them.
  const std::vector<Claim>& claims() const { return claims_; }
  // All of it, which leaves nothing here.
  std::vector<Entry> Release() { return std::move(entries_); }
  std::vector<Claim> ReleaseClaims() { return std::move(claims_); }
  friend bool operator==(const RoundAssignment&,
                         const RoundAssignment&) = default;

 private:
  std::vector<Entry> entries_;
  std::vector<Claim> claims_;
};

struct RoundOptions {
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  double round_duration_s = 360;
  // Units that hold accelerators keep exactly them: the plan only fills idle
  // ones (in the middle of a round).
  bool keep_running = false;
  // Give leftovers to units of zero priority too, jobs alone before pairs: to
  // those that received the least time first. With the global queue units go
  // from where they were chosen to idle types that are worth more.
  bool work_conserving = true;
  // Leftovers go where they are worth most: of policies that maximise a sum.
  bool leftovers_by_worth = false;
};

// Chooses units greedily by priority, gangs all or nothing, and then places
// them: where a unit already is, else consolidated, else wherever there is
// room. Among equal priorities the larger deficit goes first, then the larger
// share, then the unit that holds that type already, then the smaller unit,
// then the cluster's order of types.
//
// RoundTable::slow accelerators go to the units that are chosen last. A unit
// that holds some leaves them for idle ones when that pays for the move within
// the round, and not in the middle of one (keep_running). A unit gets an
// accelerator that it avoids (RoundTable::Avoided) only if no other of the type
// is free, and leaves it for an idle one.
//
// Every job of `units` is in the answer at most once, whether alone or in a
// pair, with scale_factor usable accelerators of one type; no accelerator is in
// it twice.
RoundAssignment PlanRound(const Cluster& cluster, const RoundTable& units,
                          const RoundOptions& options);

// Places units on the types that a policy has chosen (FIFO), without
// priorities. `types` has for each row of `units` an index into the cluster's
// types, or kNoIndex for none. Units that no longer fit (the cluster may have
// shrunk since) are left out, the later ones of `units` first. `free` has the
// accelerators that these units may have; their places are taken out of it.
// Null: all accelerators.
RoundAssignment PlaceAssignment(const Cluster& cluster, const RoundTable& units,
                                std::span<const uint32_t> types,
                                FreePlaces* free = nullptr);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
