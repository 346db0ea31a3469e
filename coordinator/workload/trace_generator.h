// Completes traces by measured throughputs: steps from durations and
// durations from steps, for traces that were read; and jobs drawn as the
// original Gavel draws them, number for number, with Python's Mersenne Twister
// and its random(), uniform() and choice() (docs/from-gavel.md).
#ifndef GAVEL_COORDINATOR_WORKLOAD_TRACE_GENERATOR_H_
#define GAVEL_COORDINATOR_WORKLOAD_TRACE_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"

namespace gavel {

// ---- Steps and durations, by the throughputs of the reference type.
// Thread-safe.

// Fills in the one of steps_total and duration_s that a job lacks. Where the
// table has no row for it, steps are seconds (1 step/s), and durations stay 0.
// INVALID_ARGUMENT names the job, its type and scale factor when it has a row,
// but cannot run on the reference type, or would have too many steps.
absl::Status CompleteTrace(const ThroughputTable& throughputs, Trace& trace);

// `throughputs` with rows for the scale factors of `trace` that it lacks, of
// types that it has, interactive jobs aside: the speeds of the next smaller
// scale factor there (else the smallest), in proportion; no pairs. Nothing when
// none is lacking. A notice of the trace tells of it.
std::optional<ThroughputTable> ScaleRows(const ThroughputTable& throughputs,
                                         Trace& trace);

// Gives jobs without a row and without a duration one, by 1 step/s; a notice of
// the trace tells of it.
void EqualizeUnknownTypes(const ThroughputTable& throughputs, Trace& trace);

// INVALID_ARGUMENT names the first job whose type and scale factor the table
// has no row for, and the closest type that it has. Jobs of kNoJobType need
// none.
absl::Status RequireKnownTypes(const ThroughputTable& throughputs,
                               const Trace& trace);

// ---- Drawing jobs. Deterministic by seed. Not thread-safe.

// Python's random.Random, number for number: the Mersenne Twister seeded by an
// integer, random(), uniform() and choice(). Deterministic. Not thread-safe.
class PythonRandom {
 public:
  // As random.Random(seed): init_by_array over the 32-bit digits of the seed.
  explicit PythonRandom(uint64_t seed);
  // In [0, 1), 53 bits.
  double Random();
  // a + (b - a) * Random().
  double Uniform(double a, double b);
  // An index below `size` >= 1, as choice() and randrange() draw it.
  size_t Below(size_t size);

 private:
  std::mt19937 engine_;
};

struct GeneratorOptions {
  uint64_t seed =
      0;  // of the scheduler: jobs s + 2, arrivals s + 3, SLOs s + 6
  // Mean time between arrivals, 3600 / (jobs per hour). 0: all at time 0.
  double interarrival_s = 0;
  bool multi_gpu = false;       // scale factors 1, 2, 4, 8 as drawn; else all 1
  bool multi_priority = false;  // a fifth of the jobs has weight 5
  bool slos = false;            // deadlines of 1.2, 2 or 10 times the duration
  double fixed_duration_s = 0;  // > 0: every job takes that long on a v100
  int scale_factor_max = 8;     // larger ones are dropped, arrivals are kept
  // 0: no apps. Else jobs come in apps of 1 to so many: the number is drawn
  // log-uniformly, and the jobs of an app arrive together and have one type and
  // scale factor. The rate of arrivals is then that of apps. (Themis, section
  // 8.1, has apps of 1 to 98 jobs with a median of 23, which the paper's traces
  // give; ours are drawn.)
  int app_jobs_max = 0;
  // The part of the arrivals that are interactive jobs (TraceJob), each on one
  // accelerator for a time that is drawn log-uniformly. Training jobs are the
  // same ones, one after the other, with any part.
  double interactive = 0;  // [0, 1]
  double interactive_shortest_s = 600;
  double interactive_longest_s = 7200;
};

// The 26 job types of Gavel (its job table), in the order in which it draws.
std::span<const JobTemplate> GavelJobTable();

class TraceGenerator {
 public:
  // `throughputs` must know the v100 and all 26 job types at the scale factors
  // that can be drawn. INVALID_ARGUMENT names a missing figure, or an option
  // out of range.
  static absl::StatusOr<TraceGenerator> Create(
      const GeneratorOptions& options, const ThroughputTable& throughputs);

  // The next job; there is always one. job_template indexes GavelJobTable(),
  // or is its size for an interactive job.
  TraceJob Next();
  // The first `count` jobs that are not dropped, from the present state on.
  Trace Take(size_t count);

 private:
  // steps/s on a v100 by scale factor; 0 for those that are not drawn.
  using StepsPerSecond = std::map<int, double>;

  TraceGenerator(const GeneratorOptions& options,
                 std::vector<StepsPerSecond> steps_per_s);
  int DrawScaleFactor();
  double DrawDuration();
  size_t DrawTemplate(int scale_factor);
  double DrawSlo();
  double DrawArrival();
  double DrawInterarrival();
  TraceJob Draw();
  TraceJob DrawInteractive();
  // One more job of the app whose jobs are being drawn.
  TraceJob DrawOfApp();

  GeneratorOptions options_;
  std::vector<StepsPerSecond> steps_per_s_;  // [26]
  PythonRandom jobs_;
  PythonRandom arrivals_;
  PythonRandom slos_;
  PythonRandom apps_;
  PythonRandom interactive_;
  TraceJob app_job_;       // the first job of the present app
  int app_jobs_left_ = 0;  // jobs of it that are still to be drawn
  size_t app_ = 0;         // index of the next app
  double arrival_s_ = 0;
  bool first_ = true;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TRACE_GENERATOR_H_
