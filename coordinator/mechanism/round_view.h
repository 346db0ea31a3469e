// One round's input as the greedy choice and the placement see it: the table,
// the accelerators that are usable, and dense indices in place of ids. Used
// inside the round mechanism only; made for one plan.
#ifndef GAVEL_COORDINATOR_MECHANISM_ROUND_VIEW_H_
#define GAVEL_COORDINATOR_MECHANISM_ROUND_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"

namespace gavel {

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

#endif  // GAVEL_COORDINATOR_MECHANISM_ROUND_VIEW_H_
