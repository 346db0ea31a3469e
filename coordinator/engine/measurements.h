// What is learnt of the speed of jobs: figures of the job file and of the
// throughput table, what workers report alone and in pairs, and the row of the
// table that a job is most like.
//
// Not thread-safe. No snapshot fields: the figures are ThroughputMatrix's and
// Job's, rows of the table are found again.
#ifndef GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
#define GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/reference_rows.h"
#include "coordinator/engine/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class Measurements {
 public:
  // Borrowed, and outlive this.
  Measurements(Agenda& agenda, JobTable& jobs, const Cluster& cluster,
               ThroughputMatrix& throughputs, AcceleratorSpeeds& speeds,
               const EngineOptions& options, const Figures& figures)
      : agenda_(agenda),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        speeds_(speeds),
        options_(options),
        figures_(figures) {}

  // What the job file leaves open, by the table, and by the full names of
  // types: journaled with the job, so that a replay needs no table.
  void FillThroughputs(JobSpec& spec) const;
  // What rank 0 tells while it holds a lease.
  void Measure(Time now, Job& job, const Progress& progress);
  // Their throughput file may be another one by now.
  void FindTableRows();
  // Of the types that are there: once more when another one comes.
  void BarTypes(const Job& job);
  // What `job`, which the table lacks, keeps beside `other`, which it knows: so
  // that it stays known when that one is gone. True: there is such a figure.
  bool KeepPairCell(Job& job, const Job& other, const std::string& type);
  // Its own, else that of the reference that it is most like by all that is
  // known of it: then it is thought to be as that one on types where nobody
  // knows.
  void FindTableRow(Job& job);

 private:
  bool WasBeside(Time now, const Job& job, double window_s) const;
  void MeasurePair(Time now, Job& job, const Progress& progress);
  std::vector<ProfiledCell> CellsOf(const Job& job) const;
  void MeasureAlone(Time now, Job& job, const Progress& progress);

  Agenda& agenda_;
  JobTable& jobs_;
  const Cluster& cluster_;
  ThroughputMatrix& throughputs_;
  AcceleratorSpeeds& speeds_;
  const EngineOptions& options_;
  const Figures& figures_;
  std::optional<ReferenceRows> references_;  // of options_.throughputs
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
