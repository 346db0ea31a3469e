#include "study/simulation/run_labels.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "core/text.h"

namespace gavel::study {
namespace {

constexpr std::array<std::string_view, 10> kSchedulerFields = {
    "mechanism",
    "queue",
    "ideal",
    "round_duration_s",
    "overheads",
    "reset_interval_s",
    "memory_rounds",
    "placement_sensitive",
    "failures_per_hour",
    "checkpoint_interval_s"};
// Not part of a name: they are on an axis, pooled, or said by another field.
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
