// What the jobs of a trace ask of a cluster: their specs for the engine, their
// true speeds, and which of them fit nowhere. Shared by the simulations with
// and without rounds. A value that is not changed once made: thread-safe.
#ifndef GAVEL_SIMULATOR_SIMULATED_WORK_H_
#define GAVEL_SIMULATOR_SIMULATED_WORK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/reference_rows.h"
#include "coordinator/workload/job_spec.h"
#include "simulator/trace_simulation.h"

namespace gavel {

class SimulatedWork {
 public:
  // As TraceSimulation::Create. Borrows the throughputs.
  static absl::StatusOr<SimulatedWork> Create(const SimulationOptions& options,
                                              const Trace& trace,
                                              const ThroughputTable& table);

  size_t size() const { return trace_.jobs.size(); }
  const TraceJob& job(size_t i) const { return trace_.jobs[i]; }
  const std::string& type(size_t i) const {
    return trace_.templates[trace_.jobs[i].job_template].type;
  }
  const std::vector<std::string>& types() const { return types_; }
  const std::vector<int>& capacity() const { return capacity_; }

  // Why the job fits nowhere; empty when it fits.
  std::string WhyUnfit(size_t i) const;
  JobSpec Spec(size_t i) const;
  // What profiling tells of it. Deterministic by the seed and the job.
  std::vector<ProfiledCell> Profile(size_t i) const;
  Overhead OverheadOf(size_t i) const;
  // Seconds after its arrival; kNever: none.
  double Deadline(size_t i) const;
  // steps/s on accelerators of types()[type].
  double Alone(size_t i, size_t type, bool consolidated) const;
  // The same of an elastic job with so many workers, between its bounds: what
  // the throughputs tell of that scale factor, else between the next smaller
  // and larger one that they tell of, by a power of the workers.
  double AtSize(size_t i, size_t type, int workers, bool consolidated) const;
  // Of job i beside job k.
  double Together(size_t i, size_t k, size_t type, bool consolidated) const;
  std::optional<ThroughputTable::Row> Row(size_t i) const { return rows_[i]; }
  // Seconds that `steps` of the job would take with 1/n of each type.
  double IsolatedSeconds(size_t i, double steps, double n) const;
  // How far a run has come.
  struct Run {
    bool complete = false;
    std::string stopped;
    std::vector<UnfitJob> unfit;
    Time last_end = 0;
    Time now = 0;
    std::vector<int> capacity;   // by type, as the next; may be shorter
    std::vector<double> busy_s;  // [J] accelerator-seconds
  };
  // Means over `jobs`, in any order, and what follows from the rest.
  SimulationResult Summary(std::vector<SimulatedJob> jobs,
                           const Run& run) const;
  SimulatedJob Describe(size_t i) const;  // nothing has become of it yet

 private:
  SimulatedWork(const SimulationOptions& options, Trace trace,
                const ThroughputTable& table);
  absl::Status Check() const;
  absl::Status CheckElastic(size_t i) const;
  void StartSteady();

  SimulationOptions options_;
  Trace trace_;  // with the steps that the throughputs tell
  const ThroughputTable* table_;
  std::vector<std::optional<ThroughputTable::Row>> rows_;  // by job
  std::vector<std::string> types_;
  std::vector<int> capacity_;
  std::vector<std::optional<size_t>> table_type_;  // by type
  std::optional<ReferenceRows> references_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_SIMULATED_WORK_H_
