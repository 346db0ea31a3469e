// Predictions for the jobs of a coordinator: when a job would start and finish
// if it were submitted now, and how the shares of the present jobs would change
// under another policy. Both run the engine on the coordinator's report of its
// jobs. All functions are pure, except QueryLiveState(), WithParentsLeft(), and
// Predict(), which reads the clock to limit its run time.
#ifndef GAVEL_COORDINATOR_CLI_WHAT_IF_H_
#define GAVEL_COORDINATOR_CLI_WHAT_IF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/table.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/json_fields.h"
#include "core/units.h"
#include "study/simulation_run.h"

namespace gavel {

// ---- Jobs for a simulation, made from a coordinator's report (`gavel
// what-if`) or its journal (`gavel simulate --replay`).

struct PredictedJob {
  uint64_t id = 0;
  std::string name;
  std::string entity;
  // Both count where the engine is fair between users or apps, the app also for
  // policies that read apps.
  SimulatedOwner owner = {};
  std::string app = {};
  double arrival_s = 0;
  double weight = 1;
  int scale_factor = 1;
  double steps = 0;      // left to do, > 0
  bool limited = false;  // its time_limit comes before its last step
  // It ends by itself, nobody knows when: `steps` are its time_limit.
  bool at_most = false;
  bool opaque = false;  // nothing pauses it once it runs
  // Steps/s of the whole job by type. The job can't run on a type that is
  // missing.
  std::map<std::string, double> steps_per_s;
  double pause_s = 0;  // lost by each pause
  double idle_s = 0;   // for which it has accelerators before its first step
  event::Received received = {};
  std::vector<std::string> servers = {};  // SimulationOptions::servers
  // The next five are as in SimulatedWaits. `after` has ids of jobs and arrays;
  // those that are not among the jobs have ended.
  std::vector<uint64_t> after = {};
  double not_before_s = 0;  // after its arrival
  uint64_t array = 0;
  int at_once = 0;
  bool queued = true;
};

// Returns the trace and throughputs of these jobs, in the order of arrival, and
// `options` with their overheads and waits added. Sorts `jobs` in the same
// order: job I of the results is jobs[I]. INVALID_ARGUMENT: there are no jobs,
// or a value is invalid.
absl::StatusOr<study::SimulationInputs> MakeInputs(
    SimulationOptions options, std::vector<PredictedJob>* jobs);

// Returns the numbers in the object row[key], steps/s by type; an empty map if
// there is no such object.
std::map<std::string, double> RatesIn(const Json& row, const char* key);

// Converts counts of accelerators by (server, type) to parts of a simulated
// cluster.
std::vector<ClusterPart> PartsOf(
    const std::map<std::pair<std::string, std::string>, int>& counts);

// ---- The prediction, in virtual time.
//
// The simulation begins with the time that each job has received so far, in the
// middle of the present round. The jobs that have accelerators, on which they
// run or start, keep as many until that round ends. Which ones these are is
// known of opaque jobs only. The jobs still to come are not known. A job
// without steps_total and time_limit, and one whose speed nobody has given or
// measured, runs to the end of the simulation. An opaque job then runs to its
// time_limit, if it has one. Jobs that wait for others, for a time or for their
// turn in an array are held by the engine of the simulation as by that of the
// coordinator. A job is left out if it waits for one without a known end: one
// that is held or left out itself, that runs to the end of the simulation, or
// that its time_limit holds.
//
// A job keeps to the servers that its file lets it use. It is left out if they
// have too few accelerators that may be used, of each type that it may have,
// beside those of opaque jobs that run without a known end. It then takes no
// accelerators from others.

// The coordinator's answers to the queries kStatus, kNodes and kForecast.
struct LiveState {
  StatusRow status;
  std::vector<NodeRow> nodes;
  std::vector<ForecastRow> jobs;
  // The user who asks; empty: not known, or one without jobs (NoteUser).
  std::string user = {};
};

struct WhatIfJob {
  uint64_t id = 0;  // 0: the new job
  std::string name;
  Time start_s = kNever;  // from now; kNever: not within the simulation
  Time finish_s = kNever;
  Time finish_without_s = kNever;  // if the new job were not submitted
  bool at_most = false;            // the times of its end are the latest
  // So is the start: an opaque job, which may end sooner, ends before it.
  bool start_at_most = false;
};

struct WhatIf {
  std::string policy;
  WhatIfJob job;
  bool limited = false;  // `job` is held by its time_limit
  // `job` waits for parents whose end is not known, so neither is its own.
  bool after_parents = false;
  std::vector<WhatIfJob> others;  // those with a known end, by id
  size_t endless = 0;             // jobs without one
  bool cut_short = false;         // by `wall_limit_s`
  double simulated_s = 0;
};

// Asks the coordinator for all three parts of the state. `filter` is of
// kForecast: empty, or kWithWaiting for a prediction.
absl::StatusOr<LiveState> QueryLiveState(Client& client,
                                         std::string_view filter);

// Finds the user who asks, where that matters for the forecast of a new job.
absl::Status NoteUser(Client& client, LiveState* live);

// The job with the parents that it would wait for if it were submitted now,
// each by its id; all elements of an array are parents. Parents by index are
// left out. CANCELLED: it would be cancelled, since one of them was. NOT_FOUND
// or FAILED_PRECONDITION: one of them is not there.
absl::StatusOr<JobSpec> WithParentsLeft(Client& client, JobSpec spec);

// `spec` names its parents by id. INVALID_ARGUMENT: the job has no steps_total
// and no time_limit, or its throughputs are not known, which an opaque job with
// a time_limit does not need; the message names the missing value.
// FAILED_PRECONDITION: there are no accelerators.
absl::StatusOr<WhatIf> Predict(const LiveState& live, const JobSpec& spec,
                               double wall_limit_s);

// Why no forecast is made of an array, which is several jobs. Empty: of a
// single job there is one.
std::string NoForecastOf(const JobSpec& spec);

// Accelerators of one type that a job could have, on the servers that it names.
struct FitRow {
  std::string type;
  int accelerators = 0;
  int idle = 0;  // of these, at present
  std::vector<std::string> servers;
};
// The types of which the job could have enough. FAILED_PRECONDITION: there is
// none, so that it would never run; or the cluster has no accelerators.
absl::StatusOr<std::vector<FitRow>> FitOf(const JobSpec& spec,
                                          const std::vector<NodeRow>& nodes);
std::string RenderFit(const std::vector<FitRow>& rows);
Json FitJson(const std::vector<FitRow>& rows);

// ---- When the jobs that wait start and end (`gavel queue --start`).
//
// Nobody knows exactly how fast jobs will be. So the prediction is made several
// times, with each job up to kSpeedSpread times as fast or as slow as expected:
// kForecastRuns times, or as often as the time limit allows. The first time is
// with the speeds that are expected.

inline constexpr double kSpeedSpread = 1.25;
inline constexpr int kForecastRuns = 9;

struct Spread {
  Time earliest_s = kNever;  // from now; kNever: not within the simulation
  Time median_s = kNever;
  Time latest_s = kNever;
};
struct JobForecast {
  uint64_t id = 0;
  Spread start;
  Spread finish;         // a job without steps_total and time_limit: never
  bool at_most = false;  // `finish` is the latest end
  bool start_at_most = false;  // as in WhatIfJob
};
struct QueueForecast {
  std::vector<JobForecast> jobs;  // that have not ended, by id
  bool cut_short = false;         // the first simulation was
  int simulations = kForecastRuns;
};
// FAILED_PRECONDITION: there are no accelerators.
absl::StatusOr<QueueForecast> PredictQueue(const LiveState& live,
                                           double wall_limit_s);
// The jobs of `rows` that wait, in their order. `are_chosen`: other jobs may
// wait that are not among them.
std::string RenderForecast(const QueueForecast& forecast,
                           const std::vector<QueueRow>& rows, size_t width,
                           bool are_chosen = false);
Json ForecastJson(const QueueForecast& forecast,
                  const std::vector<QueueRow>& rows);
// Whether the simulations were fewer than they should be, as a line of text, or
// empty.
std::string ForecastNote(const QueueForecast& forecast);

// The keys that the JSON of a forecast has beside those of a job.
inline constexpr std::string_view kForecastKeys[] = {
    "after_parents", "start", "finish", "at_most", "start_at_most"};
// Leaves of `rows`, jobs as JSON, those that wait, and adds these keys.
void AddForecast(const QueueForecast& forecast, Json* rows);
// Puts text for a table in place of `start` and `finish` of each row.
void FormatForecast(const QueueForecast& forecast, Json* rows);

std::string RenderWhatIf(const WhatIf& answer, double wall_now_s);
Json WhatIfJson(const WhatIf& answer);

// ---- The preview of another policy.
//
// Both policies solve the problem that the engine makes from the report. This
// problem lacks measured pairs and, for finish-time fairness, the isolated time
// of each job.

struct ShareChange {
  uint64_t id = 0;
  std::string name;
  std::string owner;
  double before = 0;  // share of time by the policy that decides now, [0, 1]
  double after = 0;   // and by the other policy
};

struct PolicyPreview {
  std::string before;  // names of the policies
  std::string after;
  std::vector<ShareChange> jobs;  // by id
};

// INVALID_ARGUMENT: there is no such policy. FAILED_PRECONDITION: there are no
// accelerators, or one of the two finds no allocation.
absl::StatusOr<PolicyPreview> Preview(const LiveState& live,
                                      const std::string& policy);

// The jobs that lose most come first; jobs that keep their share are counted.
std::string RenderPreview(const PolicyPreview& preview, size_t width);
Json PreviewJson(const PolicyPreview& preview);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_WHAT_IF_H_
