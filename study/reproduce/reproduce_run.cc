#include "study/reproduce/reproduce_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel::study {
namespace {

// The worst published average is 104 h.
constexpr double kJctLimit_s = 500 * kHour_s;
// What counts as reproduced.
constexpr double kTolerance = 0.05;

constexpr double kHighWeight = 5;

absl::StatusOr<double> JctOfWeight(SimulationStore& store, uint64_t run,
                                   bool high) {
  GAVEL_ASSIGN_OR_RETURN(const auto jobs, store.Jobs(run));
  double sum = 0;
  double count = 0;
  for (const SimulatedJob& job : jobs) {
    if (job.completion_s == kNever || (job.weight >= kHighWeight) != high) {
      continue;
    }
    sum += job.jct_s;
    ++count;
  }
  return count > 0 ? sum / count / kHour_s : kNaN;
}

double PartOf(uint64_t some, uint64_t all) {
  return all > 0 ? static_cast<double>(some) / static_cast<double>(all) : kNaN;
}

// `base`: the run that ratios refer to.
absl::StatusOr<double> ValueOf(Measure measure, const StoredRun& run,
                               const StoredRun* base, SimulationStore& store) {
  const SimulationResult& result = run.run.result;
  switch (measure) {
    case Measure::kAvgJct:
      return result.avg_jct_s / kHour_s;
    case Measure::kHighPriorityJct:
      return JctOfWeight(store, run.id, true);
    case Measure::kLowPriorityJct:
      return JctOfWeight(store, run.id, false);
    case Measure::kMakespan:
      return result.makespan_s / kHour_s;
    case Measure::kCostSaving:
      return base == nullptr ? kNaN
                             : base->run.result.total_cost / result.total_cost;
    case Measure::kJctRatio:
      return base == nullptr ? kNaN
                             : result.avg_jct_s / base->run.result.avg_jct_s;
    case Measure::kSloViolations:
      return PartOf(result.slo_violations, result.slo_jobs);
    case Measure::kPreemptions:
      return static_cast<double>(result.preemptions);
    case Measure::kMoves:
      return static_cast<double>(result.moves);
    case Measure::kLostTime:
      return result.lost_s / kHour_s;
    case Measure::kWorstShare:
      return result.worst_share;
    case Measure::kMaxRho:
      return result.max_rho;
    case Measure::kProfilingTime:
      return result.profiling_s / kHour_s;
  }
  return kNaN;
}

bool IsCount(Measure measure) {
  return measure == Measure::kPreemptions || measure == Measure::kMoves;
}

std::string Shown(Measure measure, double value) {
  if (!std::isfinite(value)) return "-";
  if (IsCount(measure)) return absl::StrFormat("%.0f", value);
  const double size = std::abs(value);
  return absl::StrFormat("%.*f", size < 10 ? 3 : size < 100 ? 2 : 1, value);
}

std::string ChangeOf(double ours, double base) {
  if (base == 0) return ours == 0 ? "as many" : "more";
  return absl::StrFormat("%+.0f %%", 100 * (ours / base - 1));
}

std::string Verdict(const PaperCase& one, double ours, bool comparable) {
  if (!one.published || !std::isfinite(ours) || !comparable) return "";
  if (*one.published == 0) return ours == 0 ? "same" : "more";
  const double ratio = ours / *one.published;
  const bool better = IsLowerBetter(one.measure) ? ratio <= 1 : ratio >= 1;
  const std::string difference = absl::StrFormat("%+.1f %%", 100 * (ratio - 1));
  if (std::abs(ratio - 1) <= kTolerance) return difference;
  return StrCat(difference, better ? ", better" : ", worse");
}

class Comparer {
 public:
  Comparer(const Experiment& experiment, const FindRun& find,
           SimulationStore& store, bool comparable)
      : experiment_(experiment),
        find_(find),
        store_(store),
        comparable_(comparable) {}

  absl::StatusOr<ExperimentTable> Compare() {
    ExperimentTable table;
    if (OneMeasure()) {
      table.titles = {
          "CASE", StrCat("OURS, ", MeasureTitle(experiment_.cases[0].measure))};
    } else {
      table.titles = {"CASE", "MEASURE", "OURS"};
    }
    table.titles.insert(table.titles.end(), {"PUBLISHED", "DIFFERENCE"});
    for (const Measure measure : experiment_.more) {
      table.titles.emplace_back(MeasureTitle(measure));
    }
    table.titles.emplace_back("NOTE");
    for (const PaperCase& one : experiment_.cases) {
      GAVEL_ASSIGN_OR_RETURN(std::vector<std::string> row, RowOf(one));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

 private:
  bool OneMeasure() const {
    return std::ranges::all_of(experiment_.cases, [this](const auto& one) {
      return one.measure == experiment_.cases[0].measure;
    });
  }

  // The first case with the same rate.
  std::optional<StoredRun> BaseOf(const PaperCase& one) const {
    for (const PaperCase& other : experiment_.cases) {
      if (other.spec.rate_per_h == one.spec.rate_per_h) {
        return find_(other.spec);
      }
    }
    return std::nullopt;
  }

  absl::StatusOr<std::vector<std::string>> RowOf(const PaperCase& one) {
    const std::optional<StoredRun> run = find_(one.spec);
    std::vector<std::string> row = {one.label};
    if (!OneMeasure()) row.emplace_back(MeasureTitle(one.measure));
    const std::string published =
        one.published ? Shown(one.measure, *one.published) : "";
    if (!run || run->run.status != RunStatus::kOk) {
      row.insert(row.end(), {"-", published, ""});
      row.resize(row.size() + experiment_.more.size());
      row.push_back(
          run ? StrCat(RunStatusName(run->run.status), ": ", run->run.detail)
              : "not run");
      return row;
    }
    const std::optional<StoredRun> base = BaseOf(one);
    const StoredRun* const base_run = base ? &*base : nullptr;
    GAVEL_ASSIGN_OR_RETURN(const double ours,
                           ValueOf(one.measure, *run, base_run, store_));
    row.push_back(Shown(one.measure, ours));
    row.push_back(published);
    row.push_back(Verdict(one, ours, comparable_));
    for (const Measure measure : experiment_.more) {
      GAVEL_ASSIGN_OR_RETURN(const double value,
                             ValueOf(measure, *run, base_run, store_));
      row.push_back(Shown(measure, value));
    }
    row.push_back(SavingOf(one, run->run.result));
    return row;
  }

  // What the move-aware mechanism saves against the paper's, all else equal.
  std::string SavingOf(const PaperCase& one, const SimulationResult& ours) {
    if (one.spec.mechanism != "move_aware") return "";
    SimulationSpec spec = one.spec;
    spec.mechanism = "gavel";
    const std::optional<StoredRun> other = find_(spec);
    if (!other || other->run.status != RunStatus::kOk) return "";
    const SimulationResult& base = other->run.result;
    return StrCat("moves ",
                  ChangeOf(static_cast<double>(ours.moves),
                           static_cast<double>(base.moves)),
                  ", lost time ", ChangeOf(ours.lost_s, base.lost_s),
                  ", worst share ",
                  ChangeOf(ours.worst_share, base.worst_share));
  }

  const Experiment& experiment_;
  const FindRun& find_;
  SimulationStore& store_;
  const bool comparable_;
};

// Columns of empty cells only are left out.
ReportTable WithoutEmptyColumns(ReportTable table) {
  for (size_t i = table.titles.size(); i-- > 0;) {
    const bool empty = std::ranges::all_of(
        table.rows, [i](const auto& row) { return row[i].empty(); });
    if (!empty) continue;
    table.titles.erase(table.titles.begin() + static_cast<long>(i));
    for (auto& row : table.rows) row.erase(row.begin() + static_cast<long>(i));
  }
  return table;
}

// The columns of numbers only.
std::vector<bool> Aligned(const ReportTable& table) {
  std::vector<bool> right;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    right.push_back(std::ranges::all_of(table.rows, [i](const auto& row) {
      return row[i].find_first_not_of("0123456789.+-% ") == std::string::npos;
    }));
  }
  return right;
}

std::string NoteOf(const Experiment& experiment) {
  return StrCat(experiment.note, " Published: ", experiment.source, ".");
}

}  // namespace

SweepSpec SweepOf(const std::vector<Experiment>& experiments) {
  SweepSpec sweep;
  sweep.jct_limit_s = kJctLimit_s;
  sweep.record = SweepRecord::kNone;
  for (const Experiment& experiment : experiments) {
    for (const PaperCase& one : experiment.cases) {
      if (std::ranges::find(sweep.runs, one.spec) == sweep.runs.end()) {
        sweep.runs.push_back(one.spec);
      }
    }
  }
  return sweep;
}

absl::StatusOr<ExperimentTable> Compare(const Experiment& experiment,
                                        const FindRun& find,
                                        SimulationStore& store,
                                        bool comparable) {
  return Comparer(experiment, find, store, comparable).Compare();
}

std::string RenderReproduction(const Reproduction& reproduction, size_t width) {
  constexpr size_t kColumnWidth = 48;
  const ReportTable table = WithoutEmptyColumns(reproduction.table);
  const Experiment& experiment = reproduction.experiment;
  return StrCat(experiment.name, ": ", experiment.title, "\n  ",
                NoteOf(experiment), "\n",
                RenderText(table, Aligned(table), width, kColumnWidth),
                reproduction.table.drawing, "\n");
}

std::string RenderMarkdown(const std::vector<Reproduction>& all, bool quick) {
  std::string text = StrCat(
      "# Results of the paper, reproduced\n\nMade by `gavel reproduce all "
      "--markdown",
      quick ? " --quick" : "",
      "`. The paper: Narayanan et al., "
      "Heterogeneity-Aware Cluster Scheduling\nPolicies for Deep Learning "
      "Workloads, OSDI 2020. JCT: job completion time. 36 GPUs of each of "
      "V100,\nP100 and K80, rounds of 360 s, preemption free, unless said.\n");
  if (quick) {
    text +=
        "\nQuick: a quarter of the cluster and of the rates, a tenth of "
        "the jobs; not comparable with the\npublished figures.\n";
  }
  for (const Reproduction& one : all) {
    const ReportTable table = WithoutEmptyColumns(one.table);
    StrAppend(&text, "\n## ", one.experiment.title, " (`", one.experiment.name,
              "`)\n\n", NoteOf(one.experiment), "\n\n",
              RenderMarkdown(table, Aligned(table)));
  }
  return text;
}

ReportPage PageOf(const std::vector<Reproduction>& all) {
  ReportPage page{"Results of the paper, reproduced",
                  "Ours beside the published figures.",
                  {}};
  for (const Reproduction& one : all) {
    ReportSection& section = page.sections.emplace_back();
    section.id = one.experiment.name;
    section.title = one.experiment.title;
    section.text = NoteOf(one.experiment);
    section.figures = one.table.figures;
    section.table = WithoutEmptyColumns(one.table);
    section.csv = Csv(section.table);
  }
  return page;
}

}  // namespace gavel::study
