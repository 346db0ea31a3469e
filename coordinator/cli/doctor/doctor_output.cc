#include "coordinator/cli/doctor/doctor_output.h"

#include <optional>

#include "absl/strings/str_format.h"
#include "coordinator/cli/doctor/doctor_advice.h"
#include "coordinator/cli/json.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string Milliseconds(double time_s) {
  return absl::StrFormat("%.3g ms", 1e3 * time_s);
}

Json OrNull(const std::optional<double>& number) {
  return number ? Json(*number) : Json();
}

Json OrNull(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json();
}

Json DifferencesOf(const ExaminedRun& run) {
  Json rows = Json::array();
  for (const ReportDifference& one : run.differences) {
    rows.push_back({{"step", one.step},
                    {"name", one.name},
                    {"undisturbed", OrNull(one.expected)},
                    {"found", OrNull(one.found)}});
  }
  return rows;
}

Json MeasuresOf(const DoctorMeasures& measures) {
  return {{"save_s", OrNull(measures.save_s)},
          {"load_s", OrNull(measures.load_s())},
          {"checkpoint_bytes", measures.checkpoint_bytes},
          {"checkpoints_verified", measures.checkpoints_verified},
          {"start_to_first_step_s", OrNull(measures.start_s)},
          {"restart_to_first_step_s", OrNull(measures.restart_s)},
          {"pause_s", OrNull(measures.pause_s)},
          {"lost_to_a_pause_s", OrNull(measures.lost_s)},
          {"step_s", OrNull(measures.step_s)},
          {"leased_step_s", OrNull(measures.leased_step_s)}};
}

}  // namespace

std::string RenderDoctorLine(const std::string& what, const std::string& text) {
  return absl::StrFormat("  %-10s %s\n", what, text);
}

std::string RenderCosts(const DoctorMeasures& measures) {
  std::string text;
  if (measures.checkpoints_verified > 0) {
    std::string line = StrCat(Plural(measures.checkpoint_bytes, "byte"), ", ",
                              measures.checkpoints_verified, " verified");
    if (measures.save_s) {
      StrAppend(&line, "; saved in ", Milliseconds(*measures.save_s));
    }
    if (const auto load_s = measures.load_s()) {
      StrAppend(&line, ", loaded in ", Milliseconds(*load_s), " (first step ",
                absl::StrFormat("%.2f s after a restart, %.2f s after a start)",
                                *measures.restart_s, *measures.start_s));
    }
    text += RenderDoctorLine("checkpoint", line);
  }
  if (measures.step_s && measures.leased_step_s) {
    const double more_s = *measures.leased_step_s - *measures.step_s;
    std::string line =
        StrCat(Milliseconds(*measures.step_s), " alone, ",
               Milliseconds(*measures.leased_step_s), " under a lease",
               absl::StrFormat(" (%+.3g ms)", 1e3 * more_s));
    if (measures.lost_s) {
      StrAppend(&line, "; a pause costs ", Milliseconds(*measures.lost_s));
    }
    text += RenderDoctorLine("step", line);
  }
  return text;
}

std::string RenderVerdict(const Examined& examined, const std::string& program,
                          const std::string& kept) {
  if (examined.passed) {
    return StrCat("PASS: ", program,
                  " goes on exactly where it was paused, moved and restored\n");
  }
  std::string text =
      StrCat(examined.unknown ? "UNKNOWN: " : "FAIL: ", examined.problem);
  if (!text.ends_with('\n')) text += '\n';
  StrAppend(&text, "  Remedy: ", examined.remedy, ".\n",
            "  Outputs, reports and checkpoints are kept in ", kept, "\n");
  return text;
}

std::string RenderDoctorJson(const Examined& examined,
                             const std::string& program,
                             const std::string& kept) {
  Json runs = Json::array();
  for (const ExaminedRun& run : examined.runs) {
    runs.push_back({{"run", run.name},
                    {"interrupted_after_step", run.interrupted_at},
                    {"compared_from_step", run.from_step},
                    {"values_compared", run.values_compared},
                    {"differences", DifferencesOf(run)},
                    {"state_compared", run.state_compared},
                    {"state_differences", run.state_differences}});
  }
  Json untracked = Json::array();
  for (const UntrackedItem& one : examined.account.untracked) {
    untracked.push_back(
        {{"step", one.step}, {"kind", one.kind}, {"text", one.text}});
  }
  const Json json = {{"program", program},
                     {"passed", examined.passed},
                     {"unknown", examined.unknown},
                     {"problem", examined.problem},
                     {"remedy", examined.remedy},
                     {"steps", examined.steps},
                     {"tracked", examined.account.tracked},
                     {"untracked", std::move(untracked)},
                     {"epoch_ends", examined.account.epoch_ends},
                     {"breaks", examined.account.breaks},
                     {"evaluations", examined.account.evaluations},
                     {"runs", std::move(runs)},
                     {"measures", MeasuresOf(examined.measures)},
                     {"kept", examined.passed ? Json() : Json(kept)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gavel
