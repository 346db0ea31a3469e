// Carries a search out on a coordinator (coordinator/tune decides): submits a
// segment of a trial as a job, which ends with a checkpoint at its last step,
// reads the metric from that checkpoint, and continues the trial with a further
// job of the same name in the same directory, exactly as a restart does.
//
// The search's folder has all of it, and must be on a disk that all servers
// share:
//
//   search.json       the record (optimiser.h), from which it resumes
//   report.html       trials and the metric by steps
//   trials/3/0/       checkpoints of trial 3 from its beginning on
//   trials/3/2700/    the same since it continued another trial's at that step
//
// Called by `gavel tune`. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_TUNE_RUN_H_
#define GAVEL_COORDINATOR_CLI_TUNE_RUN_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/client.h"
#include "coordinator/server/rows.h"
#include "coordinator/tune/optimiser.h"
#include "coordinator/workload/json_fields.h"
#include "runtime/files/files.h"

namespace gavel {

// A program that is the optimiser: it reads questions from its standard input
// and writes answers to its standard output, a line of JSON each. The
// destructor closes both and kills it. Not thread-safe.
class OptimiserProgram {
 public:
  static constexpr double kAnswerTimeout_s = 60;

  // NOT_FOUND and others of execvp: it can't be started.
  static absl::StatusOr<std::unique_ptr<OptimiserProgram>> Start(
      const std::vector<std::string>& argv, double timeout_s);
  ~OptimiserProgram();
  OptimiserProgram(const OptimiserProgram&) = delete;
  OptimiserProgram& operator=(const OptimiserProgram&) = delete;

  // UNAVAILABLE: it has ended. DEADLINE_EXCEEDED: it does not read.
  absl::Status Write(const std::string& line);
  // Its next line. As Write, and RESOURCE_EXHAUSTED: the line is longer than
  // tune::kAnswerBytesMax.
  absl::StatusOr<std::string> Read();

 private:
  OptimiserProgram(std::string name, pid_t pid, Descriptor socket,
                   double timeout_s);
  absl::Status Wait(short events, double until_s) const;

  const std::string name_;
  const pid_t pid_;
  const Descriptor socket_;
  const double timeout_s_;
  std::string read_;  // not yet taken
};

class TuneRun {
 public:
  struct Options {
    Connection connection;
    std::string source;  // the search file, for messages
    std::string text;
    std::vector<std::string> command;  // the program that trains
    std::string folder;
  };

  // Makes the folder, or reads the record in it. INVALID_ARGUMENT: the search
  // file or the command is wrong. FAILED_PRECONDITION: the folder belongs to
  // another search. ALREADY_EXISTS: the search is being carried out by another
  // process.
  static absl::StatusOr<std::unique_ptr<TuneRun>> Open(Options options);

  // Until the search is over, or `stop`: CANCELLED; its jobs go on. `show` is
  // called after each look at the jobs. While the coordinator does not answer
  // it waits. FAILED_PRECONDITION: the coordinator refuses a job; or the first
  // trials all failed, or all trials.
  absl::Status Run(const std::atomic<bool>& stop,
                   const std::function<void()>& show);
  // Cancels the jobs of trials that run, and returns how many there were. They
  // are no part of the record any more, so that Run begins them again.
  absl::StatusOr<int> CancelJobs();

  const tune::SearchSpec& spec() const { return spec_; }
  const tune::SearchState& state() const { return state_; }
  bool over() const { return over_; }
  // Why nothing can be learnt now; empty: the coordinator answers.
  const std::string& trouble() const { return trouble_; }
  // Steps that a trial's running job has done.
  uint64_t StepsNow(int trial) const;
  // Where the checkpoints of a trial lie at those steps.
  std::string DirectoryOf(int trial, uint64_t steps) const;

 private:
  TuneRun(Options options, tune::SearchSpec spec, tune::SearchState state,
          FileLock lock);
  absl::StatusOr<std::string> JobText(const tune::Segment& segment) const;
  std::string JobName(int trial) const;
  uint64_t LifeOf(const tune::Segment& segment) const;
  absl::Status Save() const;
  absl::Status WritePage() const;
  absl::Status Ask(const tune::Question& question);
  absl::Status Begin(const std::vector<tune::Segment>& next);
  absl::Status CopySource(const tune::Segment& segment) const;
  absl::Status LookAtJobs();
  absl::Status TellGoal();
  void EndApp();
  absl::StatusOr<std::vector<QueueRow>> RowsOf(Json filter);
  absl::Status Submit(tune::TrialSegment& segment);
  // Changes the weights of the running jobs so that the best trial so far has
  // best_weight times the others' (Gandiva, OSDI'18, section 5: priorities from
  // outside).
  void FavourBest(const std::map<uint64_t, QueueRow>& by_id);
  void TakeEnd(const QueueRow& row, tune::TrialSegment& segment) const;
  absl::StatusOr<double> ReadMetric(const tune::Segment& segment) const;
  absl::Status CheckFailures() const;

  const Options options_;
  const tune::SearchSpec spec_;
  tune::SearchState state_;
  const FileLock lock_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<OptimiserProgram> program_;
  std::map<int, uint64_t> steps_now_;  // by trial
  double base_weight_ = 1;             // of the trials' jobs
  std::string weight_refused_;         // why; empty: it was not refused
  std::string trouble_;
  bool over_ = false;
  std::optional<AppGoal> told_;  // by this process
};

// ---- The trials of a search as a table, as JSON, and as a page with a plot
//
// Pure, stateless, thread-safe.

struct TrialRow {
  int trial = 0;
  std::string values;  // "lr=0.01 depth=3", as it trains now
  // running, paused (it may go on), done, stopped (it does not), failed.
  std::string state;
  uint64_t steps = 0;
  std::optional<double> value;  // the metric at the last steps that have one
  uint64_t value_steps = 0;
  // From the first submission to the end of the first segment.
  std::optional<double> first_s;
  std::string why;
  std::string directory;                           // of its checkpoints
  std::vector<std::pair<uint64_t, double>> curve;  // the metric by steps
};

// The trials by number.
std::vector<TrialRow> TrialRows(const TuneRun& run);

// Most steps that all trials of the search can take together, and those that
// they have taken.
uint64_t StepsPlanned(const tune::SearchSpec& spec);
uint64_t StepsTaken(const TuneRun& run);

// TRIAL STATE STEPS METRIC FIRST PARAMETERS, the best first; FIRST is the time
// to the first rung.
std::string RenderTrials(const TuneRun& run, size_t width);
// "Best: trial 3, loss 0.25 at step 8100 (lr=0.01), checkpoints in DIRECTORY".
std::string RenderBest(const TuneRun& run);
Json TrialsJson(const TuneRun& run);
std::string TrialsPage(const TuneRun& run);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_TUNE_RUN_H_
