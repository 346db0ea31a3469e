// Runs that are killed and started again, and the program's own end.
#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "coordinator/cli/doctor/doctor_parts.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// A program may end between its checkpoint and the kill.
constexpr int kKillAttempts = 3;
// For the program's own end, which may be weeks away.
constexpr double kOwnEnd_s = 20;

}  // namespace

absl::Status DoctorExamination::Interrupt() {
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

absl::Status DoctorExamination::StopByBudget() {
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
    advice_ = {StrCat("it could not be interrupted: it ends before it can be "
                      "killed, and does ",
                      Plural(interrupted_.last_step(), "step"),
                      " with a budget of ", alone_.last_step() / 2, "."),
               "begin from gavel::Session::FromEnvironment() or "
               "ReadEnvironment(), so that GAVEL_STEPS and "
               "GAVEL_CHECKPOINT_INTERVAL_STEPS count; or give more --steps"};
    return absl::OkStatus();
  }
  Say("not killed", StrCat("it ended too soon for that, ", kKillAttempts,
                           " times; stopped at step ", interrupted_.last_step(),
                           " by its budget instead; more --steps help"));
  return absl::OkStatus();
}

bool DoctorExamination::WentOnWrongly() {
  const uint64_t from = interrupted_.last_step();
  if (!resumed_.values.empty() && resumed_.values.front().step < from) {
    advice_ = {StrCat("started again it went on from step ",
                      resumed_.values.front().step,
                      ", not from the checkpoint of step ", from, "."),
               StrCat("leave GAVEL_CHECKPOINT_DIRECTORY as it is set, Track() "
                      "everything before the first gavel::Iterator, and see ",
                      resumed_.log_path)};
  } else if (resumed_.last_step() != alone_.last_step()) {
    const std::string suspect = SuspectByAccount(alone_.account);
    advice_ = {StrCat("started again it ended at step ", resumed_.last_step(),
                      ", undisturbed at step ", alone_.last_step(), ".",
                      suspect.empty() ? "" : "\n  Suspect: ", suspect),
               "Track() what decides how long the program trains, such as its "
               "counter of epochs, and do the steps over a gavel::DataLoader"};
  }
  return !advice_.empty();
}

absl::Status DoctorExamination::Resume() {
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

absl::StatusOr<DoctorRun> DoctorExamination::RunToEnd(
    const char* name, const std::string& checkpoints) {
  const double timeout_s =
      std::min(program_.timeout_s, std::max(kOwnEnd_s, 3 * alone_.duration_s));
  return RunOnce({.name = name,
                  .checkpoints = checkpoints,
                  .steps = kDoctorStepsMax,
                  .timeout_s = timeout_s});
}

// What ends a program with several epochs is its own: a counter, mostly. It
// must come to the same end after a restart.
absl::Status DoctorExamination::ReachOwnEnd() {
  const bool ends_by_itself = alone_.last_step() < steps_;
  if (alone_.account.loops_begun < 2 || ends_by_itself) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const DoctorRun whole, RunToEnd("whole"));
  if (whole.timed_out || whole.last_step() >= kDoctorStepsMax) {
    Say("end", absl::StrFormat("its own is not reached in %.0f s, so what ends "
                               "it was not examined",
                               whole.duration_s));
    if (alone_.account.CountsSomething()) return absl::OkStatus();
    found_.unknown = true;
    advice_ = AdviseOnUncountedEpochs(alone_.account);
    return absl::OkStatus();
  }
  if (EndedBadly(whole, "the program, run to its own end,")) {
    return absl::OkStatus();
  }
  const uint64_t from = resumed_.last_step();
  GAVEL_ASSIGN_OR_RETURN(const DoctorRun rest, RunToEnd("rest", checkpoints_));
  if (rest.timed_out && rest.last_step() <= whole.last_step()) {
    Say("end", absl::StrFormat("at step %u; started again it was not reached "
                               "in %.0f s, so it was not examined",
                               whole.last_step(), rest.duration_s));
    return absl::OkStatus();
  }
  if (!rest.timed_out &&
      EndedBadly(rest, "the program, started again and run to its end,")) {
    return absl::OkStatus();
  }
  if (rest.last_step() != whole.last_step()) {
    advice_ = AdviseOnEnds(from, whole.last_step(), rest.last_step());
    return absl::OkStatus();
  }
  Say("end", StrCat("at step ", whole.last_step(),
                    ", also when started again from step ", from));
  return absl::OkStatus();
}

}  // namespace gavel
