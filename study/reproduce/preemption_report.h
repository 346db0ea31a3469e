// What ends of rounds cost, as text and as a page. Pure. Stateless,
// thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_
#define GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_

#include <string>
#include <vector>

#include "study/report/report_page.h"
#include "study/reproduce/preemption_run.h"

namespace gavel {

// Medians over the rounds of one way, seconds; and the part of all rounds that
// was not training.
struct PreemptionFigures {
  double lost_s = 0;
  double leaving_s = 0;
  double away_s = 0;
  double resuming_s = 0;
  double lost_part = 0;
};
PreemptionFigures FiguresOf(const std::vector<MeasuredRound>& rounds);

// Of the first workloads, as many as `all` has. `width`: of the terminal. The
// time line is of the rounds as they were run.
std::string RenderPreemption(const PreemptionOptions& options,
                             const PreemptionRounds& all, size_t width);
std::string RenderPreemptionMarkdown(const PreemptionOptions& options,
                                     const PreemptionRounds& all);
ReportPage PreemptionPage(const PreemptionOptions& options,
                          const PreemptionRounds& all);

}  // namespace gavel

#endif  // GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_
