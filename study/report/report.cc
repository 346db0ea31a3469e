#include "study/report/report.h"

#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "study/report/report_sections.h"

namespace gavel {
namespace {

std::string SummaryOf(const ReportContext& context) {
  std::map<RunStatus, size_t> counts;
  for (const StoredRun& run : context.runs()) ++counts[run.run.status];
  std::string text = StrCat(context.runs().size(), " runs");
  for (const auto& [status, count] : counts) {
    StrAppend(&text, ", ", count, " ", RunStatusName(status));
  }
  return text + ". JCT: job completion time, from arrival to completion.";
}

}  // namespace

absl::StatusOr<ReportPage> MakeReport(SimulationStore& store,
                                      const ReportOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const ReportContext context,
                         ReportContext::Create(store));
  ReportPage page{options.title, SummaryOf(context), {}};
  const auto add = [&page](ReportSection section) {
    if (section.csv.empty() && section.notes.empty()) return;
    page.sections.push_back(std::move(section));
  };
  add(JctAgainstRate(context));
  using Maker = absl::StatusOr<ReportSection> (*)(const ReportContext& context,
                                                  bool each_run);
  GAVEL_ASSIGN_OR_RETURN(ReportSection jcts, JctDistributions(context));
  add(std::move(jcts));
  add(MakespanAgainstJobs(context));
  for (const Maker make : {UsageOverTime, SharesReceived, RoundsOverTime}) {
    GAVEL_ASSIGN_OR_RETURN(ReportSection section,
                           make(context, options.each_run));
    add(std::move(section));
  }
  page.sections.push_back(AllRuns(context));
  return page;
}

}  // namespace gavel
