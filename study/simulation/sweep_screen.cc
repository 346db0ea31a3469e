#include "study/simulation/sweep_screen.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/cli/progress_bar.h"
#include "coordinator/cli/table.h"
#include "core/text.h"
#include "study/simulation/run_labels.h"

namespace gavel::study {
namespace {

constexpr size_t kActiveShown = 8;

std::string ResultOf(const StoredRun& run) {
  std::string text =
      run.run.status == RunStatus::kOk
          ? StrCat("average JCT ", FormatHours(run.run.result.avg_jct_s),
                   ", makespan ", FormatHours(run.run.result.makespan_s))
          : StrCat(RunStatusName(run.run.status), ": ", run.run.detail);
  return StrCat(text, "  (", FormatDuration(run.run.wall_s), ")");
}

// The runs of one row: they differ by seed only.
struct Row {
  std::vector<std::string> cells;  // the fields that vary
  std::map<RunStatus, size_t> statuses;
  std::vector<const SimulationResult*> results;
  double cpu_s = 0;
};

double MeanOf(const Row& row, double SimulationResult::*figure) {
  double sum = 0;
  for (const SimulationResult* result : row.results) sum += result->*figure;
  return sum / static_cast<double>(row.results.size());
}

std::string StatusCell(const Row& row) {
  const bool one_status = row.statuses.size() == 1;
  return absl::StrJoin(row.statuses, ", ",
                       [&](std::string* out, const auto& one) {
                         if (!one_status) StrAppend(out, one.second, " ");
                         StrAppend(out, RunStatusName(one.first));
                       });
}

std::vector<std::string> FigureCells(const Row& row) {
  using Result = SimulationResult;
  const auto hours = [&](double Result::*figure) {
    return FormatNumber(MeanOf(row, figure) / 3600, 2);
  };
  return {hours(&Result::avg_jct_s),
          hours(&Result::p99_jct_s),
          hours(&Result::makespan_s),
          FormatNumber(100 * MeanOf(row, &Result::cluster_utilization), 1),
          FormatNumber(row.cpu_s, 1),
          StatusCell(row)};
}

bool IsSeed(const std::string& name) { return name == "seed"; }

std::vector<Row> RowsOf(const std::vector<StoredRun>& runs,
                        const RunLabels& labels) {
  std::vector<Row> rows;
  std::map<std::vector<std::string>, size_t> row_of;
  const std::vector<std::string>& names = labels.varying();
  for (const StoredRun& run : runs) {
    std::vector<std::string> cells = labels.Texts(run.spec);
    for (size_t i = cells.size(); i-- > 0;) {
      if (IsSeed(names[i])) cells.erase(cells.begin() + static_cast<long>(i));
    }
    const auto [it, is_new] = row_of.emplace(cells, rows.size());
    if (is_new) rows.push_back({std::move(cells), {}, {}, 0});
    Row& row = rows[it->second];
    ++row.statuses[run.run.status];
    row.cpu_s += run.run.cpu_s;
    if (run.run.status == RunStatus::kOk) {
      row.results.push_back(&run.run.result);
    }
  }
  return rows;
}

std::string RenderRuns(const std::vector<StoredRun>& runs, size_t width) {
  const RunLabels labels(SpecsOf(runs));
  std::vector<Column> columns = {Left("STATUS")};
  for (std::string name : labels.varying()) {
    if (IsSeed(name)) continue;
    std::ranges::transform(name, name.begin(), [](unsigned char letter) {
      return static_cast<char>(std::toupper(letter));
    });
    columns.push_back(Left(name, 34));
  }
  for (const char* title :
       {"AVG JCT h", "P99 h", "MAKESPAN h", "BUSY %", "CPU s"}) {
    columns.push_back({title, true});
  }
  TableRows cells;
  for (Row& row : RowsOf(runs, labels)) {
    row.cells.insert(row.cells.begin(), StatusCell(row));
    for (std::string& cell : FigureCells(row)) {
      row.cells.push_back(std::move(cell));
    }
    cells.push_back(std::move(row.cells));
  }
  return RenderTable(columns, cells, width);
}

std::string RenderSearches(const std::vector<SearchAnswer>& searches,
                           size_t width) {
  const RunLabels labels(SpecsOf(searches));
  TableRows cells;
  for (const SearchAnswer& answer : searches) {
    std::string rate = FieldText(answer.rate_per_h);
    if (answer.rate_per_h <= 0) rate = "below rate_min";
    if (answer.at_upper_end) rate = StrCat("at least ", rate);
    cells.push_back({labels.Scheduler(answer.spec),
                     labels.Workload(answer.spec), StrCat(answer.spec.seed),
                     std::move(rate), FormatNumber(answer.capacity_per_h, 2)});
  }
  std::ranges::sort(cells);
  return RenderTable({Left("SCHEDULER", 40), Left("WORKLOAD", 34),
                      Right("SEED"), Left("HIGHEST JOBS/H"), Right("CAPACITY")},
                     cells, width);
}

}  // namespace

void SweepScreen::ShowLines(const SweepProgress& progress) {
  for (const EndedRun& ended : progress.ended) {
    std::printf("[%zu/%zu] %s: %s\n", ++told_, progress.runs,
                ended.label.c_str(), ResultOf(ended.run).c_str());
  }
  std::fflush(stdout);
}

void SweepScreen::Show(const SweepProgress& progress) {
  if (!terminal_.is_terminal()) {
    if (!quiet_) ShowLines(progress);
    return;
  }
  std::string note = StrCat(progress.done, "/", progress.runs, " runs");
  if (progress.skipped > 0) {
    StrAppend(&note, ", ", progress.skipped, " known");
  }
  std::string text = RenderBar(label_, progress.fraction, clock_.elapsed_s(),
                               note, terminal_.width());
  const size_t shown = std::min(progress.active.size(), kActiveShown);
  for (size_t i = 0; i < shown; ++i) {
    StrAppend(&text,
              Cut(StrCat("  ", progress.active[i]), terminal_.width() - 1),
              "\n");
  }
  terminal_.Show(text);
}

void SweepScreen::Clear() {
  if (terminal_.is_terminal()) terminal_.Show("");
}

std::string RenderOutcome(const SweepOutcome& outcome, size_t width) {
  if (!outcome.searches.empty()) return RenderSearches(outcome.searches, width);
  return outcome.runs.empty() ? "" : RenderRuns(outcome.runs, width);
}

}  // namespace gavel::study
