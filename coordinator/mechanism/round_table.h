// The input of a round: the time that units have received, and the units by
// columns, so that a round over a million of them is one pass over a few
// arrays. The planner of rounds fills a table; the mechanism only reads it.
// Values without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_
#define GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"

namespace gavel {

// The seconds for which each unit (a job alone, or a packed pair) held
// accelerators of each type, in total and since the last reset, and the seconds
// that the allocations owed it. The engine owns one TimeReceived, adds to it as
// time passes, and passes it to the mechanism (Gavel section 5.1). A value
// without locks: not thread-safe.
//
// Seconds count once per unit, not once per accelerator: a gang of 8 that ran
// for one round of 360 s has received 360 s. Multiply by the scale factor for
// accelerator seconds.

// Deficits are remembered this many times as long as time received; see Age().
inline constexpr double kDeficitMemory = 24;

class TimeReceived {
 public:
  // Adds time that the unit has received. `type` is an index into
  // Cluster::types(). Ignores `seconds` that are not finite or not above 0, so
  // that time received never falls.
  void Add(const ShareUnit& unit, size_t type, double seconds);
  // Adds time that the allocation meant the unit to receive. The deficit is the
  // time owed less the time received. The rules for `type` and `seconds` are
  // those of Add.
  void Owe(const ShareUnit& unit, size_t type, double seconds);
  // Gives a job that has no time on `type` yet the values that Rows returned
  // elsewhere.
  void Begin(JobId job, size_t type, double since_reset_s, double deficit_s);
  // Sets the time since the reset to 0, for a new allocation. Deficits are
  // kept.
  void Reset();
  // For a new allocation that continues from the time of the old one. Instead
  // of a reset, the time since the reset is scaled down so that no unit has
  // more than `keep_s` seconds on any type. Fractions stay the same, and a long
  // past weighs no more than keep_s against a unit that has just arrived. Time
  // owed and time received, over all resets, are scaled by one common factor to
  // at most kDeficitMemory * keep_s: a debt that can't be paid fades, and
  // different deficits stay different. Returns the factor of the deficits.
  double Age(double keep_s);
  // Forgets the time of a job that has ended, alone and in pairs.
  void Remove(JobId job);

  // Returns the job alone, and the pairs in which time was recorded for it.
  std::vector<ShareUnit> UnitsOf(JobId job) const;
  // Sets both rows, by type. `since_reset`: seconds received since the last
  // reset (RoundUnit::time_received_s). `deficit`: seconds owed less seconds
  // received, over all resets; positive if the unit is owed time.
  void Rows(const ShareUnit& unit, size_t types,
            std::vector<double>& since_reset,
            std::vector<double>& deficit) const;

  // All state, for snapshots.
  struct Seconds {
    std::vector<double> since_reset;  // by type, as long as needed
    std::vector<double> owed;         // the two sides of the deficit
    std::vector<double> received;
  };
  template <class T>
  static auto State(T& t) {
    return std::tie(t.seconds_, t.pairs_);
  }

  // Does Add and Owe for one unit after another. Units in ascending order are
  // found without a search. Borrows the TimeReceived, which must not be changed
  // in another way meanwhile.
  class Booking {
   public:
    explicit Booking(TimeReceived& time);
    void Add(const ShareUnit& unit, size_t type, double seconds);
    void Owe(const ShareUnit& unit, size_t type, double seconds);

   private:
    Seconds& Of(const ShareUnit& unit);  // added when it is new

    TimeReceived& time_;
    std::map<ShareUnit, Seconds>::iterator entry_;  // the last one
  };

 private:
  std::map<ShareUnit, Seconds> seconds_;
  // The pairs in seconds_, listed under each of their two jobs.
  std::map<JobId, std::vector<ShareUnit>> pairs_;
};

// An index that means "none": of a type, a unit or a job.
inline constexpr uint32_t kNoIndex = std::numeric_limits<uint32_t>::max();

// A share below this is dust of the solver: a unit that has received nothing
// would be given a whole round for it.
inline constexpr double kShareMin = 1e-9;

// Some share of the row is more than that.
inline bool IsShare(std::span<const double> row) {
  return std::any_of(row.begin(), row.end(),
                     [](double share) { return share > kShareMin; });
}

// One job, or two packed ones, that could run in the round: a row of the table.
struct RoundUnit {
  ShareUnit unit;
  int scale_factor = 1;
  // By accelerator type, in the cluster's order of types; sizes J. Types that
  // came later and are missing at the end count as zero, and not usable.
  std::vector<double> share;            // X[u][j]; from the allocation
  std::vector<double> time_received_s;  // on type j since the last reset
  // The time that X would have given it on type j less the time that it
  // received, over all resets. If positive, the unit is owed that time.
  // kMoveAware orders by it.
  std::vector<double> deficit_s;
  std::vector<bool> usable;  // has a throughput there
  // How much an accelerator of type j contributes to the policy's objective
  // when the unit runs there; decides who gets leftovers. Empty: all types are
  // alike.
  std::vector<double> worth;
  // The accelerators that it holds now as this unit (empty: none), all of one
  // type. A unit keeps them only if they are complete and usable; if one is
  // lost, the unit is placed anew.
  std::vector<AcceleratorId> holds;
  // The type whose time it uses while it holds these; kNoIndex: theirs. See
  // RoundAssignment::claims.
  uint32_t claimed = kNoIndex;
  std::string home_server;  // where its process is; preferred; may be empty
  // The one accelerator of it that its process sees, else that on which its
  // lease ended last; preferred; may be invalid.
  AcceleratorId home;
  // The seconds of work that are lost when it gives up its accelerators and
  // comes back later (pause and resume), and when it resumes elsewhere at once.
  // For kMoveAware.
  double preempt_cost_s = 0;
  double move_cost_s = 0;
  // The part of the time due to it since it came that it did not receive, in
  // [0, 1]. For kMoveAware.
  double owed_part = 0;
};

class RoundTable {
 public:
  explicit RoundTable(size_t types) : types_(types) {}
  // J is the length of the longest row.
  explicit RoundTable(const std::vector<RoundUnit>& rows);

  // Room for so many rows.
  void Reserve(size_t rows);
  // Appends the unit; this is fastest if units come in ascending order. Values
  // that are not numbers count as 0.
  void Add(const RoundUnit& row);
  // Sets the accelerators that unit `u` holds from now on; empty: none.
  void Hold(size_t u, std::vector<AcceleratorId> accelerators);
  // Stragglers, each with its part of its type's speed, in (0, 1).
  void SetSlow(std::map<AcceleratorId, double> slow) {
    slow_ = std::move(slow);
  }
  // Accelerators that a job is to have after all others of their type; true:
  // not at all.
  using Avoided = std::map<AcceleratorId, bool>;
  void SetAvoided(std::map<JobId, Avoided> avoided) {
    avoided_ = std::move(avoided);
  }
  // The unit can't have that type in this round.
  void Bar(size_t u, size_t type) { usable_[u * types_ + type] = 0; }

  size_t types() const { return types_; }  // J
  size_t size() const { return units_.size(); }
  const ShareUnit& unit(size_t u) const { return units_[u]; }
  // The first row of a unit; size(): it has none.
  size_t Find(const ShareUnit& unit) const;
  // Each unit is greater than the one before it.
  bool ascending() const { return ascending_; }
  bool packed() const { return packed_; }  // there is a pair

  int scale_factor(size_t u) const { return scale_factors_[u]; }
  bool usable(size_t u, size_t type) const {
    return usable_[u * types_ + type] != 0;
  }
  // [J] as in RoundUnit, all finite.
  std::span<const double> share(size_t u) const { return Row(shares_, u); }
  std::span<const double> received_s(size_t u) const {
    return Row(received_s_, u);
  }
  std::span<const double> deficit_s(size_t u) const {
    return Row(deficits_s_, u);
  }
  std::span<const double> worth(size_t u) const { return Row(worths_, u); }
  bool has_worth() const { return has_worth_; }  // of some unit
  std::span<double> worth(size_t u) { return Row(worths_, u); }
  std::span<double> share(size_t u) { return Row(shares_, u); }
  std::span<double> received_s(size_t u) { return Row(received_s_, u); }
  std::span<double> deficit_s(size_t u) { return Row(deficits_s_, u); }

  struct Costs {
    double preempt_s = 0;
    double move_s = 0;
    double owed_part = 0;
  };
  const Costs& costs(size_t u) const { return costs_[u]; }
  const std::string& home_server(size_t u) const { return homes_[u]; }
  // The accelerators that it prefers to others of their server: those that it
  // holds, or its home. Empty: any.
  std::span<const AcceleratorId> own(size_t u) const;
  uint32_t claimed(size_t u) const { return claimed_[u]; }

  struct Held {
    uint32_t unit = 0;
    std::vector<AcceleratorId> accelerators;
  };
  // Units that hold something, in no particular order, and the place of each
  // there (kNoIndex: it holds nothing).
  const std::vector<Held>& held() const { return held_; }
  uint32_t held_at(size_t u) const { return held_at_[u]; }
  std::span<const AcceleratorId> holds(size_t u) const;
  const std::map<AcceleratorId, double>& slow() const { return slow_; }
  bool any_avoided() const { return !avoided_.empty(); }
  bool Avoids(size_t u) const {
    return any_avoided() && (avoided_.contains(units_[u].job) ||
                             avoided_.contains(units_[u].partner));
  }
  // By any of its jobs.
  Avoided AvoidedBy(size_t u) const;

 private:
  std::span<const double> Row(const std::vector<double>& column,
                              size_t u) const {
    return {column.data() + u * types_, types_};
  }
  std::span<double> Row(std::vector<double>& column, size_t u) {
    return {column.data() + u * types_, types_};
  }
  void AddColumn(const std::vector<double>& row, std::vector<double>& column);

  size_t types_;
  bool ascending_ = true;
  bool packed_ = false;
  bool has_worth_ = false;
  std::vector<ShareUnit> units_;
  std::vector<int> scale_factors_;
  std::vector<double> shares_;  // this and the next ones [units x J]
  std::vector<double> received_s_;
  std::vector<double> deficits_s_;
  std::vector<double> worths_;
  std::vector<uint8_t> usable_;
  std::vector<Costs> costs_;  // this and the next ones by unit
  std::vector<std::string> homes_;
  std::vector<AcceleratorId> seen_;  // RoundUnit::home
  std::vector<uint32_t> claimed_;
  std::vector<uint32_t> held_at_;
  std::vector<Held> held_;
  std::map<AcceleratorId, double> slow_;
  std::map<JobId, Avoided> avoided_;
};

// One round's input as the greedy choice and the placement see it: the table,
// the accelerators that are usable, and dense indices in place of ids. Used
// inside the round mechanism only; made for one plan.
class RoundView {
 public:
  // Borrows both, which must outlive it and not change.
  RoundView(const Cluster& cluster, const RoundTable& table)
      : RoundView(cluster, table, cluster.Capacity()) {}
  // `capacity`: by type of the cluster, what may be given away.
  RoundView(const Cluster& cluster, const RoundTable& table,
            std::vector<int> capacity);

  const Cluster& cluster() const { return cluster_; }
  const RoundTable& table() const { return table_; }
  // Types that both know: of the others no unit can use any.
  size_t types() const { return types_; }
  // By type of the cluster: usable accelerators that may be given away.
  const std::vector<int>& capacity() const { return capacity_; }
  // The type of a usable accelerator; kNoIndex: unusable, or not known.
  uint32_t TypeOf(AcceleratorId id) const {
    const uint64_t index = id.value() - 1;
    return index < type_of_.size() ? type_of_[index] : kNoIndex;
  }

  // Units ascending, equal ones as they came: the i-th; and where one is.
  uint32_t Ordered(size_t i) const {
    return plain_ ? static_cast<uint32_t>(i) : order_[i];
  }
  uint32_t Position(size_t u) const {
    return plain_ ? static_cast<uint32_t>(u) : rows_[u].position;
  }
  // Dense indices, below jobs(); Partner() is Job() for a job alone.
  size_t jobs() const { return jobs_; }
  uint32_t Job(size_t u) const {
    return plain_ ? static_cast<uint32_t>(u) : rows_[u].job;
  }
  uint32_t Partner(size_t u) const {
    return plain_ ? static_cast<uint32_t>(u) : rows_[u].partner;
  }
  // Type of what the unit holds, if it may keep it: as many as its scale
  // factor, all usable, all of one type. Else kNoIndex.
  uint32_t Held(size_t u) const {
    const uint32_t at = table_.held_at(u);
    return at == kNoIndex ? kNoIndex : held_[at];
  }
  // The type whose time it uses there.
  uint32_t Claimed(size_t u) const {
    const uint32_t claimed = table_.claimed(u);
    return Held(u) == kNoIndex || claimed == kNoIndex ? Held(u) : claimed;
  }

 private:
  struct Row {
    uint32_t position = 0;
    uint32_t job = 0;
    uint32_t partner = 0;
  };

  void Number();
  std::vector<JobId> JobsInOrder() const;
  uint32_t TypeHeld(const RoundTable::Held& held) const;

  const Cluster& cluster_;
  const RoundTable& table_;
  std::vector<int> capacity_;
  size_t types_ = 0;
  std::span<const uint32_t> type_of_;  // Cluster::usable_types
  std::vector<uint32_t> held_;         // types, by place in RoundTable::held()
  // Jobs alone and ascending: all these indices are the unit's own.
  bool plain_ = false;
  size_t jobs_ = 0;
  std::vector<uint32_t> order_;
  std::vector<Row> rows_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_
