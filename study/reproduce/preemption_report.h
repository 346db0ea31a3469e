// What ends of rounds cost, as text and as a page. Pure. Stateless,
// thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_
#define GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_

#include <cstddef>
#include <string>

#include "study/report/report_page.h"
#include "study/reproduce/preemption_run.h"

namespace gavel::study {

// Of as many workloads of `options`, from the first on, as `all` has. `width`:
// of the terminal.
std::string RenderPreemption(const PreemptionOptions& options,
                             const PreemptionRounds& all, size_t width);
std::string RenderPreemptionMarkdown(const PreemptionOptions& options,
                                     const PreemptionRounds& all);
ReportPage PreemptionPage(const PreemptionOptions& options,
                          const PreemptionRounds& all);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_PREEMPTION_REPORT_H_
