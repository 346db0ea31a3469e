// The results database: runs of simulations in one SQLite file, with their
// jobs, and what was recorded of accelerators over time. Written by `gavel
// sweep` and `gavel reproduce`, read by `gavel report` (also meanwhile), and by
// any other program: docs/simulator.md tells the tables.
//
// Not thread-safe; processes may share a file. Status codes: those of
// server/sqlite.h, and NOT_FOUND, INVALID_ARGUMENT for a file that is none.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATION_STORE_H_
#define GAVEL_STUDY_SIMULATION_SIMULATION_STORE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/server/journal/sqlite.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_spec.h"

namespace gavel {

struct StoredRun {
  uint64_t id = 0;  // given by the database
  std::string key;  // SimulationInputCache::KeyOf
  SimulationSpec spec;
  SimulationRun run;
};

// Calls visit(name, field) for each figure of a run that is one column of the
// table `runs`: double or uint64_t. NaN is NULL there.
template <class Run, class Visitor>
void VisitFigures(Run& run, const Visitor& visit) {
  auto& result = run.result;
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
  visit("worst_share", result.worst_share);
  visit("preemptions", result.preemptions);
  visit("moves", result.moves);
  visit("failures", result.failures);
  visit("rounds", result.rounds);
  visit("solves", result.solves);
  visit("lost_s", result.lost_s);
  visit("profiling_s", result.profiling_s);
  visit("stretch_first", run.stretch_first);
  visit("stretch_second", run.stretch_second);
  visit("wall_s", run.wall_s);
  visit("cpu_s", run.cpu_s);
}

class SimulationStore {
 public:
  // Of the tables. A database of another version is refused.
  static constexpr uint64_t kSchemaVersion = 2;

  // Makes the file if there is none.
  static absl::StatusOr<SimulationStore> Open(const std::string& path);
  // NOT_FOUND when there is none.
  static absl::StatusOr<SimulationStore> OpenExisting(const std::string& path);

  // Adds a run, in one transaction; one with the same key is replaced.
  // Samples of usage are thinned to kUsageSamplesMax, leases after the first
  // kLeasesMax are left out. Errors name the file.
  static constexpr size_t kUsageSamplesMax = 1000;
  static constexpr size_t kLeasesMax = 200'000;
  absl::Status Append(const StoredRun& run);

  // What became of each run, by key.
  absl::StatusOr<std::map<std::string, RunStatus>> Statuses();
  // All runs by id, without jobs, usage and leases.
  absl::StatusOr<std::vector<StoredRun>> Runs();
  // These of one run.
  absl::StatusOr<std::vector<SimulatedJob>> Jobs(uint64_t run);
  absl::StatusOr<std::vector<UsageSample>> Usage(uint64_t run);
  absl::StatusOr<std::vector<RecordedLease>> Leases(uint64_t run);
  absl::StatusOr<std::set<uint64_t>> RunsWithLeases();

 private:
  SimulationStore(std::string path, SqliteDatabase database)
      : path_(std::move(path)), database_(std::move(database)) {}
  absl::Status Prepare();
  absl::Status AppendWhole(const StoredRun& run);
  absl::Status InsertAll(const StoredRun& run);
  absl::StatusOr<uint64_t> InsertRun(const StoredRun& run);

  std::string path_;  // for messages
  SqliteDatabase database_;
};

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_SIMULATION_STORE_H_
