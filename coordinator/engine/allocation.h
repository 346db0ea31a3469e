// The allocation in force, as the policy gave it, and prices of accelerators.
// What a job's share of it is, and the type that an assignment gives it.
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
#include "coordinator/jobs/cluster.h"
#include "coordinator/policy/policy.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/share_unit.h"
#include "core/units.h"

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

// Which jobs and pairs may run in a round. Stateless; not thread-safe.

class Candidates {
 public:
  // Borrowed, and outlive this.
  Candidates(const JobTable& jobs, const Checkpoints& checkpoints)
      : jobs_(jobs), checkpoints_(checkpoints) {}

  // One whose loops are over only has to exit: its accelerators are free.
  bool MayRun(const Job& job) const;
  bool MayRun(const ShareUnit& unit) const;

 private:
  const JobTable& jobs_;
  const Checkpoints& checkpoints_;
};

// How fast jobs are, by all that is known: alone, beside another job, on the
// accelerators that they have, and how far they have come by that. Reads only;
// measurements.h adds to it. Not thread-safe.

class Figures {
 public:
  // Figures of a gang over several servers are kept as those of this type.
  static constexpr std::string_view kUnconsolidated = "_unconsolidated";

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

  // Of `a` and of `b` beside each other: as measured, else by the table, whose
  // name for the type is `table_type`. nullopt: not known.
  std::optional<std::pair<double, double>> PairThroughput(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  // The same by the table alone.
  std::optional<std::pair<double, double>> TablePair(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  // As far as their memory is known, on any of the type's accelerators.
  bool PairFits(const Job& a, const Job& b, size_t type) const;
  // Of the type's accelerators that it is not kept out of there are too few.
  bool IsKeptOut(const Job& job, size_t type) const;
  // By type of the cluster: it has a throughput there, and is not kept out.
  // Kept in the job, until a throughput changes.
  const std::vector<bool>& UsableTypes(const Job& job) const;
  // Journaled reports come once in a while: what a job has done since its last
  // one is taken to be by its throughput.
  double StepsDone(const Job& job, Time now) const;
  // steps/s of a job that holds leases.
  double Pace(const Job& job) const;
  // What its figures on that type are kept as: those of a gang over several
  // servers by themselves, where one was given.
  std::string FigureName(JobId job, const std::string& type, bool spread) const;
  // A gang goes at the pace of its slowest accelerator.
  double SpeedOf(const Job& job) const;
  // It holds leases on several servers.
  bool IsSpread(const Job& job) const;
  // Figures that measurements contradict, for people.
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
