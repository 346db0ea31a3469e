#include "coordinator/http/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {
namespace {

// By the values of the labels, in the order of their names.
using Series = std::map<std::vector<std::string>, double>;

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return escaped;
}

class Exposition {
 public:
  void Add(std::string_view kind, std::string_view name, std::string_view help,
           const std::vector<std::string_view>& labels, const Series& series) {
    StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind,
              "\n");
    for (const auto& [values, value] : Bounded(series)) {
      StrAppend(&text_, name);
      for (size_t i = 0; i < labels.size(); ++i) {
        StrAppend(&text_, i == 0 ? "{" : ",", labels[i], "=\"",
                  Escaped(values[i]), "\"");
      }
      StrAppend(&text_, labels.empty() ? " " : "} ",
                absl::StrFormat("%.15g", value), "\n");
    }
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Add("gauge", name, help, {}, {{{}, value}});
  }
  void Counter(std::string_view name, std::string_view help, double value) {
    Add("counter", name, help, {}, {{{}, value}});
  }
  // By the values of one label.
  void Histogram(std::string_view name, std::string_view help,
                 std::string_view label, const Named<HistogramRow>& rows) {
    StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name,
              " histogram\n");
    for (const auto& [value, row] : rows) {
      const std::string labels = StrCat(label, "=\"", Escaped(value), "\"");
      uint64_t count = 0;
      for (size_t i = 0; i < row.counts.size(); ++i) {
        count += row.counts[i];
        const std::string limit =
            i < row.limits_s.size() ? absl::StrFormat("%.15g", row.limits_s[i])
                                    : std::string("+Inf");
        StrAppend(&text_, name, "_bucket{", labels, ",le=\"", limit, "\"} ",
                  count, "\n");
      }
      StrAppend(&text_, name, "_sum{", labels, "} ",
                absl::StrFormat("%.15g", row.sum_s), "\n", name, "_count{",
                labels, "} ", count, "\n");
    }
  }
  // Nothing where the figure is not known.
  void Known(std::string_view name, std::string_view help,
             const std::optional<double>& value) {
    if (value.has_value() && std::isfinite(*value)) Gauge(name, help, *value);
  }
  std::string Take() { return std::move(text_); }

 private:
  static Series Bounded(const Series& series) {
    if (series.size() <= kSeriesOfOneMax) return series;
    Series bounded;
    for (const auto& [values, value] : series) {
      if (bounded.size() + 1 < kSeriesOfOneMax) {
        bounded.emplace(values, value);
      } else {
        bounded[std::vector<std::string>(values.size(), "other")] += value;
      }
    }
    return bounded;
  }

  std::string text_;
};

void AddJobs(const StatusRow& status, const JobTotalsRow& jobs,
             Exposition& out) {
  Series states;
  for (const auto& [letters, count] : status.jobs) {
    states[{letters}] = static_cast<double>(count);
  }
  out.Add("gauge", "gavel_jobs", "Jobs by state, as in `gavel queue`.",
          {"state"}, states);
  Series reasons;
  for (const ReasonCountRow& one : jobs.reasons) {
    reasons[{one.state, one.code}] = static_cast<double>(one.jobs);
  }
  out.Add("gauge", "gavel_jobs_by_reason",
          "Jobs that are not over, by state and reason, as in `gavel why`.",
          {"state", "reason"}, reasons);
  out.Gauge("gavel_present_jobs_pauses",
            "Pauses so far of the jobs that are not over.",
            static_cast<double>(jobs.pauses));
  out.Gauge("gavel_present_jobs_moves",
            "Moves to another accelerator so far of the jobs that are not "
            "over.",
            static_cast<double>(jobs.moves));
  out.Gauge("gavel_present_jobs_pausing_seconds",
            "Time lost to saving, releasing and restoring so far by the jobs "
            "that are not over.",
            jobs.pausing_s);
  out.Gauge("gavel_share_deviation_mean",
            "Mean over active jobs of the difference between the share of time "
            "received and the target.",
            jobs.deviation /
                static_cast<double>(std::max<uint64_t>(1, jobs.sharing)));
  out.Gauge("gavel_share_deviation_max",
            "The largest difference of an active job.", jobs.deviation_max);
}

void AddStays(const StaysRow& stays, Exposition& out) {
  out.Counter("gavel_pauses_total", "Leases that ended with a pause.",
              static_cast<double>(stays.pauses));
  out.Counter("gavel_moves_total",
              "Leases that began on another accelerator than the one before.",
              static_cast<double>(stays.moves));
  out.Counter("gavel_pausing_seconds_total",
              "Time lost to saving, releasing and restoring.", stays.pausing_s);
  out.Histogram("gavel_lease_overhead_seconds",
                "Time lost to saving, releasing and restoring in leases that "
                "ended, by how they began: start, return, move.",
                "after", stays.overhead);
}

void AddNodes(const std::vector<NodeRow>& nodes, Exposition& out) {
  std::map<std::string, std::string> servers;  // a long one has several rows
  Series accelerators;
  std::map<std::string, std::pair<double, double>> busy;  // sum and count
  double parked_bytes = 0;
  std::set<std::string> counted;
  for (const NodeRow& node : nodes) {
    servers[node.server] = node.state;
    if (counted.insert(node.server).second) {
      parked_bytes += static_cast<double>(node.parked_bytes);
    }
    for (const AcceleratorRow& one : node.accelerators) {
      accelerators[{one.type, one.state}] += 1;
      if (!one.utilisation_percent.has_value()) continue;
      busy[one.type].first += *one.utilisation_percent;
      busy[one.type].second += 1;
    }
  }
  Series by_state;
  double up = 0;
  for (const auto& [server, state] : servers) {
    by_state[{state}] += 1;
    up += state == "down" ? 0 : 1;
  }
  out.Add("gauge", "gavel_servers", "Servers by state, as in `gavel nodes`.",
          {"state"}, by_state);
  out.Gauge("gavel_servers_up", "Servers whose agent is reachable.", up);
  out.Add("gauge", "gavel_accelerators", "Accelerators by type and state.",
          {"type", "state"}, accelerators);
  Series utilisation;
  for (const auto& [type, sum] : busy) {
    utilisation[{type}] = sum.first / sum.second / 100;
  }
  out.Add("gauge", "gavel_accelerator_utilisation_ratio",
          "Mean utilisation by type, as the drivers report it.", {"type"},
          utilisation);
  out.Gauge("gavel_parked_bytes", "Bytes of paused jobs in host memory.",
            parked_bytes);
}

void AddSolver(const StatusRow& status, Exposition& out) {
  out.Add("gauge", "gavel_policy_info", "The policy that decides.", {"policy"},
          {{{status.policy}, 1}});
  out.Known("gavel_solve_duration_seconds", "How long the last solve took.",
            status.solve_s);
  out.Known("gavel_solve_gap_ratio",
            "Relative gap between the last allocation and its bound.",
            status.gap);
  out.Known("gavel_solve_objective", "The objective of the last allocation.",
            status.objective);
  if (status.outcome.has_value()) {
    out.Add("gauge", "gavel_solve_outcome_info", "How the last solve ended.",
            {"outcome"}, {{{*status.outcome}, 1}});
  }
}

void AddCoordinator(const StatusRow& status, Exposition& out) {
  out.Gauge("gavel_term", "The term of the journal: rises at each start.",
            static_cast<double>(status.term));
  out.Counter("gavel_journal_rows_total", "Rows of the journal.",
              static_cast<double>(status.seq));
  out.Gauge("gavel_journal_unwritten_rows",
            "Rows that are decided and not on disk yet.",
            static_cast<double>(status.rows_unwritten));
  out.Counter("gavel_rounds_total", "Rounds since the first start.",
              static_cast<double>(status.rounds));
  out.Known("gavel_round_duration_seconds", "Length of a round.",
            status.round_duration_s);
  out.Gauge("gavel_lease_duration_seconds", "Length of a lease.",
            status.lease_duration_s);
  out.Counter("gavel_workers_lost_total", "Workers that were lost.",
              static_cast<double>(status.failures.workers_lost));
  out.Counter("gavel_workers_busy_seconds_total", "Time of all workers.",
              status.failures.busy_s);
  out.Counter("gavel_profiling_accelerator_seconds_total",
              "Accelerator time spent on turns on trial.",
              status.profiling.accelerator_s);
  out.Gauge("gavel_troubles", "Troubles that a person has to see to.",
            static_cast<double>(status.troubles.size()));
  const WireCounts& kept_out = status.kept_out;
  const auto count = [](uint64_t n) { return static_cast<double>(n); };
  out.Add("counter", "gavel_kept_out_total",
          "Frames, messages and connections refused.", {"kind"},
          {{{"frames_dropped"}, count(kept_out.frames_dropped)},
           {{"messages_refused"}, count(kept_out.messages_refused)},
           {{"connections_refused"}, count(kept_out.connections_refused)},
           {{"connections_cut"}, count(kept_out.connections_cut)},
           {{"handshakes_failed"}, count(kept_out.handshakes_failed)}});
}

}  // namespace

std::string MetricsText(const StatusRow& status,
                        const std::vector<NodeRow>& nodes,
                        const JobTotalsRow& jobs,
                        std::optional<double> checkpoint_age_s) {
  Exposition out;
  AddCoordinator(status, out);
  AddSolver(status, out);
  AddJobs(status, jobs, out);
  AddStays(status.stays, out);
  out.Known("gavel_checkpoint_age_max_seconds",
            "The longest time that a job has run since its last checkpoint.",
            checkpoint_age_s);
  AddNodes(nodes, out);
  return out.Take();
}

std::optional<double> CheckpointAges::Oldest(
    double now_s, const std::vector<RunningRow>& running) {
  std::map<uint64_t, Seen> seen;
  std::optional<double> oldest;
  for (const RunningRow& job : running) {
    Seen now{job.last_generation, now_s};
    const auto before = running_.find(job.id);
    if (before != running_.end() &&
        before->second.generation.epoch == now.generation.epoch &&
        before->second.generation.step == now.generation.step) {
      now.since_s = before->second.since_s;
    }
    oldest = std::max(oldest.value_or(0), now_s - now.since_s);
    seen.emplace(job.id, now);
  }
  running_ = std::move(seen);
  return oldest;
}

}  // namespace gavel
