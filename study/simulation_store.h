// The results database: runs of simulations in one SQLite file, with their
// jobs and apps, and the recorded use of accelerators over time. `gavel sweep`
// and `gavel reproduce` write it. `gavel report` and other programs may read it
// at the same time; docs/simulator.md describes the tables.
//
// Not thread-safe; processes may share a file. Status codes: those of
// database/sqlite.h; NOT_FOUND and INVALID_ARGUMENT for a missing or wrong
// file.
#ifndef GAVEL_STUDY_SIMULATION_STORE_H_
#define GAVEL_STUDY_SIMULATION_STORE_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/database/sqlite.h"
#include "study/simulation_run.h"
#include "study/simulation_spec.h"

namespace gavel::study {

struct StoredRun {
  uint64_t id = 0;  // given by the database
  std::string key;  // SimulationInputCache::KeyOf
  SimulationSpec spec;
  SimulationRun run;
};

// Calls visit(name, field) for each figure of a result, double or uint64_t. The
// names are columns and JSON keys.
template <class Result, class Visitor>
void VisitResult(Result& result, const Visitor& visit) {
  visit("avg_jct_s", result.avg_jct_s);
  visit("p50_jct_s", result.p50_jct_s);
  visit("p99_jct_s", result.p99_jct_s);
  visit("makespan_s", result.makespan_s);
  visit("cluster_utilization", result.cluster_utilization);
  visit("total_cost", result.total_cost);
  visit("slo_jobs", result.slo_jobs);
  visit("slo_violations", result.slo_violations);
  visit("avg_rho", result.avg_rho);
  visit("max_rho", result.max_rho);
  visit("rho_above_1", result.rho_above_1);
  visit("avg_rho_static", result.rho_static.avg);
  visit("max_rho_static", result.rho_static.max);
  visit("rho_static_above_1", result.rho_static.above_1);
  visit("avg_rho_mean", result.rho_mean.avg);
  visit("max_rho_mean", result.rho_mean.max);
  visit("rho_mean_above_1", result.rho_mean.above_1);
  visit("median_app_rho", result.median_app_rho);
  visit("max_app_rho", result.max_app_rho);
  visit("app_rho_at_most_1", result.app_rho_at_most_1);
  visit("app_jain_index", result.app_jain_index);
  visit("median_honest_app_rho", result.median_honest_app_rho);
  visit("max_honest_app_rho", result.max_honest_app_rho);
  visit("median_lying_app_rho", result.median_lying_app_rho);
  visit("busy_s", result.busy_s);
  visit("worst_share", result.worst_share);
  visit("interactive_jobs", result.interactive.jobs);
  visit("interactive_p50_start_s", result.interactive.p50_start_s);
  visit("interactive_p99_start_s", result.interactive.p99_start_s);
  visit("interactive_max_start_s", result.interactive.max_start_s);
  visit("interactive_paused", result.interactive.paused);
  visit("preemptions", result.preemptions);
  visit("moves", result.moves);
  visit("failures", result.failures);
  visit("rounds", result.rounds);
  visit("solves", result.solves);
  visit("lost_s", result.lost_s);
  visit("profiling_s", result.profiling_s);
  visit("placement_score", result.placement_score);
}

// The same of a run: all figures that are columns of `runs`, where NaN is NULL.
template <class Run, class Visitor>
void VisitFigures(Run& run, const Visitor& visit) {
  VisitResult(run.result, visit);
  visit("stretch_first", run.stretch_first);
  visit("stretch_second", run.stretch_second);
  visit("waiting_first", run.waiting_first);
  visit("waiting_second", run.waiting_second);
  visit("offered_load", run.offered_load);
  visit("wall_s", run.wall_s);
  visit("cpu_s", run.cpu_s);
}

// Whether the trace of one of the runs has apps that ended.
bool HaveApps(const std::vector<StoredRun>& runs);

// At most `samples_max` samples over the same time, each the mean of those in
// its place, weighted by their time.
std::vector<UsageSample> ThinUsage(const std::vector<UsageSample>& usage,
                                   size_t samples_max);

class SimulationStore {
 public:
  // A database with a later version of the tables is refused. One with an
  // earlier gets the tables and columns that it lacks.
  static constexpr uint64_t kSchemaVersion = 7;

  // Creates the file if there is none.
  static absl::StatusOr<SimulationStore> Open(const std::string& path);
  // NOT_FOUND when there is none.
  static absl::StatusOr<SimulationStore> OpenExisting(const std::string& path);

  // Adds a run in one transaction, and replaces one with the same key. Thins
  // usage to kUsageSamplesMax samples and drops leases after the first
  // kLeasesMax. Errors name the file.
  static constexpr size_t kUsageSamplesMax = 1000;
  static constexpr size_t kLeasesMax = 200'000;
  absl::Status Append(const StoredRun& run);

  // All runs by id, without jobs, apps, usage and leases, which are read by
  // run.
  absl::StatusOr<std::vector<StoredRun>> Runs();
  absl::StatusOr<std::vector<SimulatedJob>> Jobs(uint64_t run);
  absl::StatusOr<std::vector<SimulatedApp>> Apps(uint64_t run);
  absl::StatusOr<std::vector<UsageSample>> Usage(uint64_t run);
  absl::StatusOr<std::vector<RecordedLease>> Leases(uint64_t run);
  absl::StatusOr<std::set<uint64_t>> RunsWithLeases();

 private:
  SimulationStore(std::string path, SqliteDatabase database)
      : path_(std::move(path)), database_(std::move(database)) {}
  absl::Status Prepare();
  absl::Status Upgrade();
  absl::Status InsertAll(const StoredRun& run);

  std::string path_;  // for messages
  SqliteDatabase database_;
};

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_STORE_H_
