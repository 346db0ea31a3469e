#include "study/report/report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
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

absl::StatusOr<ReportContext> ReportContext::Create(SimulationStore& store) {
  GAVEL_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, store.Runs());
  if (runs.empty()) {
    return absl::NotFoundError(
        "no runs in it yet; `gavel sweep` and `gavel reproduce` make them");
  }
  return ReportContext(store, std::move(runs));
}

ReportContext::ReportContext(SimulationStore& store,
                             std::vector<StoredRun> runs)
    : store_(&store), runs_(std::move(runs)), labels_(SpecsOf(runs_)) {
  for (const StoredRun& run : runs_) colors_[labels_.Scheduler(run.spec)];
  size_t color = 0;
  for (auto& [scheduler, its_color] : colors_) its_color = color++;
}

size_t ReportContext::ColorOf(const std::string& scheduler) const {
  return colors_.at(scheduler);
}

std::vector<RunGroup> ReportContext::Groups() const {
  using Key = std::tuple<std::string, std::string, double, uint64_t>;
  std::map<Key, RunGroup> group_of;
  for (const StoredRun& run : runs_) {
    const SimulationSpec& spec = run.spec;
    RunGroup& group = group_of[{labels_.Workload(spec), spec.trace,
                                spec.rate_per_h, GeneratedJobs(spec)}];
    if (group.title.empty()) {
      const std::string workload = labels_.Workload(spec);
      group.title =
          StrCat(LoadLabel(spec), workload.empty() ? "" : ", ", workload);
    }
    (run.run.status == RunStatus::kOk ? group.runs : group.unfinished)
        .push_back(&run);
  }
  std::vector<RunGroup> groups;
  for (auto& [key, group] : group_of) {
    std::ranges::stable_sort(group.runs, {}, [this](const StoredRun* run) {
      return std::pair(labels_.Scheduler(run->spec), run->spec.seed);
    });
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string ReportContext::WhyNotDrawn(const std::string& scheduler,
                                       const RunGroup& runs,
                                       std::string_view no_data) const {
  const auto is_of = [&](const StoredRun* run) {
    return labels_.Scheduler(run->spec) == scheduler;
  };
  if (std::ranges::any_of(runs.runs, is_of)) return std::string(no_data);
  std::map<std::string_view, size_t> ends;
  for (const StoredRun* run : runs.unfinished) {
    if (is_of(run)) ++ends[RunStatusName(run->run.status)];
  }
  const auto why = [](std::string* out, const auto& one) {
    StrAppend(out, one.second, " ", one.first);
  };
  return ends.empty()
             ? "not run"
             : StrCat("no run of it ended: ", absl::StrJoin(ends, ", ", why));
}

void ReportContext::NoteMissing(const std::string& chart, const RunGroup& runs,
                                const std::set<std::string>& drawn,
                                std::string_view no_data,
                                ReportSection* section) const {
  std::string missing;
  for (const auto& [scheduler, color] : colors_) {
    if (drawn.contains(scheduler)) continue;
    StrAppend(&missing, missing.empty() ? "" : "; ", scheduler, " (",
              WhyNotDrawn(scheduler, runs, no_data), ")");
  }
  if (missing.empty()) return;
  section->notes.push_back(
      StrCat(drawn.empty() ? "Nothing to draw of " : "Not in the chart of ",
             chart, ": ", missing, "."));
}

absl::StatusOr<ReportPage> MakeReport(SimulationStore& store,
                                      const ReportOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto context, ReportContext::Create(store));
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
  for (const auto fairness : {RhoDistributions, FairnessOverTime}) {
    GAVEL_ASSIGN_OR_RETURN(auto section, fairness(context));
    add(std::move(section));
  }
  for (const Maker make : {UsageOverTime, SharesReceived, RoundsOverTime}) {
    GAVEL_ASSIGN_OR_RETURN(auto section, make(context, options.each_run));
    add(std::move(section));
  }
  page.sections.push_back(AllRuns(context));
  return page;
}

}  // namespace gavel::study
