#include "coordinator/cli/table.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/server/rows.h"
#include "coordinator/workload/job_array.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel {
std::vector<QueueRow> ParseQueue(const Json& json) {
  return ReadJson<std::vector<QueueRow>>(json);
}

std::vector<NodeRow> ParseNodes(const Json& json) {
  return ReadJson<std::vector<NodeRow>>(json);
}

StatusRow ParseStatus(const Json& json) { return ReadJson<StatusRow>(json); }

WhyRow ParseWhy(const Json& json) { return ReadJson<WhyRow>(json); }

std::vector<ForecastRow> ParseForecast(const Json& json) {
  return ReadJson<std::vector<ForecastRow>>(json);
}

std::vector<std::string> StateLettersOf(std::string_view state) {
  std::vector<std::string> letters;
  for (const char* known : {"PD", "R", "S", "CG", "CD", "F", "H", "CA"}) {
    if (state == known || state == StateWord(known)) letters.push_back(known);
  }
  return letters;
}

void SortLiveFirst(std::vector<QueueRow>& rows) {
  const auto place = [](const QueueRow& row) {
    if (row.state == "R" || row.state == "CG") return 0;
    if (row.state == "S" || row.state == "PD") return 1;
    return row.state == "CD" || row.state == "CA" ? 3 : 2;
  };
  std::ranges::stable_sort(rows, {}, place);
}

std::string ShownId(const QueueRow& job) {
  return job.array_index ? StrCat(job.array, "_", *job.array_index)
                         : StrCat(job.id);
}

std::string_view StateWord(std::string_view letters) {
  if (letters == "PD") return "waiting";
  if (letters == "R") return "running";
  if (letters == "S") return "paused";
  if (letters == "CG") return "pausing";
  if (letters == "CD") return "finished";
  if (letters == "F") return "held";
  if (letters == "CA") return "cancelled";
  return letters;
}

namespace {

constexpr char kNone[] = "-";

std::vector<std::string> Distinct(const QueueRow& row,
                                  std::string HeldAcceleratorRow::*field) {
  std::vector<std::string> values;
  for (const HeldAcceleratorRow& accelerator : row.accelerators) {
    const std::string& value = accelerator.*field;
    if (std::ranges::find(values, value) == values.end()) {
      values.push_back(value);
    }
  }
  return values;
}

std::string AcceleratorCell(const QueueRow& row) {
  if (row.accelerators.empty()) return kNone;
  const std::string types =
      absl::StrJoin(Distinct(row, &HeldAcceleratorRow::type), ",");
  const size_t count = row.accelerators.size();
  return count == 1 ? types : StrCat(types, " x", count);
}

// The first of the line's jobs whose reason is that of most of them.
const QueueRow& UsualOf(const QueueLine& line) {
  std::map<std::string_view, size_t> jobs;  // by reason
  for (const QueueRow* const job : line.jobs) ++jobs[job->code];
  return **std::ranges::max_element(
      line.jobs, {}, [&](const QueueRow* job) { return jobs[job->code]; });
}

// Where its first job runs, or why it does not; a single accelerator by its own
// name.
std::string PlaceCell(const QueueLine& line) {
  const QueueRow& row = *line.jobs.front();
  if (row.accelerators.size() == 1) return row.accelerators.front().uuid;
  if (row.accelerators.empty()) return StrCat("(", ReasonOf(line), ")");
  return absl::StrJoin(Distinct(row, &HeldAcceleratorRow::server), ",");
}

std::string LossCell(const QueueRow& row) {
  const double* const loss = FindNamed(row.scalars, "loss");
  return loss == nullptr ? kNone : FormatScalar(*loss);
}

std::string ShareCell(const QueueRow& row) {
  if (row.opaque) return kNone;
  return absl::StrFormat("%.0f/%.0f%%", 100 * row.share_target,
                         100 * row.share_got);
}

bool IsUnstarted(const QueueRow& row) {
  return row.array_index.has_value() && row.incarnations == 0 &&
         row.accelerators.empty();
}

void NameLine(bool is_cut, QueueLine* line) {
  const QueueRow& row = *line->jobs.front();
  line->name = row.name;
  line->id = ShownId(row);
  if (line->jobs.size() == 1) return;
  std::vector<int> indices;
  for (const QueueRow* const job : line->jobs) {
    indices.push_back(*job->array_index);
  }
  std::ranges::sort(indices);
  line->name = row.array_name;
  line->id = StrCat(row.array, "_[", is_cut && row.Over() ? "...," : "",
                    FormatIndices(indices), "]");
}

std::vector<std::string> QueueCells(const QueueLine& line) {
  const QueueRow& row = *line.jobs.front();
  return {line.id,
          line.name,
          row.owner.empty() ? kNone : row.owner,
          row.state,
          AcceleratorCell(row),
          FormatSteps(row.steps_done, row.steps_total),
          FormatRate(row.steps_per_s),
          LossCell(row),
          ShareCell(row),
          FormatCount(row.pauses),
          FormatCount(row.moves),
          PlaceCell(line)};
}

}  // namespace

std::string ReasonOf(const QueueLine& line) {
  const QueueRow& usual = UsualOf(line);
  return absl::StrReplaceAll(usual.reason,
                             {{StrCat("`gavel release ", usual.id, "`"),
                               StrCat("`gavel release ", line.id, "`")}});
}

std::vector<QueueLine> LinesOf(const std::vector<QueueRow>& rows, bool is_cut) {
  std::vector<QueueLine> lines;
  // By array and state, the place of the line.
  std::map<std::pair<uint64_t, std::string>, size_t> unstarted;
  for (const QueueRow& row : rows) {
    size_t place = lines.size();
    if (IsUnstarted(row)) {
      place =
          unstarted.try_emplace({row.array, row.state}, place).first->second;
    }
    if (place == lines.size()) lines.emplace_back();
    lines[place].jobs.push_back(&row);
  }
  for (QueueLine& line : lines) NameLine(is_cut, &line);
  return lines;
}

std::string RenderQueue(const std::vector<QueueRow>& rows, size_t width,
                        bool is_cut) {
  constexpr int kUser = 2;
  const bool owned = std::ranges::any_of(
      rows, [](const QueueRow& row) { return !row.owner.empty(); });
  const bool unstarted = std::ranges::any_of(rows, IsUnstarted);
  // Even the widest leave some of kTableWidth to the last one.
  std::vector<Column> columns = {Right("JOBID", unstarted ? 12 : 7),
                                 Left("NAME", owned ? 10 : 14),
                                 Left("USER", 8),
                                 Left("ST", 2),
                                 Left("ACCELERATOR", owned ? 11 : 12),
                                 Right("STEPS", 13),
                                 Right("STEPS/S", 7),
                                 Right("LOSS", 9),
                                 Right("TARGET/GOT", 10),
                                 Right("PAUSES", 6),
                                 Right("MOVES", 5),
                                 Left("NODELIST(REASON)")};
  if (!owned) columns.erase(columns.begin() + kUser);
  TableRows cells;
  for (const QueueLine& line : LinesOf(rows, is_cut)) {
    cells.push_back(QueueCells(line));
    if (!owned) cells.back().erase(cells.back().begin() + kUser);
  }
  return RenderTable(columns, cells, width);
}

std::vector<AppRow> AppsOf(const std::vector<QueueRow>& rows) {
  std::map<std::pair<std::string, std::string>, AppRow> apps;
  for (const QueueRow& row : rows) {
    if (row.app.empty() || row.Over()) continue;
    AppRow& app = apps[{row.owner, row.app}];
    app.app = row.app;
    app.owner = row.owner;
    ++app.jobs;
    app.running += row.state == "R" ? 1 : 0;
    if (!row.accelerators.empty()) app.accelerators += row.scale_factor;
    app.left_accelerator_s += row.left_s.value_or(0) * row.scale_factor;
    app.to_come_accelerator_s =
        std::max(app.to_come_accelerator_s, row.app_to_come_s.value_or(0));
    if (row.rho.has_value()) app.rho = row.rho;
    app.bidder = row.bidder;
  }
  std::vector<AppRow> list;
  for (auto& [key, app] : apps) {
    app.left_accelerator_s += app.to_come_accelerator_s;
    list.push_back(std::move(app));
  }
  return list;
}

Json AppsJson(const std::vector<AppRow>& rows) {
  Json list = Json::array();
  for (const AppRow& row : rows) {
    list.push_back({{"app", row.app},
                    {"owner", row.owner},
                    {"jobs", row.jobs},
                    {"running", row.running},
                    {"accelerators", row.accelerators},
                    {"left_accelerator_s", row.left_accelerator_s},
                    {"to_come_accelerator_s", row.to_come_accelerator_s},
                    {"rho", row.rho ? Json(*row.rho) : Json()},
                    {"bidder", row.bidder}});
  }
  return list;
}

std::string RenderApps(const std::vector<AppRow>& rows, size_t width) {
  TableRows cells;
  for (const AppRow& row : rows) {
    cells.push_back(
        {row.app, row.owner.empty() ? kNone : row.owner, StrCat(row.jobs),
         StrCat(row.running), StrCat(row.accelerators),
         row.rho ? absl::StrFormat("%.2f", *row.rho) : std::string(kNone),
         absl::StrFormat("%.1f", row.left_accelerator_s / 3600),
         row.bidder.empty() ? std::string(kNone) : row.bidder});
  }
  return RenderTable({Left("APP", 16), Left("USER", 8), Right("JOBS", 5),
                      Right("RUNNING", 7), Right("ACCELERATORS", 12),
                      Right("RHO", 6), Right("LEFT", 8), Left("BIDDER", 8)},
                     cells, width);
}

namespace {

// The faults of one accelerator. A silent or ended agent concerns all of its
// server, so the table of nodes shows it.
std::vector<std::string> FaultsOf(const AcceleratorRow& one) {
  std::vector<std::string> faults;
  if (one.state == "lost") {
    faults.push_back(StrCat("lost: ", one.lost_for));
  }
  if (!one.drained_for.empty()) {
    faults.push_back(StrCat("drained: ", one.drained_for));
  } else if (one.drained) {
    faults.push_back(StrCat(one.state == "draining" ? "draining" : "drained",
                            ", by an operator"));
  }
  if (one.state == "quarantined") {
    faults.emplace_back(
        "quarantined: a process that may still run there can't "
        "be asked");
  } else if (one.state == "hung") {
    faults.push_back(StrCat("hung: job ", absl::StrJoin(one.jobs, ", "),
                            " makes no steps there"));
  }
  if (one.speed < 1) {
    faults.push_back(
        absl::StrFormat("slow: %.0f %% of its type's speed", 100 * one.speed));
  }
  if (one.last_xid.has_value()) {
    faults.push_back(StrCat("last fault: XID ", *one.last_xid));
  }
  return faults;
}

// A line for each accelerator with something wrong, by the name that `gavel
// drain` and `resume` take.
std::string RenderFaults(const std::vector<NodeRow>& rows) {
  std::string lines;
  for (const NodeRow& node : rows) {
    for (const AcceleratorRow& one : node.accelerators) {
      for (const std::string& fault : FaultsOf(one)) {
        StrAppend(&lines, node.server, "/", one.uuid, " (", one.device,
                  "): ", fault, "\n");
      }
    }
  }
  return lines;
}

}  // namespace

std::string RenderNodes(const std::vector<NodeRow>& rows, size_t width) {
  struct Group {
    size_t count = 0;
    std::vector<std::string> jobs;
    std::vector<std::string> kept;
  };
  using Key = std::tuple<std::string, double, std::string, double>;
  TableRows cells;
  for (const NodeRow& node : rows) {
    std::map<Key, Group> groups;
    for (const AcceleratorRow& one : node.accelerators) {
      Group& group =
          groups[{one.type, one.slow_down_factor, one.state, one.speed}];
      ++group.count;
      const auto& jobs = one.jobs.empty() ? one.starting_jobs : one.jobs;
      if (!jobs.empty()) group.jobs.push_back(absl::StrJoin(jobs, "+"));
      for (const uint64_t job : one.kept_jobs) {
        group.kept.push_back(StrCat(job));
      }
    }
    std::string parked =
        node.parked_bytes == 0 ? kNone : SizeText(node.parked_bytes);
    for (const auto& [key, group] : groups) {
      const auto& [type, slow_down_factor, state, speed] = key;
      cells.push_back(
          {node.server, node.state, type, StrCat(group.count),
           speed < 1 ? absl::StrFormat("%s, slow: %.0f %%", state, 100 * speed)
                     : state,
           slow_down_factor == 1 ? kNone
                                 : absl::StrFormat("%gx", slow_down_factor),
           group.jobs.empty() ? kNone : absl::StrJoin(group.jobs, ","),
           group.kept.empty() ? kNone : absl::StrJoin(group.kept, ","),
           parked});
      parked = kNone;  // once for a server
    }
  }
  return RenderTable(
             {Left("SERVER", 24), Left("STATE"), Left("ACCELERATOR", 24),
              Right("COUNT"), Left("USE"), Right("SLOWED"), Left("JOBS"),
              Left("KEPT"), Right("PARKED")},
             cells, width) +
         RenderFaults(rows);
}

std::string RenderStatusLine(const StatusRow& status) {
  std::string line = StrCat("round ", status.rounds);
  if (status.round_ends_in_s) {
    StrAppend(&line, absl::StrFormat(", ends in %.1f s of %g s",
                                     *status.round_ends_in_s,
                                     status.round_duration_s.value_or(0)));
  }
  StrAppend(&line, "; ", status.policy, "; jobs:");
  const size_t before = line.size();
  for (const char* letters : {"R", "CG", "S", "PD", "CD", "F", "CA"}) {
    const uint64_t* const count = FindNamed(status.jobs, letters);
    if (count == nullptr || *count == 0) continue;
    StrAppend(&line, " ", *count, " ", StateWord(letters));
  }
  return line.size() > before ? line : line + " none";
}

std::string RenderStatus(const StatusRow& status) {
  std::string text = RenderStatusLine(status) + "\n";
  StrAppend(&text,
            absl::StrFormat("leases of %g s; journal at term %d, row %d",
                            status.lease_duration_s, status.term, status.seq),
            "\n");
  for (const std::string& trouble : status.troubles) {
    StrAppend(&text, "TROUBLE: ", trouble, "\n");
  }
  if (status.profiling.percentage_max > 0) {
    StrAppend(&text,
              absl::StrFormat("profiling: on %d accelerators, %.2f "
                              "accelerator-hours so far; at most %g %% of each "
                              "type",
                              status.profiling.accelerators,
                              status.profiling.accelerator_s / 3600,
                              status.profiling.percentage_max),
              "\n");
  }
  if (status.failures.interval_s > 0) {
    StrAppend(&text,
              absl::StrFormat("workers lost: %d in %.2f hours; one is "
                              "expected to fail every %.2f hours",
                              status.failures.workers_lost,
                              status.failures.busy_s / 3600,
                              status.failures.interval_s / 3600),
              "\n");
  }
  if (!status.outcome) return text;
  StrAppend(&text, "last allocation: ", *status.outcome, " by ",
            status.solver.value_or(""));
  if (status.objective) {
    StrAppend(&text, absl::StrFormat(", objective %.4g", *status.objective));
  }
  return text + "\n";
}

}  // namespace gavel
