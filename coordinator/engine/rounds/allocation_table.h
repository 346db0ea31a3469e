// The allocation in force, as the policy gave it, and prices of accelerators.
// What a job's share of it is, and the type that an assignment gives it.
//
// Not thread-safe. Snapshot fields: both.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_ALLOCATION_TABLE_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_ALLOCATION_TABLE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/policy/policy.h"
#include "core/share_unit.h"

namespace gavel::engine {

class AllocationTable {
 public:
  // Borrowed, and outlive this.
  AllocationTable(const JobTable& jobs, const Cluster& cluster,
                  const EngineOptions& options)
      : jobs_(jobs), cluster_(cluster), options_(options) {}

  // Between two allocations that are far apart, a job that came since takes
  // what is left over.
  bool IsAllocated(const Job& job) const;
  // Its row of the allocation; empty: it has no share.
  std::span<const double> Allocated(const ShareUnit& unit) const;
  // The type that an assignment gives it; kNoIndex: none.
  uint32_t Chosen(const Job& job) const;
  uint32_t Chosen(const ShareUnit& unit) const;
  // Job::chosen of the jobs of these entries.
  void NoteChosen(std::span<const TypeAssignment> entries);
  // A share of some type, or a type.
  bool HasShare(const ShareUnit& unit) const;

  const PolicyResult& result() const { return result_; }
  const std::map<std::string, double, std::less<>>& prices() const {
    return prices_;
  }
  // Of an accelerator of the type, for an hour.
  void SetPrice(const std::string& type, double price) {
    prices_[type] = price;
  }
  // A solve failed: the last allocation stays in force, and tells why.
  void NoteFailure(const PolicyResult& result) {
    result_.outcome = result.outcome;
    result_.detail = result.detail;
  }
  // Another result, and Job::chosen of all jobs as it says.
  void Replace(const PolicyResult& result);
  // An assignment after another: `assignment` is the one of `result` in the
  // order of units, or empty where that is in order. Job::chosen is the
  // caller's.
  void Succeed(const PolicyResult& result,
               std::vector<TypeAssignment> assignment);
  // After State was read.
  void Rebuild();

  static auto State(auto& part) { return std::tie(part.result_, part.prices_); }

 private:
  const JobTable& jobs_;
  const Cluster& cluster_;
  const EngineOptions& options_;
  PolicyResult result_;  // an assignment's ascending by unit
  std::map<std::string, double, std::less<>> prices_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_ALLOCATION_TABLE_H_
