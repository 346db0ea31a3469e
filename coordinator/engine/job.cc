#include "coordinator/engine/job.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string Ordinal(int number) {
  const int tens = number % 100;
  const char* suffix = "th";
  if (tens < 11 || tens > 13) {
    if (number % 10 == 1) suffix = "st";
    if (number % 10 == 2) suffix = "nd";
    if (number % 10 == 3) suffix = "rd";
  }
  return StrCat(number, suffix);
}

// What there is to do about a last error that users of a shared machine meet
// first; mostly nothing.
std::string_view RemedyOf(std::string_view error_line) {
  if (error_line.find("error while loading shared libraries") !=
      std::string_view::npos) {
    return "see that the job's user can read the library on that server: a "
           "LibTorch below another user's home, such as root's, it can't; ";
  }
  return "";
}

std::string HeldAfterFailures(const Reason& reason) {
  const int end = static_cast<int>(reason.second);
  std::string how =
      end >= 0 ? StrCat("exit code ", end) : StrCat("killed by signal ", -end);
  if (!reason.detail.empty()) StrAppend(&how, ", \"", reason.detail, "\"");
  return absl::StrFormat(
      "held: failed %d times in a row without a new checkpoint (last: %s); "
      "%sread `gavel logs %s`, then `gavel release %s`",
      static_cast<int>(reason.first), how, RemedyOf(reason.detail),
      reason.subject, reason.subject);
}

std::string HeldAfterHanging(const Reason& reason) {
  return absl::StrFormat(
      "held: failed %d times in a row without a new checkpoint (last: no step "
      "and no boundary for %.0f s); read `gavel logs %s`, call Boundary() in "
      "what takes longer or raise its hang_timeout_s, then `gavel release %s`",
      static_cast<int>(reason.first), reason.second, reason.subject,
      reason.subject);
}

// Programs that start well speak, or read, more often.
constexpr double kIdleStartToTell_s = 30;

std::string Starting(const Reason& reason) {
  std::string text = StrCat("starting on ", reason.subject);
  if (reason.first < kIdleStartToTell_s) return text;
  StrAppend(&text, absl::StrFormat(
                       ": for %.0f s its process has given no sign and read no "
                       "byte, and it is ended after %.0f s; does a file system "
                       "hang that it needs, such as its checkpoint_directory?",
                       reason.first, reason.second));
  return text;
}

std::string HeldSilent(const Reason& reason) {
  return absl::StrFormat(
      "held: failed %d times in a row: it never spoke to the coordinator; does "
      "it link the gavel runtime? If it does, and is long before its session, "
      "raise its start_timeout_s; read `gavel logs %s`, then `gavel release "
      "%s`",
      static_cast<int>(reason.first), reason.subject, reason.subject);
}

std::string HeldUnready(const Reason& reason) {
  return absl::StrFormat(
      "held: failed %d times in a row: it spoke to the coordinator, but was "
      "not ready to train after %.0f s in which it read and wrote nothing; "
      "raise its start_timeout_s (or --start-timeout of the coordinator), or "
      "shorten what comes before its loop; read `gavel logs %s`, then `gavel "
      "release %s`",
      static_cast<int>(reason.first), reason.second, reason.subject,
      reason.subject);
}

// "1.2 of 3.4 GB", both in the unit of the whole.
std::string BytesOf(double done, double total) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (total >= 1000 && unit + 1 < std::size(kUnits)) {
    total /= 1000;
    done /= 1000;
    ++unit;
  }
  return unit == 0
             ? absl::StrFormat("%.0f of %.0f bytes", done, total)
             : absl::StrFormat("%.1f of %.1f %s", done, total, kUnits[unit]);
}

std::string Moving(const Reason& reason) {
  std::string text = StrCat("moving from ", reason.subject);
  if (reason.second > 0) {
    StrAppend(&text, ": ", BytesOf(reason.first, reason.second));
  }
  return text;
}

// The subject of the next two is the job's id and, behind a space, servers.
std::pair<std::string, std::string> JobAndServers(const Reason& reason) {
  const size_t space = reason.subject.find(' ');
  if (space == std::string::npos) return {reason.subject, ""};
  return {reason.subject.substr(0, space), reason.subject.substr(space + 1)};
}

std::string HeldFetch(const Reason& reason) {
  const auto [job, servers] = JobAndServers(reason);
  return absl::StrFormat(
      "held: its checkpoint was to move from %s, but no bytes came for %.0f s, "
      "%.0f times in a row; see that these servers reach each other (the "
      "agents' --address), then `gavel release %s`",
      servers, reason.first, reason.second, job);
}

std::string Stranded(const Reason& reason) {
  const auto [job, servers] = JobAndServers(reason);
  return absl::StrFormat(
      "waiting: its last checkpoint (step %.0f) lies on %s alone, which can't "
      "be reached; start the agent there, or `gavel release %s` to go on from "
      "what other servers have",
      reason.first, servers, job);
}

}  // namespace

bool Job::HoldsAny() const {
  return std::any_of(workers.begin(), workers.end(),
                     [](const Worker& w) { return w.held_epoch != 0; });
}

bool Job::AnyLive() const {
  return std::any_of(workers.begin(), workers.end(),
                     [](const Worker& w) { return w.is_live(); });
}

bool Job::AllJoined() const {
  return std::ranges::all_of(gang(), [](const Worker& w) {
    return w.process == ProcessState::kJoined;
  });
}

bool Job::AllDone() const {
  return std::ranges::all_of(
      gang(), [](const Worker& w) { return w.process == ProcessState::kDone; });
}

std::string ExtremesOf(const JobSpec& spec) {
  std::string text = StrCat("weight ", spec.weight);
  for (const auto& [type, steps_per_s] : spec.throughputs) {
    StrAppend(&text, ", ", steps_per_s, " steps/s on ", type);
  }
  return text;
}

void AddCosts(const Job& job, RoundUnit& row) {
  const Worker::Known& known = job.workers.front().known;
  const double measured =
      known.pauses > 0 ? known.pausing_s / static_cast<double>(known.pauses)
                       : 0;
  const bool given = job.spec.pause_s || job.spec.resume_s || job.spec.move_s;
  const double pause_s = job.spec.pause_s.value_or(0);
  const double resume_s = job.spec.resume_s.value_or(0);
  row.preempt_cost_s += given ? pause_s + resume_s : measured;
  row.move_cost_s +=
      given ? pause_s + job.spec.move_s.value_or(resume_s) : measured;
  if (job.target_s > 0) {
    row.owed_part = std::max(row.owed_part, 1 - job.received_s / job.target_s);
  }
}

AcceleratorId Occupied(const Job& job, const Worker& worker) {
  if (worker.held_epoch != 0) return worker.held;
  const auto rank = static_cast<size_t>(&worker - job.workers.data());
  const bool starts =
      worker.process == ProcessState::kLaunching && rank < job.assigned.size();
  return starts ? job.assigned[rank] : AcceleratorId();
}

bool IsRestarting(const Job& job) {
  return std::ranges::any_of(
      job.workers, [](const Worker& worker) { return worker.restarting; });
}

bool DiedByItself(const Worker& worker, const WorkerExited& exit) {
  if (!worker.restarting || exit.stopped || exit.no_failure) return false;
  return exit.signal != 0 ||
         (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
}

std::string_view JobStateName(JobState state) {
  switch (state) {
    case JobState::kActive:
      return "active";
    case JobState::kFinished:
      return "finished";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kHeld:
      return "held";
  }
  return "unknown";
}

std::string RenderReason(const Reason& reason) {
  switch (reason.code) {
    case ReasonCode::kNone:
      return "";
    case ReasonCode::kRunning:
      return absl::StrFormat(
          "running on %s: received %.0f %% of the time, target %.0f %%",
          reason.subject, 100 * reason.first, 100 * reason.second);
    case ReasonCode::kSubmitted:
      return "waiting: for the first allocation";
    case ReasonCode::kNoServer:
      return "waiting: no accelerator has joined; start `gavel agent` on a "
             "server";
    case ReasonCode::kPriority:
      return absl::StrFormat(
          "waiting: %s in line for %s, %.0f %% of its share "
          "received",
          Ordinal(static_cast<int>(reason.first)), reason.subject,
          100 * reason.second);
    case ReasonCode::kNotInAllocation:
      return "waiting: the policy gives it no share now";
    case ReasonCode::kUnusable:
      return absl::StrFormat(
          "waiting: scale factor %d fits on no type whose accelerators are "
          "reachable, or its throughput is 0 on all of them",
          static_cast<int>(reason.first));
    case ReasonCode::kStarting:
      return Starting(reason);
    case ReasonCode::kPausing:
      return "pausing: to stop at the next iteration boundary";
    case ReasonCode::kEnding:
      return "ending: its training loop is over";
    case ReasonCode::kWaitsForRelease:
      return absl::StrFormat("waiting: job %d has not yet released its %s",
                             static_cast<int>(reason.first), reason.subject);
    case ReasonCode::kHeldFailures:
      return HeldAfterFailures(reason);
    case ReasonCode::kHeldLaunch:
      return StrCat("held: could not be started: ", reason.subject);
    case ReasonCode::kGangStarting:
      return absl::StrFormat(
          "starting on %s: its gang did not come together %d times in a row, "
          "it is held after %d; `gavel logs` tells which rank",
          reason.subject, static_cast<int>(reason.first),
          static_cast<int>(reason.second));
    case ReasonCode::kHeldGang:
      return absl::StrFormat(
          "held: its gang did not come together %d times in a row; see that "
          "its servers reach each other, read `gavel logs %s`, then `gavel "
          "release %s`",
          static_cast<int>(reason.first), reason.subject, reason.subject);
    case ReasonCode::kHeldFetch:
      return HeldFetch(reason);
    case ReasonCode::kRunningPacked:
      return absl::StrFormat(
          "running on %s: received %.0f %% of the time, target %.0f %%",
          reason.subject, 100 * reason.first, 100 * reason.second);
    case ReasonCode::kOutOfMemory:
      return absl::StrFormat(
          "waiting: it ran out of memory on %s, and nothing else is left; "
          "lower its batch size, or `gavel release %d` to try again",
          reason.subject, static_cast<int>(reason.first));
    case ReasonCode::kGrown:
      return absl::StrFormat("%d %s idle, %+.2g steps/s",
                             static_cast<int>(reason.first), reason.subject,
                             reason.second);
    case ReasonCode::kShrunkForJob:
      return absl::StrFormat("job %d waits for %s",
                             static_cast<int>(reason.first), reason.subject);
    case ReasonCode::kShrunkSlow:
      return absl::StrFormat(
          "more of %s were not faster by enough, %.3g instead of %.3g steps/s",
          reason.subject, reason.first, reason.second);
    case ReasonCode::kShrunkToFit:
      return StrCat("no more ", reason.subject, " are free");
    case ReasonCode::kShrunkFailed:
      return absl::StrFormat(
          "with %d of %s it did not come together; `gavel logs` tells why",
          static_cast<int>(reason.first), reason.subject);
    case ReasonCode::kMoving:
      return Moving(reason);
    case ReasonCode::kStranded:
      return Stranded(reason);
    case ReasonCode::kStandsStill:
      return absl::StrFormat(
          "running, but %s has made no step and passed no boundary for %.0f s; "
          "it is ended after %.0f s (hang_timeout_s)",
          reason.subject, reason.first, reason.second);
    case ReasonCode::kHeldHung:
      return HeldAfterHanging(reason);
    case ReasonCode::kTooExtreme:
      return absl::StrFormat(
          "waiting: the policy leaves it out, since its figures (%s) are too "
          "far from other jobs' for the solver; cancel job %d, and submit it "
          "with "
          "others",
          reason.subject, static_cast<int>(reason.first));
    case ReasonCode::kHeldHungLaunch:
      return absl::StrFormat(
          "held: its launch came to nothing %d times, at last %s; see that its "
          "working_directory and its program can be read there, then `gavel "
          "release %d`",
          static_cast<int>(reason.second), reason.subject,
          static_cast<int>(reason.first));
    case ReasonCode::kHeldSilent:
      return HeldSilent(reason);
    case ReasonCode::kHeldUnready:
      return HeldUnready(reason);
    case ReasonCode::kDrained:
      return StrCat("waiting: what it can use is drained (", reason.subject,
                    "); `gavel resume` gives it back");
    case ReasonCode::kHeldByUser:
      return absl::StrFormat(
          "held: by `gavel hold`; `gavel release %d` lets it go on",
          static_cast<int>(reason.first));
    case ReasonCode::kHeldDevice:
      return absl::StrFormat(
          "held: it could use neither %s, where other jobs may have no "
          "trouble; see that its program can use such devices (was it built "
          "with CUDA?), read `gavel logs %d`, then `gavel release %d`",
          reason.subject, static_cast<int>(reason.first),
          static_cast<int>(reason.first));
    case ReasonCode::kTooWide:
      return absl::StrFormat(
          "waiting: no one server has %d accelerators of a type, and servers "
          "without a shared checkpoint directory can't checkpoint a gang "
          "together; lower its scale factor, or share the directory",
          static_cast<int>(reason.first));
    case ReasonCode::kCancelled:
      return "cancelled by its user";
    case ReasonCode::kFinished:
      return "finished";
  }
  return "";
}

std::string RenderResize(const Job& job) {
  if (job.resize_reason.code == ReasonCode::kNone) return "";
  const bool grown = job.resize_reason.code == ReasonCode::kGrown;
  return StrCat(grown ? "grown to " : "shrunk to ", job.scale_factor, ": ",
                RenderReason(job.resize_reason));
}

}  // namespace gavel
