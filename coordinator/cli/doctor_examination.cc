#include "coordinator/cli/doctor_examination.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// A program may end between its checkpoint and the kill.
constexpr int kKillAttempts = 3;

constexpr char kUseTheRuntime[] =
    "wrap the training loop: auto session = "
    "gavel::Session::FromEnvironment(); session->Track(...) what makes up the "
    "state; for (auto& batch : gavel::Iterator(*session, loader)) ...; return "
    "session->Finish()";
constexpr char kTrackIt[] =
    "some state is lost at a restart. Track() whatever a step depends on: each "
    "model and optimizer, learning rate schedulers, counters and running "
    "averages, random generators of your own; and do the steps over a seeded "
    "gavel::DataLoader, so that the position in the data is kept";
constexpr char kSeedIt[] =
    "seed all that is random (torch::manual_seed, generators of your own, the "
    "loader), report nothing that depends on time (or give --ignore NAME), and "
    "ask for deterministic kernels on a GPU";

std::string Plural(uint64_t count, const char* noun) {
  return StrCat(count, " ", noun, count == 1 ? "" : "s");
}

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

  absl::StatusOr<Verdict> Run();

 private:
  absl::StatusOr<DoctorRun> RunOnce(DoctorRunOptions options);
  absl::Status RunAlone();
  absl::Status Interrupt();
  absl::Status StopByBudget();
  absl::Status Resume();
  absl::StatusOr<std::string> Explain(const ReportDifference& first,
                                      std::vector<ReportDifference> all);

  // Fills failure_ and returns true when the run went wrong.
  bool EndedBadly(const DoctorRun& run, const char* what);
  bool AloneIsNoUse();
  void Compare();
  void Say(const char* what, const std::string& text) const {
    std::printf("  %-10s %s\n", what, text.c_str());
    std::fflush(stdout);
  }

  const DoctorProgram& program_;
  const ExaminationOptions& options_;
  DoctorRun alone_;
  DoctorRun interrupted_;
  DoctorRun resumed_;
  std::string checkpoints_;  // of the two
  std::vector<ReportDifference> differences_;
  std::string failure_;  // empty: none yet
};

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
  if (run.killed || (run.exit_code == 0 && !run.timed_out)) return false;
  const std::string how =
      run.timed_out
          ? absl::StrFormat(
                "still runs after %g s; give more time by --timeout, or fewer "
                "--steps",
                program_.timeout_s)
      : run.exit_code > 0
          ? StrCat("exits with ", run.exit_code, "; correct that first")
          : StrCat("dies of signal ", -run.exit_code, "; correct that first");
  const std::string tail = TailOf(run.log_path);
  failure_ = StrCat(
      what, " ", how, ".",
      tail.empty() ? "\n  It printed nothing." : "\n  Its last output:\n",
      tail);
  return true;
}

bool Examination::AloneIsNoUse() {
  const std::string& name = program_.argv.front();
  if (alone_.values.empty() && !alone_.last_checkpoint) {
    failure_ = StrCat(name,
                      " does not use the runtime: it reported nothing and "
                      "wrote no checkpoint.\n  Remedy: ",
                      kUseTheRuntime, ".");
  } else if (!alone_.last_checkpoint) {
    failure_ = StrCat(
        name,
        " wrote no checkpoint, so it would begin again after a kill.\n  "
        "Remedy: begin from gavel::Session::FromEnvironment() or "
        "ReadEnvironment(), leave checkpoint_directory as it is, and return "
        "session->Finish() at the end.");
  } else if (alone_.values.empty()) {
    failure_ =
        StrCat("nothing can be told: ", name,
               " reported no value that could be compared.\n  Remedy: call "
               "session->Report(\"loss\", loss) in each step.");
  } else if (alone_.last_step() < 2) {
    failure_ = StrCat("it did only ", Plural(alone_.last_step(), "step"),
                      " and can't be interrupted in between.\n  Remedy: give "
                      "it data or epochs for 2 steps or more.");
  }
  return !failure_.empty();
}

absl::Status Examination::RunAlone() {
  GAVEL_ASSIGN_OR_RETURN(
      alone_, RunOnce({.name = "alone", .checkpoints = "alone.checkpoints"}));
  if (EndedBadly(alone_, "the program, run alone,") || AloneIsNoUse()) {
    return absl::OkStatus();
  }
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

absl::Status Examination::Interrupt() {
  for (int attempt = 1; attempt <= kKillAttempts; ++attempt) {
    const std::string name = StrCat("killed.", attempt);
    checkpoints_ = StrCat(name, ".checkpoints");
    GAVEL_ASSIGN_OR_RETURN(interrupted_,
                           RunOnce({.name = name,
                                    .checkpoints = checkpoints_,
                                    .kill_before_step = alone_.last_step()}));
    if (EndedBadly(interrupted_, "the program, run a second time,")) {
      return absl::OkStatus();
    }
    if (interrupted_.killed && interrupted_.last_step() < alone_.last_step()) {
      Say("killed",
          StrCat("by SIGKILL once the checkpoint of step ",
                 interrupted_.last_step(), " was there (",
                 Plural(BytesIn(interrupted_.last_checkpoint->path), "byte"),
                 ")"));
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
    failure_ = StrCat(
        "it could not be interrupted: it ends before it can be killed, and "
        "does ",
        Plural(interrupted_.last_step(), "step"), " with a budget of ",
        alone_.last_step() / 2,
        ".\n  Remedy: begin from gavel::Session::FromEnvironment() or "
        "ReadEnvironment(), so that GAVEL_STEPS and "
        "GAVEL_CHECKPOINT_INTERVAL_STEPS count; or give more --steps.");
    return absl::OkStatus();
  }
  Say("not killed",
      StrCat("it ended too soon for that, ", kKillAttempts,
             " times; stopped at step ", interrupted_.last_step(),
             " by its budget instead (",
             Plural(BytesIn(interrupted_.last_checkpoint->path), "byte"),
             "); more --steps help"));
  return absl::OkStatus();
}

absl::Status Examination::Resume() {
  const uint64_t from = interrupted_.last_step();
  GAVEL_ASSIGN_OR_RETURN(
      resumed_, RunOnce({.name = "resumed", .checkpoints = checkpoints_}));
  if (EndedBadly(resumed_, "the program, started again,")) {
    return absl::OkStatus();
  }
  if (!resumed_.values.empty() && resumed_.values.front().step < from) {
    failure_ = StrCat(
        "started again it went on from step ", resumed_.values.front().step,
        ", not from the checkpoint of step ", from,
        ".\n  Remedy: leave GAVEL_CHECKPOINT_DIRECTORY as it is set, Track() "
        "everything before the first gavel::Iterator, and see ",
        resumed_.log_path, ".");
    return absl::OkStatus();
  }
  if (resumed_.last_step() != alone_.last_step()) {
    failure_ = StrCat("started again it ended at step ", resumed_.last_step(),
                      ", undisturbed at step ", alone_.last_step(),
                      ".\n  Remedy: ", kTrackIt, ".");
    return absl::OkStatus();
  }
  // A step reports before it is counted: the value of step 9 is of the tenth.
  const auto reached =
      interrupted_.values.empty() ? 0 : interrupted_.values.back().step + 1;
  Say("restored",
      absl::StrFormat("from step %d to step %d in %.1f s; %s done twice", from,
                      resumed_.last_step(), resumed_.duration_s,
                      Plural(reached > from ? reached - from : 0, "step")));
  Compare();
  return absl::OkStatus();
}

void Examination::Compare() {
  const uint64_t from = interrupted_.last_step();
  differences_ = CompareReports(alone_.values, resumed_.values, from);
  const auto compared = static_cast<uint64_t>(std::count_if(
      alone_.values.begin(), alone_.values.end(),
      [from](const ReportedValue& one) { return one.step >= from; }));
  if (compared == 0 && differences_.empty()) {
    failure_ = StrCat(
        "nothing can be told: no value was reported after step ", from,
        ".\n  Remedy: call session->Report(\"loss\", loss) in each step.");
    return;
  }
  Say("compared", StrCat(Plural(compared, "value"), " of the steps from ", from,
                         " on, to the bit"));
}

// Told apart by a second undisturbed run, made only now.
absl::StatusOr<std::string> Examination::Explain(
    const ReportDifference& first, std::vector<ReportDifference> all) {
  const std::string text = DescribeDifference(first, "after the restart");
  GAVEL_ASSIGN_OR_RETURN(
      const DoctorRun again,
      RunOnce({.name = "again", .checkpoints = "again.checkpoints"}));
  if (EndedBadly(again, "the program, run alone once more,")) return failure_;
  const std::vector<ReportDifference> unsteady =
      CompareReports(alone_.values, again.values, 0);
  if (unsteady.empty()) return StrCat(text, "\n  Remedy: ", kTrackIt, ".");
  std::erase_if(all, [&](const ReportDifference& one) {
    return std::any_of(
        unsteady.begin(), unsteady.end(),
        [&](const auto& other) { return other.name == one.name; });
  });
  const std::string own = StrCat(
      "the program itself is not deterministic: ",
      DescribeDifference(unsteady.front(), "in a second undisturbed run"));
  if (all.empty()) {
    return StrCat(own, "\n  Remedy: ", kSeedIt, "; then ask again.");
  }
  return StrCat(DescribeDifference(all.front(), "after the restart"),
                "\n  Remedy: ", kTrackIt, ".\n  Besides, ", own,
                "\n  Remedy: ", kSeedIt, ".");
}

absl::StatusOr<Verdict> Examination::Run() {
  using Part = absl::Status (Examination::*)();
  for (const Part part : {&Examination::RunAlone, &Examination::Interrupt,
                          &Examination::Resume}) {
    GAVEL_RETURN_IF_ERROR((this->*part)());
    if (!failure_.empty()) return Verdict{false, failure_};
  }
  if (differences_.empty()) {
    return Verdict{true, StrCat(program_.argv.front(),
                                " goes on exactly where it was interrupted")};
  }
  GAVEL_ASSIGN_OR_RETURN(std::string why,
                         Explain(differences_.front(), differences_));
  return Verdict{false, std::move(why)};
}

}  // namespace

absl::StatusOr<Verdict> Examine(const DoctorProgram& program,
                                const ExaminationOptions& options) {
  return Examination(program, options).Run();
}

}  // namespace gavel
