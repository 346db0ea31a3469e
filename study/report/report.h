// The page of `gavel report` on a results database. Reads the database, writes
// nothing. Not thread-safe.
#ifndef GAVEL_STUDY_REPORT_REPORT_H_
#define GAVEL_STUDY_REPORT_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "study/report/report_page.h"
#include "study/simulation/simulation_store.h"

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

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_REPORT_H_
