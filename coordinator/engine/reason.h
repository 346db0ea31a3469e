// The reasons why a job is in its state, or has its number of workers: one
// struct for each. To add one, write its struct and append it to Reason:
// - kName is the code in JSON output. `gavel why` also shows the place in line
//   of a Priority (server/queue_view.cc).
// - kSentence is the text for people; "%2$d" stands for the second field. Where
//   a format is not enough, write a member Sentence() in reason.cc.
// - The fields, at most four, are in the order of the slots of ReasonRow: text,
//   number, number, text. Ids and integers fit into any slot. Text that comes
//   from a program or a job file has the type OwnersText.
//
// Reasons are values, made by the engine. The functions are pure.
#ifndef GAVEL_COORDINATOR_ENGINE_REASON_H_
#define GAVEL_COORDINATOR_ENGINE_REASON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/closed_variant.h"
#include "core/ids.h"

namespace gavel {
namespace reason {

using Text = std::string_view;

// Text from a job's program or its job file, which may contain a password. Only
// the job's owner and operators may see it (ForOthers).
struct OwnersText : std::string {
  using std::string::string;
  OwnersText(std::string text) : std::string(std::move(text)) {}
};
struct JobAndWay {  // in one slot: "7 a to b"
  JobId job;
  std::string way;
};

struct None {
  static constexpr Text kName = "none";
  static constexpr Text kSentence = "";
};

struct Running {
  static constexpr Text kName = "running";
  static constexpr Text kSentence =
      "running on %1$s: received %2$.0f %% of the time, target %3$.0f %%";
  std::string type;
  double received_percent = 0, target_percent = 0;
};

struct Submitted {
  static constexpr Text kName = "submitted";
  static constexpr Text kSentence = "waiting: for the first allocation";
};

struct NoServer {
  static constexpr Text kName = "no_server";
  static constexpr Text kSentence =
      "waiting: no accelerator can be reached; start `gavel agent` on a "
      "server";
};

// A WaitingLine fills in the type and the place in line.
struct Priority {
  static constexpr Text kName = "priority";
  std::string Sentence() const;
  std::string type;
  int place = 0;                // 1: next
  double received_percent = 0;  // of its share
};

struct NotInAllocation {
  static constexpr Text kName = "not_in_allocation";
  static constexpr Text kSentence = "waiting: the policy gives it no share now";
};

struct Starting {
  static constexpr Text kName = "starting";
  std::string Sentence() const;
  std::string server;
  double silent_s = 0, silent_s_max = 0;  // without a sign of it
  std::string failures = {};              // before this start; empty: none
};

struct Pausing {
  static constexpr Text kName = "pausing";
  static constexpr Text kSentence =
      "pausing: to stop at the next iteration boundary";
};

struct Ending {
  static constexpr Text kName = "ending";
  static constexpr Text kSentence = "ending: its training loop is over";
};

struct WaitsForRelease {
  static constexpr Text kName = "waits_for_release";
  static constexpr Text kSentence =
      "waiting: job %2$d has not yet released its %1$s";
  std::string what;  // a type, or the memory of one
  JobId holder;
};

struct Unusable {
  static constexpr Text kName = "unusable";
  static constexpr Text kSentence =
      "waiting: scale factor %1$d fits on no type whose accelerators are "
      "reachable, or its throughput is 0 on all of them";
  int scale_factor = 1;
};

struct HeldFailures {
  static constexpr Text kName = "held_failures";
  std::string Sentence() const;
  JobId job;
  int failures = 0;
  int end = 0;                 // exit code or -signal
  OwnersText last_error = {};  // of its output
};

struct HeldLaunch {
  static constexpr Text kName = "held_launch";
  std::string Sentence() const;
  OwnersText error;  // of the agent; it names the program and its directory
};

struct Cancelled {
  static constexpr Text kName = "cancelled";
  std::string Sentence() const;
  std::string by = {};  // an operator; empty: its owner
};

struct Finished {
  static constexpr Text kName = "finished";
  static constexpr Text kSentence = "finished";
};

struct GangStarting {
  static constexpr Text kName = "gang_starting";
  static constexpr Text kSentence =
      "starting on %1$s: its gang did not come together %2$d times in a row, "
      "it is held after %3$d; `gavel logs` tells which rank";
  std::string server;
  int attempts = 0, attempts_max = 0;
};

struct HeldGang {
  static constexpr Text kName = "held_gang";
  static constexpr Text kSentence =
      "held: its gang did not come together %2$d times in a row; see that its "
      "servers reach each other, read `gavel logs %1$d`, then `gavel release "
      "%1$d`";
  JobId job;
  int attempts = 0;
};

struct RunningPacked {
  static constexpr Text kName = "running_packed";
  static constexpr Text kSentence = Running::kSentence;
  std::string type;  // and its partner: "v100 beside job 3"
  double received_percent = 0, target_percent = 0;
};

struct OutOfMemory {
  static constexpr Text kName = "out_of_memory";
  static constexpr Text kSentence =
      "waiting: it ran out of memory on %1$s, and nothing else is left; lower "
      "its batch size, or `gavel release %2$d` to try again";
  std::string types;
  JobId job;
};

// ---- why it has another number of workers than before (Job::resize_reason)

struct Grown {
  static constexpr Text kName = "grown";
  static constexpr Text kSentence = "%2$d %1$s idle, %3$+.2g steps/s";
  std::string type;
  int idle = 0;
  double gain_steps_per_s = 0;
};

struct ShrunkForJob {
  static constexpr Text kName = "shrunk_for_job";
  static constexpr Text kSentence = "job %2$d waits for %1$s";
  std::string type;
  JobId waiting;
};

struct ShrunkSlow {
  static constexpr Text kName = "shrunk_slow";
  static constexpr Text kSentence =
      "more of %1$s were not faster by enough, %2$.3g instead of %3$.3g "
      "steps/s";
  std::string type;
  double with_more_steps_per_s = 0, now_steps_per_s = 0;
};

struct ShrunkToFit {
  static constexpr Text kName = "shrunk_to_fit";
  static constexpr Text kSentence = "no more %1$s are free";
  std::string type;
};

struct ShrunkFailed {
  static constexpr Text kName = "shrunk_failed";
  static constexpr Text kSentence =
      "with %2$d of %1$s it did not come together; `gavel logs` tells why";
  std::string type;
  int workers = 0;
};

struct SizedByPolicy {
  static constexpr Text kName = "sized_by_policy";
  static constexpr Text kSentence = "the policy gives it so many workers";
};

// ---- checkpoints that move between servers (checkpoints.h)

struct Moving {
  static constexpr Text kName = "moving";
  std::string Sentence() const;
  std::string way;                         // "a to b", and what it waits for
  double bytes_done = 0, bytes_total = 0;  // 0: not yet known
};

struct Stranded {
  static constexpr Text kName = "stranded";
  static constexpr Text kSentence =
      "waiting: its last checkpoint (step %2$d) lies on %1$s alone, which "
      "can't be reached; start the agent there, or `gavel release %3$d` to go "
      "on from what other servers have";
  std::string servers;
  uint64_t step = 0;
  JobId job;
};

struct TooWide {
  static constexpr Text kName = "too_wide";
  static constexpr Text kSentence =
      "waiting: no one server has %1$d accelerators of a type, and servers "
      "without a shared checkpoint directory can't checkpoint a gang together; "
      "lower its scale factor, or share the directory";
  int scale_factor = 1;
};

struct HeldFetch {
  static constexpr Text kName = "held_fetch";
  std::string Sentence() const;
  JobAndWay moved;
  double silent_s = 0;  // without a byte
  int attempts = 0;
};

// ---- workers whose loop stands still (sweeper.cc)

struct StandsStill {
  static constexpr Text kName = "stands_still";
  static constexpr Text kSentence =
      "running, but rank %4$d on %1$s has made no step and passed no boundary "
      "for %2$.0f s; it is ended after %3$.0f s (hang_timeout_s)";
  std::string type;
  double still_s = 0, still_s_max = 0;
  int rank = 0;
};

struct HeldHung {
  static constexpr Text kName = "held_hung";
  static constexpr Text kSentence =
      "held: failed %2$d times in a row without a new checkpoint (last: no "
      "step and no boundary for %3$.0f s); read `gavel logs %1$d`, call "
      "Boundary() in what takes longer or raise its hang_timeout_s, then "
      "`gavel release %1$d`";
  JobId job;
  int failures = 0;
  double still_s = 0;
};

struct HeldDevice {
  static constexpr Text kName = "held_device";
  static constexpr Text kSentence =
      "held: it could use neither %1$s, where other jobs may have no trouble; "
      "see that its program can use such devices (was it built with CUDA?), "
      "read `gavel logs %2$d`, then `gavel release %2$d`";
  std::string accelerators;
  JobId job;
};

struct HeldSilent {
  static constexpr Text kName = "held_silent";
  static constexpr Text kSentence =
      "held: it never spoke to the coordinator within its start_timeout_s "
      "(failure %2$d): it does not link the runtime; set class = \"opaque\" to "
      "run it as it is. If it links it, and is long before its session, raise "
      "start_timeout_s; read `gavel logs %1$d`, then `gavel release %1$d`";
  JobId job;
  int failures = 0;
};

struct HeldHungLaunch {
  static constexpr Text kName = "held_hung_launch";
  std::string Sentence() const;
  std::string where;  // "on a"
  JobId job;
  int launches = 0;
  OwnersText why = {};  // of the agent, as in HeldLaunch
};

struct TooExtreme {
  static constexpr Text kName = "too_extreme";
  static constexpr Text kSentence =
      "waiting: the policy leaves it out, since its figures (%1$s) are too far "
      "from other jobs' for the solver; cancel job %2$d, and submit it with "
      "others";
  std::string figures;  // ExtremesOf
  JobId job;
};

struct Drained {
  static constexpr Text kName = "drained";
  static constexpr Text kSentence =
      "waiting: what it can use is drained (%1$s); `gavel resume` gives it "
      "back";
  std::string what;  // "v100 of here and there"
};

struct HeldByUser {
  static constexpr Text kName = "held_by_user";
  std::string Sentence() const;
  std::string by = {};  // an operator; empty: its owner
  JobId job;
};

struct HeldUnready {
  static constexpr Text kName = "held_unready";
  static constexpr Text kSentence =
      "held: failed %2$d times in a row: it spoke to the coordinator, but was "
      "not ready to train after %3$.0f s in which it read and wrote nothing; "
      "raise its start_timeout_s (or --start-timeout of the coordinator), or "
      "shorten what comes before its loop; read `gavel logs %1$d`, then `gavel "
      "release %1$d`";
  JobId job;
  int failures = 0;
  double unready_s = 0;
};

struct KeptOut {
  static constexpr Text kName = "kept_out";
  static constexpr Text kSentence =
      "waiting: it could not use %1$s, and there is no other that it could "
      "have; see in `gavel logs %2$d` why, then let it try again with `gavel "
      "release %2$d`, or repair the device and restart its agent";
  std::string accelerators;  // "here/GPU-1, here/GPU-2"
  JobId job;
};

struct NotItsServers {
  static constexpr Text kName = "not_its_servers";
  static constexpr Text kSentence =
      "waiting: the servers that its file lets it have (%1$s) have not %2$d "
      "accelerators in reach of a type that it can use; `gavel nodes` lists "
      "them";
  std::string servers;  // "here, there", "all but there"
  int scale_factor = 1;
};

struct NotBefore {
  static constexpr Text kName = "not_before";
  static constexpr Text kSentence =
      "waiting: its not_before is %1$s; `gavel release %2$d` lets it start "
      "now";
  std::string at;  // "2026-12-01T08:00:00Z"
  JobId job;
};

struct AwaitsJobs {
  static constexpr Text kName = "awaits_jobs";
  std::string Sentence() const;
  std::string first;  // "12 prepare (running), job 13 clean (waiting)"
  int more = 0;       // other jobs that it waits for
  JobId job;
};

struct ParentFailed {
  static constexpr Text kName = "parent_failed";
  static constexpr Text kSentence =
      "cancelled: its parent %1$s was cancelled; `gavel why` tells more of "
      "that job";
  std::string parent;  // "12 prepare"
};

struct ArrayLimit {
  static constexpr Text kName = "array_limit";
  std::string Sentence() const;
  JobId array;
  int at_once = 0;  // 0: no limit
};

struct LosesPlace {
  static constexpr Text kName = "loses_place";
  static constexpr Text kSentence =
      "waiting: its process on %1$s has no place any more and is being ended; "
      "it has not spoken to the coordinator, so it may still use its "
      "accelerator";
  std::string server;
};

struct RunningOpaque {
  static constexpr Text kName = "running_opaque";
  static constexpr Text kSentence =
      "running on %1$s, which it has until its end: it is opaque";
  std::string type;
};

struct HeldTimeLimit {
  static constexpr Text kName = "held_time_limit";
  static constexpr Text kSentence =
      "held: it was ended, having run for its time_limit of %2$g s; `gavel "
      "release %1$d` lets it run for as long again, after `gavel update %1$d "
      "--time-limit SECONDS` for another time";
  JobId job;
  double time_limit_s = 0;
};

// ---- interactive jobs (interactive.h)

struct RunningInteractive {
  static constexpr Text kName = "running_interactive";
  std::string Sentence() const;
  std::string type;
  double idle_s = 0, idle_s_max = 0;
};

struct InteractiveQuota {
  static constexpr Text kName = "interactive_quota";
  static constexpr Text kSentence =
      "waiting: the interactive jobs of its owner have %1$d accelerators, and "
      "at most %2$d are allowed (--interactive-max of the coordinator); it "
      "starts when one of them ends";
  int held = 0, held_max = 0;
};

struct NoSeat {
  static constexpr Text kName = "no_seat";
  static constexpr Text kSentence =
      "waiting: fewer than %1$d accelerators that it can use are free of jobs "
      "which are never paused; it starts when one of those ends";
  int scale_factor = 1;
};

struct EndedIdle {
  static constexpr Text kName = "ended_idle";
  static constexpr Text kSentence =
      "ended: for %2$g s its terminal had no input and no output, and its "
      "accelerators were not used (idle_limit); `gavel logs %1$d` has what it "
      "wrote, and another one may have a longer --idle-limit";
  JobId job;
  double idle_limit_s = 0;
};

struct FinishedWith {
  static constexpr Text kName = "finished_with";
  static constexpr Text kSentence = "finished with exit code %1$d";
  int exit_code = 0;  // not 0
};

// Nothing makes this holder pause: it is opaque.
struct WaitsForEnd {
  static constexpr Text kName = "waits_for_end";
  std::string Sentence() const;
  std::string what;  // "v100 on here"
  JobId holder;
  bool is_interactive = false;
  // "2026-12-01T08:00:00Z": when its time_limit ends it; empty: it has none.
  std::string at = {};
};

// ---- what the introspection tried last (introspection.h)

struct Tried {
  static constexpr Text kName = "tried";
  std::string Sentence() const;
  std::string what;    // "to run beside job 7"
  double value = 0;    // TrialNote::value
  double cost_s = 0;   // accelerator-seconds
  std::string became;  // "on trial", "kept", "undone"
};

}  // namespace reason

// Append only: the position of an alternative is its number in all journals.
using ReasonVariant = std::variant<
    reason::None, reason::Running, reason::Submitted, reason::NoServer,
    reason::Priority, reason::NotInAllocation, reason::Starting,
    reason::Pausing, reason::Ending, reason::WaitsForRelease, reason::Unusable,
    reason::HeldFailures, reason::HeldLaunch, reason::Cancelled,
    reason::Finished, reason::GangStarting, reason::HeldGang,
    reason::RunningPacked, reason::OutOfMemory, reason::Grown,
    reason::ShrunkForJob, reason::ShrunkSlow, reason::ShrunkToFit,
    reason::ShrunkFailed, reason::Moving, reason::Stranded, reason::TooWide,
    reason::HeldFetch, reason::StandsStill, reason::HeldHung,
    reason::HeldDevice, reason::HeldSilent, reason::HeldHungLaunch,
    reason::TooExtreme, reason::Drained, reason::HeldByUser,
    reason::HeldUnready, reason::KeptOut, reason::LosesPlace,
    reason::RunningOpaque, reason::HeldTimeLimit, reason::Tried,
    reason::NotItsServers, reason::NotBefore, reason::SizedByPolicy,
    reason::AwaitsJobs, reason::ParentFailed, reason::ArrayLimit,
    reason::RunningInteractive, reason::InteractiveQuota, reason::NoSeat,
    reason::EndedIdle, reason::FinishedWith, reason::WaitsForEnd>;
class Reason : public ClosedVariant<ReasonVariant> {
 public:
  using ClosedVariant::ClosedVariant;
};

// "priority".
std::string_view ReasonName(const Reason& reason);

// One sentence for a person: "waiting: 3rd in line for v100, 41 % of its share
// received".
std::string RenderReason(const Reason& reason);

// The reason without any OwnersText, for readers other than the job's owner and
// operators.
Reason ForOthers(Reason reason);

// The form of a reason in journals and snapshots.
struct ReasonRow {
  uint64_t code = 0;  // Reason::index()
  std::string text = {};
  double first = 0, second = 0;
  std::string detail = {};
};

ReasonRow ToReasonRow(const Reason& reason);
// Clamps numbers of a damaged row to the range of their fields. Returns nullopt
// if the code belongs to a later version.
std::optional<Reason> FromReasonRow(const ReasonRow& row);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_REASON_H_
