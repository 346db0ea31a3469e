#include "coordinator/cli/doctor_examination.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/doctor_advice.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// A program may end between its checkpoint and the kill.
constexpr int kKillAttempts = 3;
// Steps that are too quick to be paused are stretched to about that.
constexpr double kSlowStep_s = 0.03;
constexpr double kSlowDownFactorMax = 1000;

std::string Names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  if (names.size() <= kShown) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kShown);
  return StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kShown,
                " more");
}

class Examination {
 public:
  Examination(const DoctorProgram& program, const ExaminationOptions& options)
      : program_(program), options_(options) {}

  absl::StatusOr<Examined> Run();

 private:
  using Part = absl::Status (Examination::*)();

  absl::StatusOr<DoctorRun> RunOnce(DoctorRunOptions options);
  absl::Status RunAlone();
  absl::Status Pause() { return RunLeased("paused", program_.device); }
  absl::Status Move() { return RunLeased("moved", options_.move_to); }
  absl::Status RunLeased(const char* name, const std::string& second_device);
  absl::StatusOr<DoctorRun> RunWithLease(const char* name, DoctorLease* lease);
  double SlowDownFactor(int attempt) const;
  void JudgeLeased(const char* name, const DoctorRun& run,
                   const DoctorLease& lease, bool at_full_speed);
  absl::Status Interrupt();
  absl::Status StopByBudget();
  absl::Status Resume();
  absl::Status Explain();

  // These fill advice_ and return true when something is wrong.
  bool EndedBadly(const DoctorRun& run, const char* what);
  bool HasBadCheckpoint(const DoctorRun& run);
  bool WentOnWrongly();

  ExaminedRun& Compare(const char* name, const DoctorRun& run, uint64_t from);
  void Measure();
  void Say(const char* what, const std::string& text) const {
    if (options_.say) options_.say(what, text);
  }
  std::string ResultOf(const ExaminedRun& run) const;

  const DoctorProgram& program_;
  const ExaminationOptions& options_;
  DoctorRun alone_;
  DoctorRun interrupted_;
  DoctorRun resumed_;
  std::string checkpoints_;  // of the two
  Advice advice_;            // empty: nothing is wrong yet
  std::vector<double> save_times_s_;
  Examined found_;
};

std::string Examination::ResultOf(const ExaminedRun& run) const {
  if (!run.differences.empty()) {
    const ReportDifference& first = run.differences.front();
    return StrCat(first.name, " DIFFERS from step ", first.step, " on");
  }
  return StrCat(Plural(run.values_compared, "value"), " equal ",
                options_.tolerance > 0 ? "within the tolerance" : "to the bit");
}

absl::StatusOr<DoctorRun> Examination::RunOnce(DoctorRunOptions options) {
  if (options.steps == 0) options.steps = options_.steps;
  options.checkpoint_interval_steps = std::max<uint64_t>(
      1, (alone_.last_checkpoint ? alone_.last_step() : options_.steps) / 2);
  GAVEL_ASSIGN_OR_RETURN(DoctorRun run, RunUnderDoctor(program_, options));
  std::erase_if(run.values, [this](const ReportedValue& one) {
    return options_.ignored.contains(one.name);
  });
  return run;
}

bool Examination::EndedBadly(const DoctorRun& run, const char* what) {
  advice_ = AdviseOnEnd(run, what, program_.timeout_s);
  return !advice_.empty() || HasBadCheckpoint(run);
}

bool Examination::HasBadCheckpoint(const DoctorRun& run) {
  for (const DoctorCheckpoint& one :
       ListCheckpoints(run.checkpoint_directory)) {
    const absl::Status status = VerifyCheckpoint(one.path);
    if (!status.ok()) {
      advice_ = {StrCat("a checkpoint does not verify: ", status.message()),
                 "let only the runtime write there, and look at the disk"};
      return true;
    }
    ++found_.measures.checkpoints_verified;
    if (const auto time_s = SaveTime_s(one.path)) {
      save_times_s_.push_back(*time_s);
    }
  }
  return false;
}

absl::Status Examination::RunAlone() {
  GAVEL_ASSIGN_OR_RETURN(
      alone_, RunOnce({.name = "alone", .checkpoints = "alone.checkpoints"}));
  if (EndedBadly(alone_, "the program, run alone,")) return absl::OkStatus();
  advice_ = AdviseOnReference(alone_, program_.argv.front());
  if (!advice_.empty()) return absl::OkStatus();
  found_.steps = alone_.last_step();
  Say("alone",
      absl::StrFormat("%s in %.1f s, reported: %s",
                      Plural(alone_.last_step(), "step"), alone_.duration_s,
                      Names(NamesOf(alone_.values))));
  if (alone_.last_step() != options_.steps) {
    Say("", StrCat("not the ", options_.steps,
                   " of --steps: its loop ends by itself, or it has a budget "
                   "of its own"));
  }
  return absl::OkStatus();
}

// At full speed first.
double Examination::SlowDownFactor(int attempt) const {
  if (attempt == 0) return 1;
  const double step_s =
      alone_.StepDuration_s(alone_.last_step()).value_or(1e-4);
  return std::clamp(kSlowStep_s / step_s, 2.0, kSlowDownFactorMax);
}

absl::StatusOr<DoctorRun> Examination::RunWithLease(const char* name,
                                                    DoctorLease* lease) {
  return RunOnce({.name = name,
                  .checkpoints = StrCat(name, ".checkpoints"),
                  .lease = lease,
                  .interrupt_after_step = alone_.last_step() / 2});
}

absl::Status Examination::RunLeased(const char* name,
                                    const std::string& second_device) {
  const bool moves =
      second_device != program_.device || std::string_view(name) == "moved";
  for (int attempt = 0; attempt < 2; ++attempt) {
    AcceleratorInfo first{.type = "doctor",
                          .uuid = "doctor-1",
                          .device = program_.device,
                          .threads = program_.threads,
                          .slow_down_factor = SlowDownFactor(attempt)};
    AcceleratorInfo second = first;
    second.uuid = moves ? "doctor-2" : first.uuid;
    second.device = second_device;
    second.slow_down_factor = 1;
    GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<DoctorLease> lease,
                           DoctorLease::Open(first, second));
    const std::string run_name =
        attempt == 0 ? std::string(name) : StrCat(name, ".slowly");
    GAVEL_ASSIGN_OR_RETURN(const DoctorRun run,
                           RunWithLease(run_name.c_str(), lease.get()));
    const bool in_time =
        lease->released() && lease->paused_after_step() < alone_.last_step();
    if (in_time || !lease->granted() || run.exit_code != 0 || attempt == 1) {
      JudgeLeased(name, run, *lease, attempt == 0);
      break;
    }
  }
  return absl::OkStatus();
}

void Examination::JudgeLeased(const char* name, const DoctorRun& run,
                              const DoctorLease& lease, bool at_full_speed) {
  ExaminedRun& examined = Compare(name, run, 0);
  examined.interrupted_at = lease.paused_after_step();
  const bool hangs = run.timed_out && lease.interrupted() && !lease.released();
  const std::string what = StrCat("the program, ", name, ",");
  if (!hangs && EndedBadly(run, what.c_str())) return;
  advice_ = AdviseOnLease(lease, examined);
  if (!advice_.empty()) return;
  DoctorMeasures& measures = found_.measures;
  if (!measures.pause_s) {
    measures.pause_s = lease.pause_s();
    measures.lost_s = lease.lost_s();
  }
  if (at_full_speed && !measures.leased_step_s) {
    measures.leased_step_s = run.StepDuration_s(examined.interrupted_at);
    measures.step_s = alone_.StepDuration_s(examined.interrupted_at);
  }
  Say(name, absl::StrFormat("after step %d, accelerator free in %.1f ms; %s",
                            examined.interrupted_at, 1e3 * lease.pause_s(),
                            ResultOf(examined)));
}

absl::Status Examination::Interrupt() {
  for (int attempt = 1; attempt <= kKillAttempts; ++attempt) {
    const std::string name = StrCat("killed.", attempt);
    checkpoints_ = StrCat(name, ".checkpoints");
    GAVEL_ASSIGN_OR_RETURN(interrupted_,
                           RunOnce({.name = name,
                                    .checkpoints = checkpoints_,
                                    .kill_before_step = alone_.last_step()}));
    if (EndedBadly(interrupted_, "the program, run to be killed,")) {
      return absl::OkStatus();
    }
    if (interrupted_.killed && interrupted_.last_step() < alone_.last_step()) {
      Say("killed", StrCat("by SIGKILL once the checkpoint of step ",
                           interrupted_.last_step(), " was there"));
      return absl::OkStatus();
    }
  }
  return StopByBudget();
}

absl::Status Examination::StopByBudget() {
  checkpoints_ = "stopped.checkpoints";
  GAVEL_ASSIGN_OR_RETURN(interrupted_,
                         RunOnce({.name = "stopped",
                                  .checkpoints = checkpoints_,
                                  .steps = alone_.last_step() / 2}));
  if (EndedBadly(interrupted_, "the program, with half of its steps,")) {
    return absl::OkStatus();
  }
  if (interrupted_.last_step() == 0 ||
      interrupted_.last_step() >= alone_.last_step()) {
    advice_ = {
        StrCat("it could not be interrupted: it ends before it can be killed, "
               "and does ",
               Plural(interrupted_.last_step(), "step"), " with a budget of ",
               alone_.last_step() / 2, "."),
        "begin from gavel::Session::FromEnvironment() or ReadEnvironment(), so "
        "that GAVEL_STEPS and GAVEL_CHECKPOINT_INTERVAL_STEPS count; or give "
        "more --steps"};
    return absl::OkStatus();
  }
  Say("not killed", StrCat("it ended too soon for that, ", kKillAttempts,
                           " times; stopped at step ", interrupted_.last_step(),
                           " by its budget instead; more --steps help"));
  return absl::OkStatus();
}

bool Examination::WentOnWrongly() {
  const uint64_t from = interrupted_.last_step();
  if (!resumed_.values.empty() && resumed_.values.front().step < from) {
    advice_ = {StrCat("started again it went on from step ",
                      resumed_.values.front().step,
                      ", not from the checkpoint of step ", from, "."),
               StrCat("leave GAVEL_CHECKPOINT_DIRECTORY as it is set, Track() "
                      "everything before the first gavel::Iterator, and see ",
                      resumed_.log_path)};
  } else if (resumed_.last_step() != alone_.last_step()) {
    advice_ = {StrCat("started again it ended at step ", resumed_.last_step(),
                      ", undisturbed at step ", alone_.last_step(), "."),
               "Track() what decides how long the program trains, such as its "
               "counter of epochs, and do the steps over a gavel::DataLoader"};
  }
  return !advice_.empty();
}

absl::Status Examination::Resume() {
  const uint64_t from = interrupted_.last_step();
  GAVEL_ASSIGN_OR_RETURN(
      resumed_, RunOnce({.name = "resumed", .checkpoints = checkpoints_}));
  if (EndedBadly(resumed_, "the program, started again,") || WentOnWrongly()) {
    return absl::OkStatus();
  }
  ExaminedRun& examined = Compare("restored", resumed_, from);
  // A step reports before it is counted: the value of step 9 is of the tenth.
  examined.interrupted_at = std::max(
      from,
      interrupted_.values.empty() ? 0 : interrupted_.values.back().step + 1);
  if (examined.values_compared == 0 && examined.differences.empty()) {
    advice_ = {StrCat("nothing can be told: no value was reported after step ",
                      from, "."),
               "call session->Report(\"loss\", loss) in each step"};
    return absl::OkStatus();
  }
  Say("restored", StrCat("from step ", from, " to step ", resumed_.last_step(),
                         ", ", Plural(examined.interrupted_at - from, "step"),
                         " done twice; ", ResultOf(examined)));
  return absl::OkStatus();
}

ExaminedRun& Examination::Compare(const char* name, const DoctorRun& run,
                                  uint64_t from) {
  ExaminedRun& examined = found_.runs.emplace_back();
  examined.name = name;
  examined.from_step = from;
  examined.differences =
      CompareReports(alone_.values, run.values, from, options_.tolerance);
  examined.values_compared = static_cast<uint64_t>(std::ranges::count_if(
      alone_.values,
      [from](const ReportedValue& one) { return one.step >= from; }));
  return examined;
}

void Examination::Measure() {
  DoctorMeasures& measures = found_.measures;
  const auto first_step_s = [](const DoctorRun& run) {
    return run.step_times.empty()
               ? std::nullopt
               : std::optional<double>(run.step_times.front().at_s);
  };
  measures.start_s = first_step_s(alone_);
  measures.restart_s = first_step_s(resumed_);
  if (alone_.last_checkpoint) {
    measures.checkpoint_bytes = BytesIn(alone_.last_checkpoint->path);
  }
  double sum_s = 0;
  for (const double time_s : save_times_s_) sum_s += time_s;
  if (!save_times_s_.empty()) {
    measures.save_s = sum_s / static_cast<double>(save_times_s_.size());
  }
}

// Lost state is told apart from randomness by a second undisturbed run, made
// only now.
absl::Status Examination::Explain() {
  GAVEL_ASSIGN_OR_RETURN(
      const DoctorRun again,
      RunOnce({.name = "again", .checkpoints = "again.checkpoints"}));
  if (EndedBadly(again, "the program, run alone once more,")) {
    return absl::OkStatus();
  }
  const std::vector<ReportDifference> unsteady =
      CompareReports(alone_.values, again.values, 0, options_.tolerance);
  for (ExaminedRun& run : found_.runs) {
    std::erase_if(run.differences, [&](const ReportDifference& one) {
      return std::ranges::find(unsteady, one.name, &ReportDifference::name) !=
             unsteady.end();
    });
    if (advice_.empty() && !run.differences.empty()) {
      advice_ = AdviseOnDifference(run, run.differences.front());
    }
  }
  if (unsteady.empty()) return absl::OkStatus();
  const Advice own = AdviseOnRandomness(unsteady.front());
  if (advice_.empty()) {
    advice_ = own;
  } else {
    StrAppend(&advice_.remedy, ".\n  Besides, ", own.problem,
              "\n  Remedy: ", own.remedy);
  }
  return absl::OkStatus();
}

absl::StatusOr<Examined> Examination::Run() {
  for (const Part part :
       {&Examination::RunAlone, &Examination::Pause, &Examination::Move,
        &Examination::Interrupt, &Examination::Resume}) {
    GAVEL_RETURN_IF_ERROR((this->*part)());
    if (!advice_.empty()) break;
  }
  const bool differs = std::ranges::any_of(
      found_.runs, [](const auto& run) { return !run.differences.empty(); });
  if (advice_.empty() && differs) {
    GAVEL_RETURN_IF_ERROR(Explain());
  }
  Measure();
  found_.passed = advice_.empty();
  found_.problem = advice_.problem;
  found_.remedy = advice_.remedy;
  return std::move(found_);
}

}  // namespace

std::optional<double> DoctorMeasures::load_s() const {
  if (!start_s || !restart_s) return std::nullopt;
  return std::max(0.0, *restart_s - *start_s);
}

absl::StatusOr<Examined> Examine(const DoctorProgram& program,
                                 const ExaminationOptions& options) {
  return Examination(program, options).Run();
}

}  // namespace gavel
