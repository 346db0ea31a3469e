#include "study/simulation_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/file_keys.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

// For each job of a window that many arrive until its last one has ended: at
// the edge of stability the longest take about as long as the window.
constexpr uint64_t kJobsPerWindowEnd = 3;
constexpr uint64_t kJobsMax = 100'000'000;

absl::Status Refuse(std::string_view what) {
  return absl::InvalidArgumentError(ToAbsl(what));
}

// An empty text keeps the default.
bool ReadJobNumber(const std::string& text, uint64_t* number) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c); };
  return text.empty() || (std::ranges::all_of(text, is_digit) &&
                          absl::SimpleAtoi(text, number));
}

absl::Status CheckNumbers(const SimulationSpec& spec) {
  struct Number {
    const char* name;
    double value;
    bool above_zero = false;
  };
  const Number numbers[] = {
      {"round-duration", spec.round_duration_s, true},
      {"reset-interval", spec.reset_interval_s},
      {"memory-rounds", spec.memory_rounds},
      {"profiling-percentage", spec.profiling_percentage, true},
      {"profiling-cell", spec.profiling_cell_s},
      {"reference-models", static_cast<double>(spec.reference_models), true},
      {"failures-per-hour", spec.failures_per_hour},
      {"checkpoint-interval", spec.checkpoint_interval_s, true},
      {"lying-apps", spec.lying_apps},
      {"lie", spec.lie, true},
      {"sensitive-apps", spec.sensitive_apps},
      {"spread-speed", spec.spread_speed, true},
      {"rate", spec.rate_per_h},
      {"fixed-duration", spec.fixed_duration_s},
      {"app-jobs-max", static_cast<double>(spec.app_jobs_max)},
      {"interactive", spec.interactive},
      {"interactive-shortest", spec.interactive_shortest_s, true},
      {"interactive-longest", spec.interactive_longest_s, true},
      {"scale-factor-max", static_cast<double>(spec.scale_factor_max), true},
      {"time-limit", spec.time_limit_s}};
  for (const auto& [name, value, above_zero] : numbers) {
    if (std::isfinite(value) && (above_zero ? value > 0 : value >= 0)) continue;
    return Refuse(StrCat("--", name, " ", value, " is not a number ",
                         above_zero ? "above 0" : "from 0 on"));
  }
  if (spec.lying_apps > 1) {
    return Refuse(StrCat("--lying-apps ", spec.lying_apps,
                         " is above 1; give the part of the apps that lies"));
  }
  if (spec.sensitive_apps > 1) {
    return Refuse(StrCat("--sensitive-apps ", spec.sensitive_apps,
                         " is above 1; give the part of the apps that loses "
                         "speed when spread"));
  }
  if (spec.spread_speed > 1) {
    return Refuse(StrCat("--spread-speed ", spec.spread_speed,
                         " is above 1; give what spread gangs keep of their "
                         "speed"));
  }
  if (spec.interactive > 1) {
    return Refuse(StrCat("--interactive ", spec.interactive,
                         " is above 1; give the part of the arrivals that are "
                         "interactive jobs"));
  }
  if (spec.interactive_shortest_s > spec.interactive_longest_s) {
    return Refuse(StrCat("--interactive-shortest ", spec.interactive_shortest_s,
                         " is above --interactive-longest ",
                         spec.interactive_longest_s,
                         "; give the shorter duration first"));
  }
  if (spec.round_duration_s >= kRoundDurationMin_s) return absl::OkStatus();
  return Refuse(StrCat("--round-duration ", spec.round_duration_s,
                       " is too short; give at least ", kRoundDurationMin_s,
                       " s"));
}

absl::Status CheckNames(const SimulationSpec& spec) {
  if (const auto policy = MakePolicy(spec.policy); !policy.ok()) {
    return policy.status();
  }
  if (!FindMechanism(spec.mechanism)) {
    return Refuse(StrCat("there is no mechanism \"", spec.mechanism,
                         "\"; give gavel or move_aware"));
  }
  if (!FindQueue(spec.queue)) {
    return Refuse(StrCat("there is no queue \"", spec.queue,
                         "\"; give global or per_type"));
  }
  if (spec.unknown_types != "error" && spec.unknown_types != "equal") {
    return Refuse(StrCat("unknown types \"", spec.unknown_types,
                         "\" are not understood; give error or equal"));
  }
  return absl::OkStatus();
}

absl::Status CheckEstimator(const SimulationSpec& spec) {
  if (spec.profiling_percentage > 100) {
    return Refuse(StrCat("--profiling-percentage ", spec.profiling_percentage,
                         " is above 100; give the part of the cells that is "
                         "profiled, e.g. 20"));
  }
  if (!spec.estimator) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(spec.policy));
  if (!policy->packs()) {
    return Refuse(StrCat("--estimator estimates what pairs of jobs do, and ",
                         spec.policy,
                         " makes no pairs; give a policy that does, e.g. "
                         "max_min_fairness_packed"));
  }
  if (spec.ideal) {
    return Refuse("--ideal knows all throughputs; leave out --estimator");
  }
  return absl::OkStatus();
}

absl::Status CheckIdeal(const SimulationSpec& spec) {
  if (!spec.ideal) return absl::OkStatus();
  if (spec.overheads != "none") {
    return Refuse(StrCat("--ideal pre-empts nothing, so --overheads ",
                         spec.overheads, " would cost nothing; leave one out"));
  }
  if (spec.interactive > 0) {
    return Refuse(
        StrCat("--ideal pauses nothing for interactive jobs; leave out it or "
               "--interactive ",
               spec.interactive));
  }
  if (spec.failures_per_hour > 0) {
    return Refuse(
        StrCat("--ideal has no failures; leave out it or "
               "--failures-per-hour ",
               spec.failures_per_hour));
  }
  return absl::OkStatus();
}

absl::Status CheckJobs(const SimulationSpec& spec) {
  if (!spec.trace.empty()) return absl::OkStatus();
  const uint64_t jobs = GeneratedJobs(spec);
  if (jobs == 0) {
    return Refuse("no jobs: with --generate give --jobs N or --window S:E");
  }
  if (jobs > kJobsMax) {
    return Refuse(StrCat(jobs, " jobs exceed the ", kJobsMax, " allowed"));
  }
  if (spec.window_end > jobs) {
    return Refuse(StrCat("the window ends at job ", spec.window_end,
                         ", but there are ", jobs,
                         "; raise --jobs or leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseWindow(const std::string& text, SimulationSpec* spec) {
  const size_t colon = text.find(':');
  uint64_t begin = 0;
  uint64_t end = 0;
  if (colon == std::string::npos ||
      !ReadJobNumber(text.substr(0, colon), &begin) ||
      !ReadJobNumber(text.substr(colon + 1), &end)) {
    return Refuse(StrCat("window \"", text,
                         "\" is not BEGIN:END, numbers of jobs from 0; an "
                         "example: 4000:5000"));
  }
  spec->window_begin = begin;
  spec->window_end = end;
  return absl::OkStatus();
}

absl::Status CheckSpec(const SimulationSpec& spec) {
  if (spec.throughputs.empty()) {
    return Refuse("no throughputs; give --throughputs FILE.json");
  }
  if (spec.window_end != 0 && spec.window_end <= spec.window_begin) {
    return Refuse(StrCat("the window ", spec.window_begin, ":", spec.window_end,
                         " holds no job; its end must be above its begin"));
  }
  GAVEL_RETURN_IF_ERROR(CheckNumbers(spec));
  GAVEL_RETURN_IF_ERROR(CheckNames(spec));
  GAVEL_RETURN_IF_ERROR(CheckEstimator(spec));
  GAVEL_RETURN_IF_ERROR(CheckIdeal(spec));
  return CheckJobs(spec);
}

uint64_t GeneratedJobs(const SimulationSpec& spec) {
  if (spec.jobs > 0) return spec.jobs;
  return spec.rate_per_h > 0 ? spec.window_end * kJobsPerWindowEnd
                             : spec.window_end;
}

bool NamesFile(std::string_view name, std::string_view value) {
  if (name == "trace" || name == "throughputs") return !value.empty();
  if (name != "overheads" && name != "prices") return false;
  return value != "none" && !(name == "prices" && value == "gcp") &&
         value.find('=') == std::string_view::npos;
}

double RoundDecimal(double value) {
  double rounded = value;
  const std::string text = absl::StrFormat("%.12g", value);
  return absl::SimpleAtod(text, &rounded) ? rounded : value;
}

std::string FieldText(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : StrCat(value);
}

// ---- names for runs

namespace {

constexpr std::array<std::string_view, 11> kSchedulerFields = {
    "mechanism",
    "queue",
    "ideal",
    "round_duration_s",
    "overheads",
    "reset_interval_s",
    "memory_rounds",
    "placement_sensitive",
    "introspection",
    "failures_per_hour",
    "checkpoint_interval_s"};
// These fields are not part of a name: they are on an axis, pooled, or follow
// from another field.
constexpr std::array<std::string_view, 6> kOwnPlace = {
    "policy", "rate_per_h", "seed", "jobs", "time_limit_s", "trace"};

template <class Array>
bool Contains(const Array& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsPath(std::string_view name) {
  return name == "trace" || name == "throughputs";
}

std::string Shown(std::string_view name, const std::string& text) {
  if (IsPath(name)) {
    return std::filesystem::path(text).stem().string();
  }
  if (name == "cluster" || name == "mechanism" || name == "queue" ||
      name == "overheads") {
    return text == "none" ? StrCat(name, " none") : text;
  }
  std::string words(name);
  std::ranges::replace(words, '_', ' ');
  if (text == "true") return words;
  if (text == "false") return "no " + words;
  return StrCat(words, " ", text);
}

}  // namespace

RunLabels::RunLabels(const std::vector<SimulationSpec>& specs) {
  std::map<std::string, std::set<std::string>> texts;
  for (const SimulationSpec& spec : specs) {
    VisitFields(spec, [&](const char* name, const auto& value) {
      texts[name].insert(FieldText(value));
    });
  }
  const SimulationSpec any;
  VisitFields(any, [&](const char* name, const auto&) {
    if (texts[name].size() < 2) return;
    names_.emplace_back(name);
    varying_.insert(name);
  });
}

std::vector<std::string> RunLabels::Texts(const SimulationSpec& spec) const {
  std::vector<std::string> texts;
  VisitFields(spec, [&](const char* name, const auto& value) {
    if (!Varies(name)) return;
    std::string text = FieldText(value);
    if (IsPath(name)) text = std::filesystem::path(text).filename().string();
    texts.push_back(std::move(text));
  });
  return texts;
}

std::string RunLabels::Join(const SimulationSpec& spec, bool scheduler) const {
  std::string label;
  VisitFields(spec, [&](const char* name, const auto& value) {
    if (!Varies(name) || Contains(kOwnPlace, name)) return;
    if (Contains(kSchedulerFields, name) != scheduler) return;
    StrAppend(&label, label.empty() ? "" : ", ", Shown(name, FieldText(value)));
  });
  return label;
}

std::string RunLabels::Scheduler(const SimulationSpec& spec) const {
  const std::string rest = Join(spec, true);
  return rest.empty() ? spec.policy : StrCat(spec.policy, ", ", rest);
}

std::string RunLabels::Workload(const SimulationSpec& spec) const {
  return Join(spec, false);
}

std::string RunLabels::Run(const SimulationSpec& spec) const {
  std::string label = Scheduler(spec);
  if (const std::string workload = Workload(spec); !workload.empty()) {
    StrAppend(&label, ", ", workload);
  }
  if (Varies("rate_per_h") || Varies("trace") || Varies("jobs")) {
    StrAppend(&label, ", ", LoadLabel(spec));
  }
  if (Varies("seed")) StrAppend(&label, ", seed ", spec.seed);
  return label;
}

std::string LoadLabel(const SimulationSpec& spec) {
  if (!spec.trace.empty()) {
    return std::filesystem::path(spec.trace).filename().string();
  }
  if (spec.rate_per_h > 0) {
    return StrCat(FieldText(spec.rate_per_h), " jobs/h");
  }
  return StrCat(GeneratedJobs(spec), " jobs at once");
}

}  // namespace gavel::study
