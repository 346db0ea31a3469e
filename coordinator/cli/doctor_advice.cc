#include "coordinator/cli/doctor_advice.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/text.h"

namespace gavel {
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
