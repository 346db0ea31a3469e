#include "coordinator/cli/doctor_examination.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Steps that are too short to be paused are stretched to about this.
constexpr double kSlowStep_s = 0.03;
constexpr double kSlowDownFactorMax = 1000;
// The part of the timeout that a run with more steps may take.
constexpr double kLongerRunPart = 0.5;

// The first few names, and how many more there are.
std::string FirstNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  if (names.size() <= kShown) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kShown);
  return StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kShown,
                " more");
}

// The parts of an examination, in their order. Not thread-safe.
class DoctorExamination {
 public:
  DoctorExamination(const DoctorProgram& program,
                    const ExaminationOptions& options)
      : program_(program), options_(options), steps_(options.steps) {
    if (options.own_steps > 0) steps_ = std::min(steps_, options.own_steps);
  }

  absl::StatusOr<Examined> Run();

 private:
  using Part = absl::Status (DoctorExamination::*)();

  // `checkpoints` empty: NAME.checkpoints.
  absl::StatusOr<DoctorRun> RunOnce(DoctorRunOptions options);
  absl::Status RunAlone();
  uint64_t MoreSteps() const;
  void SayAccount() const;
  absl::Status Pause() { return RunLeased("paused", program_.device); }
  absl::Status Move() { return RunLeased("moved", options_.move_to); }
  absl::Status RunLeased(const char* name, const std::string& second_device);
  double SlowDownFactor(int attempt) const;
  void JudgeLeased(const char* name, const DoctorRun& run, bool at_full_speed);
  uint64_t OwnSteps() const;
  absl::Status RunToOwnEnd();
  absl::Status RestoreAtEach();
  std::vector<uint64_t> StepsToRestoreAt() const;
  // Its files are PREFIX.ATTEMPT; sets interrupted_ and checkpoints_.
  absl::Status Interrupt(uint64_t step, const std::string& prefix);
  absl::Status StopByBudget(uint64_t step, const std::string& prefix);
  absl::Status Resume();
  absl::Status Explain();
  absl::StatusOr<std::string> SuspectByState(uint64_t from);

  // These fill advice_ and return true when something is wrong.
  bool EndedBadly(const DoctorRun& run, const char* what);
  bool HasBadCheckpoint(const DoctorRun& run);
  bool WentOnWrongly(const ExaminedRun& examined);
  void JudgeAccount();

  // Restored runs are compared with it.
  const DoctorRun& reference() const { return own_end_ ? whole_ : alone_; }
  void TakeUntracked(const DoctorAccount& account);
  ExaminedRun& Compare(const char* name, const DoctorRun& expected,
                       const DoctorRun& run, uint64_t from);
  std::vector<std::string> StateDifferences(const DoctorRun& expected,
                                            const DoctorRun& run) const;
  void Measure();
  void Say(const char* what, const std::string& text) const {
    if (options_.say) options_.say(what, text);
  }
  std::string ResultOf(const ExaminedRun& run) const;

  const DoctorProgram& program_;
  const ExaminationOptions& options_;
  uint64_t steps_;
  DoctorRun alone_;
  DoctorRun whole_;       // run to its own end
  bool own_end_ = false;  // which was reached
  DoctorRun interrupted_;
  DoctorRun resumed_;
  std::string checkpoints_;           // of the two
  bool ended_after_restart_ = false;  // a loop, in a run that was restored
  Advice advice_;                     // empty: nothing is wrong yet
  std::vector<Advice> unseen_;        // what could not be examined
  std::vector<double> save_times_s_;
  Examined found_;
};

}  // namespace

std::string DoctorExamination::ResultOf(const ExaminedRun& run) const {
  if (!run.differences.empty()) {
    const ReportDifference& first = run.differences.front();
    return StrCat(first.name, " DIFFERS from step ", first.step, " on");
  }
  const std::string values =
      StrCat(Plural(run.values_compared, "value"), " equal ",
             options_.tolerance > 0 ? "within the tolerance" : "to the bit");
  if (!run.state_compared) return values;
  return StrCat(values, ", tracked state ",
                run.state_differences.empty()
                    ? "equal"
                    : StrCat("DIFFERS: ", FirstNames(run.state_differences)));
}

absl::StatusOr<DoctorRun> DoctorExamination::RunOnce(DoctorRunOptions options) {
  if (options.steps == 0) options.steps = steps_;
  if (options.checkpoints.empty()) {
    options.checkpoints = options.name + ".checkpoints";
  }
  GAVEL_ASSIGN_OR_RETURN(DoctorRun run, RunUnderDoctor(program_, options));
  std::erase_if(run.values, [this](const ReportedValue& one) {
    return std::ranges::count(options_.ignored, one.name) > 0;
  });
  return run;
}

bool DoctorExamination::EndedBadly(const DoctorRun& run, const char* what) {
  advice_ = AdviseOnEnd(run, what, program_.timeout_s);
  return !advice_.empty() || HasBadCheckpoint(run);
}

bool DoctorExamination::HasBadCheckpoint(const DoctorRun& run) {
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

absl::Status DoctorExamination::RunAlone() {
  for (std::string name = "alone";; name = StrCat("alone.", steps_)) {
    GAVEL_ASSIGN_OR_RETURN(alone_, RunOnce({.name = name}));
    if (EndedBadly(alone_, "the program, run alone,")) return absl::OkStatus();
    advice_ = AdviseOnReference(alone_, program_.argv.front());
    if (!advice_.empty()) return absl::OkStatus();
    const uint64_t more = MoreSteps();
    if (more == 0) break;
    steps_ = more;
    alone_ = {};
  }
  found_.steps = alone_.last_step();
  found_.account = alone_.account;
  Say("alone",
      absl::StrFormat("%s in %.1f s, reported: %s",
                      Plural(alone_.last_step(), "step"), alone_.duration_s,
                      FirstNames(NamesOf(alone_.values))));
  if (options_.steps_given && alone_.last_step() != options_.steps) {
    Say("", StrCat("not the ", options_.steps,
                   " of --steps: its loop ends by itself, or it has a budget "
                   "of its own"));
  }
  SayAccount();
  return absl::OkStatus();
}

// 0: the run has enough, ends by itself, or would take too long.
uint64_t DoctorExamination::MoreSteps() const {
  if (options_.steps_given || alone_.last_step() < steps_) return 0;
  const uint64_t wanted =
      std::min(StepsForEpochs(alone_.account, steps_), OwnSteps());
  const double step_s =
      alone_.duration_s / static_cast<double>(alone_.last_step());
  const bool is_long = static_cast<double>(wanted) * step_s >
                       kLongerRunPart * program_.timeout_s;
  return wanted <= steps_ || is_long ? 0 : wanted;
}

void DoctorExamination::SayAccount() const {
  const DoctorAccount& account = alone_.account;
  if (account.empty()) return;
  Say("tracked", account.tracked.empty()
                     ? "nothing"
                     : absl::StrJoin(account.tracked, ", "));
  for (const UntrackedItem& one : account.untracked) {
    Say("untracked", DescribeUntracked(one));
  }
  const std::vector<uint64_t> ends = account.LoopEnds();
  if (account.loops_begun == 0) return;
  Say("epochs",
      StrCat(ends.empty() ? "none ended"
                          : StrCat(Plural(ends.size(), "loop"),
                                   " ended, the first at step ", ends.front()),
             account.breaks.empty() ? "" : " by `break`",
             account.evaluations.empty()
                 ? "; no evaluation was seen"
                 : StrCat("; evaluated ",
                          Plural(account.evaluations.size(), "time"))));
}

// At full speed first.
double DoctorExamination::SlowDownFactor(int attempt) const {
  if (attempt == 0) return 1;
  const double step_s =
      alone_.StepDuration_s(alone_.last_step()).value_or(1e-4);
  return std::clamp(kSlowStep_s / step_s, 2.0, kSlowDownFactorMax);
}

absl::Status DoctorExamination::RunLeased(const char* name,
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
    const std::string run_name =
        attempt == 0 ? std::string(name) : StrCat(name, ".slowly");
    GAVEL_ASSIGN_OR_RETURN(
        const DoctorRun run,
        RunOnce({.name = run_name,
                 .leases = {{first, second}},
                 .interrupt_after_step = alone_.last_step() / 2}));
    const DoctorLeases& leases = run.leases;
    const bool in_time =
        leases.released && leases.paused_after_step < alone_.last_step();
    if (in_time || !leases.granted || run.exit_code != 0 || attempt == 1) {
      JudgeLeased(name, run, attempt == 0);
      break;
    }
  }
  return absl::OkStatus();
}

// A longer run may show more, and only one that is paused what stays on the
// accelerator.
void DoctorExamination::TakeUntracked(const DoctorAccount& account) {
  std::vector<UntrackedItem>& known = alone_.account.untracked;
  for (const UntrackedItem& one : account.untracked) {
    const bool is_known = std::ranges::any_of(known, [&](const auto& other) {
      return other.kind == one.kind &&
             (one.kind == "device" || other.text == one.text);
    });
    if (is_known) continue;
    Say("untracked", DescribeUntracked(one));
    known.push_back(one);
  }
  found_.account.untracked = known;
}

void DoctorExamination::JudgeLeased(const char* name, const DoctorRun& run,
                                    bool at_full_speed) {
  const DoctorLeases& leases = run.leases;
  ExaminedRun& examined = Compare(name, alone_, run, 0);
  examined.interrupted_at = leases.paused_after_step;
  TakeUntracked(run.account);
  const bool hangs = run.timed_out && leases.interrupted && !leases.released;
  const std::string what = StrCat("the program, ", name, ",");
  if (!hangs && EndedBadly(run, what.c_str())) return;
  advice_ = AdviseOnLease(leases, examined);
  if (!advice_.empty()) return;
  DoctorMeasures& measures = found_.measures;
  if (!measures.pause_s) {
    measures.pause_s = leases.pause_s;
    measures.lost_s = leases.lost_s;
  }
  if (at_full_speed && !measures.leased_step_s) {
    measures.leased_step_s = run.StepDuration_s(examined.interrupted_at);
    measures.step_s = alone_.StepDuration_s(examined.interrupted_at);
  }
  Say(name, absl::StrFormat("after step %d, accelerator free in %.1f ms; %s",
                            examined.interrupted_at, 1e3 * leases.pause_s,
                            ResultOf(examined)));
}

void DoctorExamination::JudgeAccount() {
  if (const UntrackedItem* lost = alone_.account.Lost()) {
    advice_ = AdviseOnUntracked(*lost);
    return;
  }
  const Advice epochs = AdviseOnEpochs(
      reference().account, ended_after_restart_, reference().last_step());
  if (!epochs.empty()) unseen_.insert(unseen_.begin(), epochs);
  found_.unknown = !unseen_.empty();
  for (const Advice& one : unseen_) {
    StrAppend(&advice_.problem, advice_.problem.empty() ? "" : "\n  Besides, ",
              one.problem);
    StrAppend(&advice_.remedy, advice_.remedy.empty() ? "" : "; ", one.remedy);
  }
}

std::vector<std::string> DoctorExamination::StateDifferences(
    const DoctorRun& expected, const DoctorRun& run) const {
  std::vector<std::string> names =
      DifferingState(expected.last_checkpoint->path, run.last_checkpoint->path)
          .value_or(std::vector<std::string>());
  std::erase_if(names, [this](const std::string& name) {
    return std::ranges::any_of(
        options_.ignored, [&](const std::string& ignored) {
          return name == ignored || name.starts_with(ignored + "/") ||
                 name == "gavel.bytes/" + ignored;
        });
  });
  return names;
}

// Two runs that end at different steps are compared up to the earlier end.
ExaminedRun& DoctorExamination::Compare(const char* name,
                                        const DoctorRun& expected,
                                        const DoctorRun& run, uint64_t from) {
  ExaminedRun& examined = found_.runs.emplace_back();
  examined.name = name;
  examined.from_step = from;
  examined.differences =
      CompareReports(expected.values, run.values, from, options_.tolerance);
  const bool same_end = run.last_step() == expected.last_step();
  const uint64_t end = std::min(run.last_step(), expected.last_step());
  std::erase_if(examined.differences, [&](const ReportDifference& one) {
    return !same_end && one.step >= end;
  });
  examined.values_compared = static_cast<uint64_t>(std::ranges::count_if(
      expected.values,
      [&](const ReportedValue& one) { return one.step >= from; }));
  examined.state_compared =
      options_.tolerance == 0 && run.last_checkpoint && same_end;
  if (examined.state_compared) {
    examined.state_differences = StateDifferences(expected, run);
  }
  return examined;
}

void DoctorExamination::Measure() {
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

namespace {

// "loss" if it was reported at that step, too.
std::string OtherNameAt(const std::vector<ReportedValue>& values,
                        const ReportDifference& difference) {
  std::string other;
  for (const ReportedValue& one : values) {
    if (one.step != difference.step || one.name == difference.name) continue;
    if (other.empty() || one.name == "loss") other = one.name;
  }
  return other;
}

}  // namespace

// Distinguishes lost state from randomness by a second undisturbed run, which
// is made only now.
absl::Status DoctorExamination::Explain() {
  GAVEL_ASSIGN_OR_RETURN(
      const DoctorRun again,
      RunOnce({.name = "again", .steps = own_end_ ? OwnSteps() : steps_}));
  if (EndedBadly(again, "the program, run alone once more,")) {
    return absl::OkStatus();
  }
  const std::vector<ReportDifference> unsteady =
      CompareReports(reference().values, again.values, 0, options_.tolerance);
  const std::vector<std::string> unsteady_state =
      StateDifferences(reference(), again);
  const bool steady = unsteady.empty() && unsteady_state.empty();
  for (ExaminedRun& run : found_.runs) {
    std::erase_if(run.differences, [&](const ReportDifference& one) {
      return std::ranges::find(unsteady, one.name, &ReportDifference::name) !=
             unsteady.end();
    });
    std::erase_if(run.state_differences, [&](const std::string& name) {
      return std::ranges::find(unsteady_state, name) != unsteady_state.end();
    });
    if (!advice_.empty() || run.is_equal()) continue;
    Evidence evidence{alone_.account, "", ""};
    const bool restored = run.name == "restored";
    if (restored && steady) {
      GAVEL_ASSIGN_OR_RETURN(evidence.state, SuspectByState(run.from_step));
    }
    if (run.differences.empty()) {
      advice_ = AdviseOnState(
          run, FirstNames(run.state_differences),
          restored ? reference().last_step() : alone_.last_step(), evidence);
      continue;
    }
    const ReportDifference& first = run.differences.front();
    if (run.differences.size() == 1 && unsteady.empty()) {
      evidence.equal_name =
          OtherNameAt((restored ? reference() : alone_).values, first);
    }
    advice_ = AdviseOnDifference(run, first, evidence);
  }
  if (steady) return absl::OkStatus();
  const Advice own = AdviseOnRandomness(
      unsteady.empty()
          ? StrCat("tracked state differs in a second undisturbed run: ",
                   FirstNames(unsteady_state), ".")
          : DescribeDifference(unsteady.front(),
                               "in a second undisturbed run"));
  if (advice_.empty()) {
    advice_ = own;
  } else {
    StrAppend(&advice_.remedy, ".\n  Besides, ", own.problem,
              "\n  Remedy: ", own.remedy);
  }
  return absl::OkStatus();
}

absl::StatusOr<Examined> DoctorExamination::Run() {
  for (const Part part :
       {&DoctorExamination::RunAlone, &DoctorExamination::Pause,
        &DoctorExamination::Move, &DoctorExamination::RunToOwnEnd,
        &DoctorExamination::RestoreAtEach}) {
    GAVEL_RETURN_IF_ERROR((this->*part)());
    if (!advice_.empty()) break;
  }
  const bool differs = std::ranges::any_of(
      found_.runs, [](const auto& run) { return !run.is_equal(); });
  if (advice_.empty() && differs) {
    GAVEL_RETURN_IF_ERROR(Explain());
  }
  if (advice_.empty()) JudgeAccount();
  Measure();
  found_.passed = advice_.empty();
  found_.problem = advice_.problem;
  found_.remedy = advice_.remedy;
  return std::move(found_);
}

std::optional<double> DoctorMeasures::load_s() const {
  if (!start_s || !restart_s) return std::nullopt;
  return std::max(0.0, *restart_s - *start_s);
}

absl::StatusOr<Examined> Examine(const DoctorProgram& program,
                                 const ExaminationOptions& options) {
  return DoctorExamination(program, options).Run();
}

// ---- The runs that are killed and started again ----

namespace {

// A program may end between its checkpoint and the kill.
constexpr int kKillAttempts = 3;
// For the program's own end, which may be weeks away.
constexpr double kOwnEnd_s = 20;
// A program that has lost what ends it may take so many times its steps, and a
// few more.
constexpr uint64_t kLostEndFactor = 2;
constexpr uint64_t kLostEndSteps = 20;
// Steps after a restart of which the state is looked at one by one.
constexpr uint64_t kStatesCompared = 16;

// The last checkpoint of each step.
std::map<uint64_t, std::string> StatesIn(const std::string& directory) {
  std::map<uint64_t, std::string> states;
  for (const DoctorCheckpoint& one : ListCheckpoints(directory)) {
    states[one.generation.step] = one.path;
  }
  return states;
}

// The steps after `from` that changed an entry of one of these.
std::vector<uint64_t> ChangesIn(const std::map<uint64_t, std::string>& states,
                                const std::vector<std::string>& groups,
                                uint64_t from) {
  std::vector<uint64_t> changes;
  for (auto state = states.upper_bound(from); state != states.end(); ++state) {
    const auto before = states.find(state->first - 1);
    if (before == states.end()) continue;
    const auto names = DifferingState(before->second, state->second);
    const bool changed =
        names.ok() && std::ranges::any_of(*names, [&](const auto& name) {
          return std::ranges::count(groups, StateGroup(name)) > 0;
        });
    if (changed) changes.push_back(state->first);
  }
  return changes;
}

}  // namespace

uint64_t DoctorExamination::OwnSteps() const {
  return options_.own_steps > 0 ? options_.own_steps : kDoctorStepsMax;
}

// A schedule's late change, an early stop and the last epoch are seen only
// there.
absl::Status DoctorExamination::RunToOwnEnd() {
  own_end_ = alone_.last_step() < steps_ || steps_ == options_.own_steps;
  if (own_end_) {
    whole_ = alone_;
    return absl::OkStatus();
  }
  const double timeout_s =
      std::min(program_.timeout_s, std::max(kOwnEnd_s, 3 * alone_.duration_s));
  GAVEL_ASSIGN_OR_RETURN(
      whole_,
      RunOnce({.name = "whole", .steps = OwnSteps(), .timeout_s = timeout_s}));
  TakeUntracked(whole_.account);
  own_end_ = !whole_.timed_out &&
             (whole_.last_step() < OwnSteps() || options_.own_steps > 0);
  if (own_end_) {
    if (EndedBadly(whole_, "the program, run to its own end,")) {
      return absl::OkStatus();
    }
    Say("end", StrCat("at step ", whole_.last_step()));
    return absl::OkStatus();
  }
  Say("end",
      absl::StrFormat("its own is not reached in %.0f s", whole_.duration_s));
  unseen_.push_back(
      AdviseOnOwnEnd(alone_.account, alone_.last_step(), whole_.duration_s));
  return absl::OkStatus();
}

// An odd and an even one, for what takes turns; and one in the last epoch,
// where counters of an early stop have counted and schedules have changed.
std::vector<uint64_t> DoctorExamination::StepsToRestoreAt() const {
  const uint64_t end = reference().last_step();
  uint64_t late = end - std::max<uint64_t>(1, end / 8);
  const std::vector<uint64_t> ends = reference().account.LoopEnds();
  for (const uint64_t one : ends) {
    if (one + 1 < end) late = std::max(late, one + 1);
  }
  std::set<uint64_t> steps = {end / 3 | 1, (end / 2 + 1) & ~uint64_t{1}, late};
  std::erase_if(steps, [end](uint64_t one) { return one == 0 || one >= end; });
  return {steps.begin(), steps.end()};
}

absl::Status DoctorExamination::RestoreAtEach() {
  for (const uint64_t step : StepsToRestoreAt()) {
    GAVEL_RETURN_IF_ERROR(Interrupt(step, StrCat("killed.", step)));
    if (!advice_.empty()) break;
    GAVEL_RETURN_IF_ERROR(Resume());
    if (!advice_.empty()) break;
  }
  return absl::OkStatus();
}

absl::Status DoctorExamination::Interrupt(uint64_t step,
                                          const std::string& prefix) {
  for (int attempt = 1; attempt <= kKillAttempts; ++attempt) {
    const std::string name = StrCat(prefix, ".", attempt);
    checkpoints_ = StrCat(name, ".checkpoints");
    GAVEL_ASSIGN_OR_RETURN(interrupted_,
                           RunOnce({.name = name,
                                    .checkpoints = checkpoints_,
                                    .steps = reference().last_step(),
                                    .checkpoint_interval_steps = step,
                                    .kill_at_step = step}));
    if (EndedBadly(interrupted_, "the program, run to be killed,")) {
      return absl::OkStatus();
    }
    if (interrupted_.killed && interrupted_.last_step() == step) {
      Say("killed", StrCat("by SIGKILL once the checkpoint of step ", step,
                           " was there"));
      return absl::OkStatus();
    }
  }
  return StopByBudget(step, prefix);
}

absl::Status DoctorExamination::StopByBudget(uint64_t step,
                                             const std::string& prefix) {
  const std::string name = StrCat(prefix, ".stopped");
  checkpoints_ = StrCat(name, ".checkpoints");
  GAVEL_ASSIGN_OR_RETURN(
      interrupted_,
      RunOnce({.name = name, .checkpoints = checkpoints_, .steps = step}));
  if (EndedBadly(interrupted_, "the program, with fewer steps,")) {
    return absl::OkStatus();
  }
  if (interrupted_.last_step() != step) {
    advice_ = {StrCat("it could not be interrupted: it ends before it can be "
                      "killed, and does ",
                      Plural(interrupted_.last_step(), "step"),
                      " with a budget of ", step, "."),
               "begin from gavel::Session::FromEnvironment() or "
               "ReadEnvironment(), so that GAVEL_STEPS and "
               "GAVEL_CHECKPOINT_INTERVAL_STEPS count; or give more --steps"};
    return absl::OkStatus();
  }
  Say("not killed", StrCat("it ended too soon for that, ", kKillAttempts,
                           " times; stopped at step ", step,
                           " by its budget instead; more --steps help"));
  return absl::OkStatus();
}

bool DoctorExamination::WentOnWrongly(const ExaminedRun& examined) {
  const uint64_t from = interrupted_.last_step();
  if (!resumed_.values.empty() && resumed_.values.front().step < from) {
    advice_ = {StrCat("started again it went on from step ",
                      resumed_.values.front().step,
                      ", not from the checkpoint of step ", from, "."),
               StrCat("leave GAVEL_CHECKPOINT_DIRECTORY as it is set, Track() "
                      "everything before the first gavel::Iterator, and see ",
                      resumed_.log_path)};
  } else if (resumed_.last_step() != reference().last_step() &&
             examined.differences.empty()) {
    advice_ = AdviseOnEnds(from, reference().last_step(), resumed_.last_step(),
                           alone_.account);
  }
  return !advice_.empty();
}

absl::Status DoctorExamination::Resume() {
  const uint64_t from = interrupted_.last_step();
  const uint64_t end = reference().last_step();
  const bool ends_by_itself = own_end_ && end != options_.own_steps;
  GAVEL_ASSIGN_OR_RETURN(
      resumed_,
      RunOnce({.name = StrCat("resumed.", from),
               .checkpoints = checkpoints_,
               .steps = ends_by_itself
                            ? std::min(kLostEndFactor * end + kLostEndSteps,
                                       kDoctorStepsMax)
                            : end}));
  ended_after_restart_ |= !resumed_.account.LoopEnds().empty();
  if (EndedBadly(resumed_, "the program, started again,")) {
    return absl::OkStatus();
  }
  ExaminedRun& examined = Compare("restored", reference(), resumed_, from);
  if (WentOnWrongly(examined)) return absl::OkStatus();
  // A step reports before it is counted: the value at step 9 belongs to the
  // tenth step.
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

// The tracked state after each of the next steps, undisturbed and after a
// restart, tells what went wrong first. Empty: nothing was seen.
absl::StatusOr<std::string> DoctorExamination::SuspectByState(uint64_t from) {
  DoctorRunOptions run;
  run.name = "traced.alone";
  run.steps = std::min(from + kStatesCompared, reference().last_step());
  run.checkpoint_interval_steps = 1;
  run.checkpoints_kept = kStatesCompared + 2;
  GAVEL_ASSIGN_OR_RETURN(const DoctorRun expected, RunOnce(run));
  GAVEL_RETURN_IF_ERROR(Interrupt(from, "traced"));
  if (!std::exchange(advice_, {}).empty()) return "";
  run.name = "traced";
  run.checkpoints = checkpoints_;
  GAVEL_ASSIGN_OR_RETURN(const DoctorRun found, RunOnce(run));
  const auto undisturbed = StatesIn(expected.checkpoint_directory);
  const auto restored = StatesIn(found.checkpoint_directory);
  LostState lost;
  lost.from = from;
  // A module's statistics change without an update, and an optimizer without
  // momentum has no state.
  for (const char* kind : {"optimizer", "module"}) {
    const std::vector<std::string> names = alone_.account.TrackedAs(kind);
    lost.updates = ChangesIn(undisturbed, names, from);
    lost.restored_updates = ChangesIn(restored, names, from);
    lost.is_between_updates =
        ChangesIn(undisturbed, names, from - 1).size() == lost.updates.size();
    if (!lost.updates.empty()) break;
  }
  for (const auto& [step, path] : restored) {
    const auto same = undisturbed.find(step);
    if (step <= from || same == undisturbed.end()) continue;
    auto names = DifferingState(same->second, path);
    if (!names.ok() || names->empty()) continue;
    lost.step = step;
    lost.names = *std::move(names);
    return DescribeLostState(lost);
  }
  return "";
}

// ---- The advice.

namespace {

constexpr size_t kUpdatesShown = 4;

constexpr char kUseTheRuntime[] =
    "link gavel::runtime and wrap the training loop: auto session = "
    "gavel::Session::FromEnvironment(); session->Track(...) what makes up the "
    "state; for (auto& batch : gavel::Iterator(*session, loader)) ...; return "
    "session->Finish()";
constexpr char kTrackIt[] =
    "Track() whatever a step depends on: each model and optimizer, learning "
    "rate schedulers, counters and running averages, random generators of your "
    "own; and do the steps over a seeded gavel::DataLoader, so that the "
    "position in the data is kept";
constexpr char kSeedIt[] =
    "seed all that is random (torch::manual_seed, generators of your own, the "
    "loader), report nothing that depends on time (or give --ignore NAME), and "
    "ask for deterministic kernels on a GPU, or give a --tolerance; then ask "
    "again";
constexpr char kBeginFromEnvironment[] =
    "begin from gavel::Session::FromEnvironment() or ReadEnvironment(), leave "
    "checkpoint_directory as it is, and return session->Finish() at the end";

bool NamesUsage(const std::string& output) {
  const std::string text = absl::AsciiStrToLower(output);
  return absl::StrContains(text, "usage") ||
         absl::StrContains(text, "--help") ||
         absl::StrContains(text, "required");
}

bool AllAtStepZero(const std::vector<ReportedValue>& values) {
  return std::ranges::all_of(
      values, [](const ReportedValue& one) { return one.step == 0; });
}

// The lost state, judged by the step at which a restored run begins to differ.
std::string SuspectAfterRestart(uint64_t from_step,
                                const ReportDifference& difference) {
  if (difference.step > from_step) {
    return StrCat(
        "the value of step ", from_step,
        " was still right, so model and batch were restored; what changes the "
        "model after it was not: the optimizer's state, a learning rate "
        "schedule, or the order of later batches");
  }
  return "the first step after the restart differs already: a model or "
         "buffer, the batch that came, or a random generator was not restored";
}

}  // namespace

std::string Plural(uint64_t count, const char* noun) {
  return StrCat(count, " ", noun, count == 1 ? "" : "s");
}

Advice AdviseOnEnd(const DoctorRun& run, const char* what, double timeout_s) {
  if (run.killed || (run.exit_code == 0 && !run.timed_out)) return {};
  const std::string tail = TailOf(run.log_path);
  Advice advice;
  if (run.timed_out) {
    advice.problem =
        absl::StrFormat("%s still runs after %g s.", what, timeout_s);
    advice.remedy = "give more time by --timeout, or fewer --steps";
  } else if (run.exit_code > 0) {
    advice.problem = StrCat(what, " exits with ", run.exit_code, ".");
    advice.remedy = "correct that first";
    if (NamesUsage(tail)) {
      advice.remedy =
          "give it the arguments that it asks for, after its name: gavel "
          "doctor -- ./train ARGUMENTS";
    }
  } else {
    advice.problem = StrCat(what, " dies of signal ", -run.exit_code, ".");
    advice.remedy = "correct that first";
  }
  StrAppend(&advice.problem,
            tail.empty() ? "\n  It printed nothing." : "\n  Its last output:\n",
            tail);
  return advice;
}

Advice AdviseOnReference(const DoctorRun& alone, const std::string& program) {
  if (alone.values.empty() && !alone.last_checkpoint) {
    return {StrCat(program,
                   " does not use the runtime: it reported nothing and wrote "
                   "no checkpoint."),
            kUseTheRuntime};
  }
  if (!alone.last_checkpoint && AllAtStepZero(alone.values)) {
    return {StrCat(program,
                   " never reached a boundary between two steps: all that it "
                   "reported is of step 0, and it wrote no checkpoint."),
            "wrap the training loop: for (auto& batch : "
            "gavel::Iterator(*session, loader)) { ... }"};
  }
  if (!alone.last_checkpoint) {
    return {StrCat(program,
                   " wrote no checkpoint, so it would begin again after a "
                   "kill."),
            kBeginFromEnvironment};
  }
  if (alone.values.empty()) {
    return {StrCat("nothing can be told: ", program,
                   " reported no value that could be compared."),
            "call session->Report(\"loss\", loss) in each step"};
  }
  if (alone.last_step() < 2) {
    return {StrCat("it did only ", Plural(alone.last_step(), "step"),
                   " and can't be interrupted in between."),
            "give it data or epochs for 2 steps or more"};
  }
  if (const auto nan = FirstNan(alone.values)) {
    return {StrCat("nothing can be told: ", nan->name, " at step ", nan->step,
                   " is not a number, and what follows from it is none in "
                   "every run."),
            "correct the training first (a lower learning rate, its data), or "
            "leave the value out by --ignore NAME"};
  }
  if (!AnyVaries(alone.values)) {
    return {
        StrCat("nothing can be told: what ", program,
               " reports is the same in each step (", alone.values.front().name,
               " is ", std::strtod(alone.values.front().value.c_str(), nullptr),
               "), so no run could differ."),
        "call session->Report(\"loss\", loss) in each step"};
  }
  return {};
}

Advice AdviseOnLease(const DoctorLeases& leases, const ExaminedRun& run) {
  if (!leases.asked) {
    return {StrCat("run under a coordinator (", run.name,
                   "), it never asked for a lease."),
            kBeginFromEnvironment};
  }
  if (!leases.granted) {
    return {
        "it spoke with the coordinator, but never asked for a lease: it "
        "did not come to its training loop.",
        "wrap the training loop in gavel::Iterator"};
  }
  if (!leases.released) {
    return {StrCat("it could not be ", run.name,
                   ": asked to give its lease back, it did not come to a "
                   "boundary between two steps."),
            "give more --steps; each turn of the training loop must be one of "
            "gavel::Iterator"};
  }
  if (!leases.resumed) {
    return {StrCat("it was paused after step ", leases.paused_after_step,
                   " and ended without going on."),
            "let only gavel::Iterator end the loop, and see its output"};
  }
  return {};
}

std::string DescribeUntracked(const UntrackedItem& item) {
  if (item.kind == "average") {
    return StrCat(
        "a copy that follows the model (a moving average, a target "
        "network): ",
        item.text);
  }
  if (item.kind == "tensor") return StrCat(item.text, " in several steps");
  if (item.kind == "device") {
    return StrCat(item.text,
                  ", in the way of the next job: track these tensors, or free "
                  "them in Session::OnRelease()");
  }
  return item.text;
}

std::string SuspectByAccount(const DoctorAccount& account) {
  for (const char* kind :
       {"module", "average", "schedule", "generator", "device"}) {
    for (const UntrackedItem& one : account.untracked) {
      if (one.kind == kind) return DescribeUntracked(one);
    }
  }
  if (account.breaks.empty()) return "";
  return StrCat("a loop that is left by `break` (the first time at step ",
                account.breaks.front(),
                "): what decides on the `break` is not tracked, and the batch "
                "at which it comes is not trained on");
}

Advice AdviseOnUntracked(const UntrackedItem& item) {
  return {StrCat("it uses state that is not tracked, and would be lost: ",
                 DescribeUntracked(item), "."),
          kTrackIt};
}

Advice AdviseOnEpochs(const DoctorAccount& undisturbed,
                      bool ended_after_restart, uint64_t steps) {
  if (undisturbed.empty()) {
    return {
        "no epoch end was examined: the program's runtime gives no account "
        "of its loops.",
        "link the runtime of this version"};
  }
  if (undisturbed.loops_begun == 0) return {};
  const bool none = undisturbed.LoopEnds().empty();
  if (!none && ended_after_restart) return {};
  return {StrCat("no epoch end was examined: no loop ended ",
                 none ? "" : "after the restart ", "in ", Plural(steps, "step"),
                 ", so schedulers, evaluations and counters of epochs were not "
                 "seen."),
          StrCat("give --steps ", StepsForEpochs(undisturbed, steps),
                 none ? " or more" : "",
                 " (and the --timeout that they need), or a smaller data set")};
}

Advice AdviseOnOwnEnd(const DoctorAccount& account, uint64_t steps,
                      double waited_s) {
  const bool uncounted = account.loops_begun > 1 && !account.CountsSomething();
  return {
      absl::StrFormat(
          "its own end was not reached in %.0f s: what comes after step %u (a "
          "schedule that changes later, an early stop, what ends it) was not "
          "seen%s.",
          waited_s, steps,
          uncounted ? StrCat("; ", Plural(account.loops_begun, "loop"),
                             " were begun, and nothing that is tracked can "
                             "count them")
                    : ""),
      StrCat(
          "let it end sooner, with fewer epochs or less data, or give a "
          "longer --timeout; a program that its step budget ends: set "
          "GAVEL_STEPS",
          uncounted ? "; Track(\"epoch\", epoch), if it counts epochs" : "")};
}

Advice AdviseOnEnds(uint64_t from, uint64_t expected, uint64_t found,
                    const DoctorAccount& account) {
  std::string suspect = SuspectByAccount(account);
  if (suspect.empty()) {
    suspect = account.CountsSomething()
                  ? "what decides that it ends is not tracked: the counter or "
                    "the best value of an early stop, mostly"
                  : "what counts its epochs is not tracked";
  }
  return {
      StrCat("started again from step ", from, " it ",
             found > expected ? "goes on to step " : "ends at step ", found,
             ", undisturbed it ends at step ", expected,
             ".\n  Suspect: ", suspect, "."),
      "session->Track(\"epoch\", epoch) whatever decides how long it trains,"
      " and do the steps over a gavel::DataLoader"};
}

std::string StateGroup(std::string_view entry) {
  constexpr std::string_view kBytes = "gavel.bytes/";
  if (entry.starts_with(kBytes)) entry.remove_prefix(kBytes.size());
  if (entry.starts_with("gavel/loop")) return "the position in the data";
  if (entry.starts_with("gavel/random")) return "random generators";
  if (entry.starts_with("gavel/gradient")) return "gradients";
  return std::string(entry.substr(0, entry.find('/')));
}

std::string DescribeLostState(const LostState& lost) {
  std::set<std::string> groups;
  for (const std::string& name : lost.names) groups.insert(StateGroup(name));
  const std::string first =
      StrCat("of the tracked state, ", absl::StrJoin(groups, ", "),
             groups.size() == 1 ? " differs" : " differ", " first, after step ",
             lost.step);
  const auto steps = [](const std::vector<uint64_t>& updates) {
    const size_t shown = std::min(updates.size(), kUpdatesShown);
    return updates.empty()
               ? std::string("none")
               : absl::StrJoin(updates.begin(),
                               updates.begin() + static_cast<int64_t>(shown),
                               ", ");
  };
  if (lost.updates != lost.restored_updates) {
    return StrCat(
        "the model is updated by other steps (undisturbed those that "
        "end at ",
        steps(lost.updates), "; after the restart ",
        steps(lost.restored_updates),
        "): what counts the steps between two updates, such as "
        "micro-batches, is not tracked");
  }
  if (lost.is_between_updates && !lost.updates.empty() &&
      lost.step == lost.updates.front()) {
    return StrCat("step ", lost.from,
                  " did not update the model, and the next update, of step ",
                  lost.step,
                  ", differs: what adds up between two updates, gradients "
                  "mostly, was lost; ",
                  first);
  }
  if (groups.contains("random generators")) {
    return StrCat(
        "other random numbers are drawn: a generator or what a "
        "distribution keeps (std::normal_distribution every second "
        "number) is not tracked; ",
        first);
  }
  if (groups.contains("the position in the data")) {
    return StrCat("other batches come; ", first);
  }
  return first;
}

Advice AdviseOnState(const ExaminedRun& run, const std::string& names,
                     uint64_t step, const Evidence& evidence) {
  std::string suspect = SuspectByAccount(evidence.account);
  if (suspect.empty()) suspect = evidence.state;
  return {StrCat("what is reported is equal, but the tracked state at step ",
                 step, " is not, in the run that was ", run.name, ": ", names,
                 suspect.empty() ? "" : "\n  Suspect: ", suspect, "."),
          kTrackIt};
}

Advice AdviseOnDifference(const ExaminedRun& run,
                          const ReportDifference& difference,
                          const Evidence& evidence) {
  Advice advice;
  const std::string seen = SuspectByAccount(evidence.account);
  const bool restored = run.name == "restored";
  advice.problem = StrCat(
      DescribeDifference(
          difference,
          restored ? StrCat("after the restart from step ", run.from_step)
                   : StrCat("in the run that was ", run.name)),
      "\n  Suspect: ");
  if (!seen.empty() && run.name != "paused") {
    StrAppend(&advice.problem, seen);
  } else if (restored && !evidence.equal_name.empty()) {
    StrAppend(&advice.problem, "only `", difference.name, "` differs, `",
              evidence.equal_name,
              "` of the same step is equal: the number behind `",
              difference.name, "` is not tracked; Track() it");
  } else if (restored && !evidence.state.empty()) {
    StrAppend(&advice.problem, evidence.state);
  } else if (restored) {
    StrAppend(&advice.problem, SuspectAfterRestart(run.from_step, difference));
  } else if (run.name == "moved") {
    StrAppend(&advice.problem,
              "tensors or generators of the program's own that stayed on the "
              "other device");
  } else {
    StrAppend(&advice.problem,
              "the process went on with all that it had, so something depends "
              "on time or on another thread (a loader that runs ahead)");
  }
  StrAppend(&advice.problem, ".");
  advice.remedy = kTrackIt;
  return advice;
}

Advice AdviseOnRandomness(const std::string& what) {
  return {StrCat("the program itself is not deterministic: ", what), kSeedIt};
}

}  // namespace gavel
