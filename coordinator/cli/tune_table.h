// The trials of a search as a table, as JSON, and as a page with a plot. Pure.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_TUNE_TABLE_H_
#define GAVEL_COORDINATOR_CLI_TUNE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/cli/tune_run.h"
#include "coordinator/workload/json_fields.h"

namespace gavel {

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

#endif  // GAVEL_COORDINATOR_CLI_TUNE_TABLE_H_
