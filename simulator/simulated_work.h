// The demands of a trace's jobs: their specs for the engine, their true speeds,
// and which of them fit nowhere. The simulations with and without rounds share
// it. SimulatedWork is an immutable value, thread-safe.
#ifndef GAVEL_SIMULATOR_SIMULATED_WORK_H_
#define GAVEL_SIMULATOR_SIMULATED_WORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  // The cells that profiling measures. Deterministic by the seed and the job.
  std::vector<ProfiledCell> Profile(size_t i) const;
  Overhead OverheadOf(size_t i) const;
  // Seconds after its arrival; kNever: none.
  double Deadline(size_t i) const;
  // steps/s on accelerators of types()[type].
  double Alone(size_t i, size_t type, Locality level) const;
  // The same of an elastic job with `workers`, a number between its bounds. A
  // scale factor without a row is interpolated between the next smaller and
  // larger one by a power of the workers.
  double AtSize(size_t i, size_t type, int workers, Locality level) const;
  // The gang fits on one server of the type.
  bool FitsOnServer(size_t i, size_t type) const {
    return trace_.jobs[i].scale_factor <= largest_server_[type];
  }
  // The tightest level with room for the gang on one server of the type, or
  // beyond one.
  Locality LevelIn(size_t i, size_t type, bool on_server) const;
  // Accelerators of each server of the type.
  std::vector<int> Servers(size_t type) const;
  // steps/s of job i beside job k: on one server, or spread, where a table
  // without figures for spread gangs gives those of consolidated ones.
  double Together(size_t i, size_t k, size_t type, Locality level) const;
  std::optional<ThroughputTable::Row> Row(size_t i) const { return rows_[i]; }
  // Seconds that `steps` of the job would take with 1/n of each type.
  double IsolatedSeconds(size_t i, double steps, double n) const;
  // The seconds that the job takes alone on the type where it is fastest; 0 if
  // it can run nowhere.
  double FastestSeconds(size_t i) const;
  // The job's app; empty: it is one alone.
  std::string AppName(size_t i) const {
    const size_t app = trace_.jobs[i].app;
    return app == TraceJob::kNoApp ? "" : trace_.apps[app];
  }
  bool Lies(size_t i) const;              // the job's app does
  SimulatedJob Describe(size_t i) const;  // without an outcome

 private:
  SimulatedWork(const SimulationOptions& options, Trace trace,
                const ThroughputTable& table);
  absl::Status Check() const;
  absl::Status CheckElastic(size_t i) const;
  std::optional<double> InTable(ThroughputTable::Row row, size_t type,
                                Locality level) const;
  // The part of its speed that the job keeps at the level (SpreadLoss).
  double Keeps(size_t i, Locality level) const;
  void StartSteady();

  SimulationOptions options_;
  Trace trace_;  // with the steps that the throughputs tell
  const ThroughputTable* table_;
  std::vector<std::optional<ThroughputTable::Row>> rows_;  // by job
  std::vector<std::string> types_;
  std::vector<int> capacity_;
  std::vector<int> largest_server_;  // by type: accelerators, as the next two
  std::vector<int> largest_group_;
  std::vector<int> largest_rack_;
  std::vector<std::optional<size_t>> table_type_;  // by type
  std::optional<ReferenceRows> references_;
};

// The common part of the simulations of a trace: its jobs from their arrival to
// their end.
class WorkSimulation : public TraceSimulation {
 public:
  uint64_t jobs_ended() const override { return ended_in_window_; }
  uint64_t jobs_in_window() const override { return window_end_ - begin_; }

 protected:
  WorkSimulation(SimulationOptions options, SimulatedWork work,
                 std::unique_ptr<Policy> policy);

  bool InWindow(size_t index) const {
    return index >= begin_ && index < window_end_;
  }
  bool WindowEnded() const { return ended_in_window_ == window_end_ - begin_; }
  void EndAtTimeLimit();
  // Calls arrive(index) for the jobs that have come by `now` and fit somewhere.
  template <class Arrive>
  void TakeArrived(Time now, Arrive arrive) {
    for (; next_ < work_.size() && work_.job(next_).arrival_s <= now; ++next_) {
      std::string why = work_.WhyUnfit(next_);
      why.empty() ? arrive(next_) : LeaveOut(next_, std::move(why));
    }
  }
  void LeaveOut(size_t index, std::string why);
  // `jobs` have been present since the last call.
  void CountPresent(Time now, size_t jobs);
  // The job's completion time is set, and CountPresent() was called up to it.
  void TakeEnded(SimulatedJob job);
  // Means over the jobs of the window, and the totals.
  // `running`: those that have not ended. `capacity` by type, may be shorter.
  SimulationResult Summary(std::vector<SimulatedJob> running, Time now,
                           const std::vector<int>& capacity,
                           const std::vector<double>& busy_s) const;

  SimulationOptions options_;
  SimulatedWork work_;
  std::unique_ptr<Policy> policy_;
  bool over_ = false;
  std::string stopped_;
  size_t next_ = 0;  // the next job to arrive
  size_t begin_ = 0;
  size_t window_end_ = 0;
  uint64_t ended_in_window_ = 0;
  std::vector<SimulatedJob> told_;  // of the window, as they end
  std::vector<UnfitJob> unfit_;
  Time last_end_ = 0;
  double present_s_ = 0;  // jobs x time
  Time present_at_ = 0;
  std::vector<double> busy_s_;  // [J] accelerator-seconds
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_SIMULATED_WORK_H_
