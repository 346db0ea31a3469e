// The page of `gavel report` on a results database, and the sections that it is
// made of, each with its plots and their data. Reads the database, writes
// nothing. Not thread-safe; borrows the store.
#ifndef GAVEL_STUDY_REPORT_H_
#define GAVEL_STUDY_REPORT_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "study/report_page.h"
#include "study/simulation_spec.h"
#include "study/simulation_store.h"

namespace gavel::study {

struct ReportOptions {
  std::string title;
  bool each_run = false;  // also charts of single runs
};

// Each chart has a line for each scheduler; a note below it names those that it
// lacks. Empty sections are left out, except the table of runs.
// NOT_FOUND: the database has no runs.
absl::StatusOr<ReportPage> MakeReport(SimulationStore& store,
                                      const ReportOptions& options);

// Runs of the same jobs on the same cluster, which a plot compares.
struct RunGroup {
  std::string title;
  std::vector<const StoredRun*> runs;  // finished ones, by scheduler and seed
  std::vector<const StoredRun*> unfinished;
};

class ReportContext {
 public:
  static absl::StatusOr<ReportContext> Create(SimulationStore& store);

  SimulationStore& store() const { return *store_; }
  const std::vector<StoredRun>& runs() const { return runs_; }
  const RunLabels& labels() const { return labels_; }
  // The color of a scheduler of the runs, the same in all plots.
  size_t ColorOf(const std::string& scheduler) const;
  // The groups of runs, in the order of workload and load.
  std::vector<RunGroup> Groups() const;
  // Notes in `section` which schedulers a chart of these runs lacks, and why,
  // of those that were run on this workload. `no_data`: the reason of one whose
  // runs ended.
  void NoteMissing(const std::string& chart, const RunGroup& runs,
                   const std::set<std::string>& drawn, std::string_view no_data,
                   ReportSection* section) const;

 private:
  ReportContext(SimulationStore& store, std::vector<StoredRun> runs);
  std::string WhyNotDrawn(const std::string& scheduler, const RunGroup& runs,
                          std::string_view no_data) const;
  SimulationStore* store_;
  std::vector<StoredRun> runs_;
  RunLabels labels_;
  std::map<std::string, size_t> colors_;
};

// Figures of runs as a whole: report.cc.
ReportSection JctAgainstRate(const ReportContext& context);
ReportSection MakespanAgainstJobs(const ReportContext& context);
ReportSection AllRuns(const ReportContext& context);

// Charts of single runs: report_details.cc.
absl::StatusOr<ReportSection> JctDistributions(const ReportContext& context);
absl::StatusOr<ReportSection> RhoDistributions(const ReportContext& context);
// Empty where no run has apps.
absl::StatusOr<ReportSection> AppRhoDistributions(const ReportContext& context);
absl::StatusOr<ReportSection> FairnessOverTime(const ReportContext& context);
// `each_run`: also a chart for each run; without it rounds are not drawn.
absl::StatusOr<ReportSection> UsageOverTime(const ReportContext& context,
                                            bool each_run);
absl::StatusOr<ReportSection> SharesReceived(const ReportContext& context,
                                             bool each_run);
absl::StatusOr<ReportSection> RoundsOverTime(const ReportContext& context,
                                             bool each_run);

// At most `count` of them, from the first to the last, evenly spread.
template <class T>
std::vector<T> Spread(const std::vector<T>& all, size_t count) {
  if (all.size() <= count) return all;
  std::vector<T> chosen;
  for (size_t i = 0; i < count; ++i) {
    chosen.push_back(all[i * (all.size() - 1) / (count > 1 ? count - 1 : 1)]);
  }
  return chosen;
}

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_H_
