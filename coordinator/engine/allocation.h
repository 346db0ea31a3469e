// The allocation in force, which the policy computed, and the prices of
// accelerators. Tells a job's share and the accelerator type that an assignment
// gives it.
//
// Not thread-safe. Snapshot fields: both.
#ifndef GAVEL_COORDINATOR_ENGINE_ALLOCATION_H_
#define GAVEL_COORDINATOR_ENGINE_ALLOCATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/locality.h"
#include "core/units.h"

namespace gavel::engine {

class AllocationTable {
 public:
  // Borrowed, and outlive this.
  AllocationTable(const JobTable& jobs, const Cluster& cluster,
                  const EngineOptions& options)
      : jobs_(jobs), cluster_(cluster), options_(options) {}

  // Whether a waiting job may run: the assignment or the allocation contains
  // it. If allocations are made at intervals (reset_interval_s), any job may:
  // one that came since the last allocation gets leftover accelerators.
  bool IsAllocated(const Job& job) const;
  // The unit's row of the allocation; empty if it has no share.
  std::span<const double> Allocated(const ShareUnit& unit) const;
  // The type that an assignment gives the job or unit; kNoIndex if none.
  uint32_t Chosen(const Job& job) const;
  uint32_t Chosen(const ShareUnit& unit) const;
  // Sets Job::chosen of the jobs in these entries.
  void NoteChosen(std::span<const TypeAssignment> entries);
  // Whether the unit has a share of some type, or an assigned type.
  bool HasShare(const ShareUnit& unit) const;

  const PolicyResult& result() const { return result_; }
  const std::map<std::string, double, std::less<>>& prices() const {
    return prices_;
  }
  // Sets the price of one accelerator of the type for one hour.
  void SetPrice(const std::string& type, double price) {
    prices_[type] = price;
  }
  // Records that a solve failed, and why. The last allocation stays in force.
  void NoteFailure(const PolicyResult& result) {
    result_.outcome = result.outcome;
    result_.detail = result.detail;
  }
  // Replaces the result and sets Job::chosen of all jobs accordingly.
  void Replace(const PolicyResult& result);
  // Replaces one assignment by another. `assignment` is the assignment of
  // `result` sorted by unit, or empty if `result` is already sorted. The caller
  // updates Job::chosen.
  void Succeed(const PolicyResult& result,
               std::vector<TypeAssignment> assignment);
  // Call after State has been read.
  void Rebuild();

  static auto State(auto& part) { return std::tie(part.result_, part.prices_); }

 private:
  const JobTable& jobs_;
  const Cluster& cluster_;
  const EngineOptions& options_;
  PolicyResult result_;  // an assignment's ascending by unit
  std::map<std::string, double, std::less<>> prices_;
};

// Which jobs and pairs may run in a round. Stateless; not thread-safe.

class Candidates {
 public:
  // Borrowed, and outlive this.
  Candidates(const JobTable& jobs, const Checkpoints& checkpoints)
      : jobs_(jobs), checkpoints_(checkpoints) {}

  // Whether the job is active, its checkpoint can be reached and some worker
  // still has a training loop to run. A job whose loops are over needs no
  // accelerator to exit.
  bool MayRun(const Job& job) const;
  bool MayRun(const ShareUnit& unit) const;

 private:
  const JobTable& jobs_;
  const Checkpoints& checkpoints_;
};

// The best known throughputs of jobs, alone and beside another job, on the
// accelerators that they hold, and the progress that follows from them. Only
// reads; measurements.h adds new figures. Not thread-safe.

class Figures {
 public:
  // Borrowed, and outlive this.
  Figures(const JobTable& jobs, const Cluster& cluster,
          const ThroughputMatrix& throughputs, const AcceleratorSpeeds& speeds,
          const Avoidance& avoidance, const EngineOptions& options)
      : jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        speeds_(speeds),
        avoidance_(avoidance),
        options_(options) {}

  // Steps/s of `a` and of `b` when they share accelerators of the type: the
  // measured values, or else those of the table, in which the type is column
  // `table_type`. nullopt if neither is known.
  std::optional<std::pair<double, double>> PairThroughput(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  // The same from the table alone.
  std::optional<std::pair<double, double>> TablePair(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  // Whether both jobs fit into the memory of some accelerator of the type, as
  // far as their memory is known.
  bool PairFits(const Job& a, const Job& b, size_t type) const;
  // Whether too few accelerators of the type are left for the job because it is
  // kept out of the others.
  bool IsKeptOut(const Job& job, size_t type) const;
  // For each type of the cluster, whether the job has a throughput there and is
  // not kept out of it. Cached in the job until a throughput changes.
  const std::vector<bool>& UsableTypes(const Job& job) const;
  // Reports are journaled only at intervals, so the steps since the last one
  // are estimated from the job's throughput.
  double StepsDone(const Job& job, Time now) const;
  // The seconds that so many steps of the job take alone on the type where it
  // is fastest; 0 if it has no throughput anywhere.
  double AloneSeconds(const Job& job, double steps) const;
  // steps/s of a job that holds leases.
  double Pace(const Job& job) const;
  // The name under which the job's throughput on that type is kept. A gang has
  // a throughput of its own at a level, provided that one is known.
  std::string FigureName(JobId job, const std::string& type,
                         Locality level) const;
  // The relative speed of the job's slowest accelerator, which sets the pace of
  // a gang.
  double SpeedOf(const Job& job) const;
  // The level of the accelerators that the job holds.
  Locality LevelOf(const Job& job) const;
  // A note for people on throughputs that measurements contradict.
  std::string ThroughputNotes(const Job& job) const;

 private:
  std::optional<double> ScaleOf(const Job& job, size_t type,
                                size_t table_type) const;
  double TogetherThroughput(const Job& a, const Job& b, size_t type) const;
  bool IsOfTable(const Job& job, const std::string& type, double given) const;

  const JobTable& jobs_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const AcceleratorSpeeds& speeds_;
  const Avoidance& avoidance_;
  const EngineOptions& options_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ALLOCATION_H_
