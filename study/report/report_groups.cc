// Which runs a report compares, and what its charts lack.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "study/report/report_sections.h"

namespace gavel {

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
    : store_(&store), runs_(std::move(runs)), labels_(runs_) {
  for (const StoredRun& run : runs_) colors_[labels_.Scheduler(run.spec)];
  size_t color = 0;
  for (auto& [scheduler, its_color] : colors_) its_color = color++;
}

size_t ReportContext::ColorOf(const std::string& scheduler) const {
  const auto it = colors_.find(scheduler);
  return it == colors_.end() ? 0 : it->second;
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

std::vector<const StoredRun*> ReportContext::OneEach(
    const RunGroup& group) const {
  std::vector<const StoredRun*> chosen;
  std::set<std::string> seen;
  for (const StoredRun* run : group.runs) {
    if (seen.insert(labels_.Scheduler(run->spec)).second) {
      chosen.push_back(run);
    }
  }
  return chosen;
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
  std::string why;
  for (const auto& [end, count] : ends) {
    StrAppend(&why, why.empty() ? "" : ", ", count, " ", end);
  }
  return ends.empty() ? "not run" : StrCat("no run of it ended: ", why);
}

std::string ReportContext::NotDrawn(const std::string& chart,
                                    const RunGroup& runs,
                                    const std::set<std::string>& drawn,
                                    std::string_view no_data) const {
  std::string missing;
  for (const auto& [scheduler, color] : colors_) {
    if (drawn.contains(scheduler)) continue;
    StrAppend(&missing, missing.empty() ? "" : "; ", scheduler, " (",
              WhyNotDrawn(scheduler, runs, no_data), ")");
  }
  if (missing.empty()) return "";
  return StrCat(drawn.empty() ? "Nothing to draw of " : "Not in the chart of ",
                chart, ": ", missing, ".");
}

}  // namespace gavel
