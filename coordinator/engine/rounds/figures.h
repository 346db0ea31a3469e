// How fast jobs are, by all that is known: alone, beside another job, on the
// accelerators that they have, and how far they have come by that. Reads only;
// measurements.h adds to it. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_FIGURES_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_FIGURES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/workers/avoidance.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/accelerator_speeds.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

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

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_FIGURES_H_
