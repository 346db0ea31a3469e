// The program's own end, and runs that are killed and started again.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/doctor/doctor_parts.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
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

}  // namespace gavel
