// The cost of a round's end for a training program, measured for three ways to
// end a round, with real processes on this machine. One call at a time; the
// programs die with its thread.
#ifndef GAVEL_COORDINATOR_CLI_PREEMPTION_RUN_H_
#define GAVEL_COORDINATOR_CLI_PREEMPTION_RUN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/profile_run.h"
#include "core/messages.h"

namespace gavel {

// kExtended: the lease is extended, and the program continues. kPaused: it
// gives its accelerator up, and gets it again at once. kRelaunched: it saves
// its state and ends, and another process resumes from there, as the jobs of
// the original Gavel do.
enum class RoundEnd : uint8_t { kExtended, kPaused, kRelaunched };
inline constexpr std::array<RoundEnd, 3> kRoundEnds = {
    RoundEnd::kExtended, RoundEnd::kPaused, RoundEnd::kRelaunched};
std::string_view RoundEndName(RoundEnd end);  // "extended", ...

// The end of one round, on the machine's monotonic clock.
struct Preemption {
  Time asked_s = 0;
  Time released_s = 0;  // the accelerator is free
  Time granted_s = 0;   // the next lease
};

// One program through all rounds.
struct PreemptionRecord {
  std::vector<TracedStep> steps;        // ascending
  std::vector<Preemption> preemptions;  // of kExtended: none
};

// From a round's first step to the next one's.
struct MeasuredRound {
  Time begin_s = 0;
  Time end_s = 0;
  double lost_s = 0;  // outside of steps
  // The three parts of lost_s: from the last step to the free accelerator, from
  // there to the next lease, and from there to the next step.
  double leaving_s = 0;
  double away_s = 0;
  double resuming_s = 0;
};
// At most `rounds`; without preemptions of `round_s` each. Pure.
std::vector<MeasuredRound> RoundsOf(const PreemptionRecord& record, int rounds,
                                    double round_s);

struct PreemptionOptions {
  // With programs that are absolute paths (FindWorkloads).
  std::vector<ProfileWorkload> workloads;
  AcceleratorInfo accelerator;
  std::string folder;  // absolute; of all files
  int rounds = 10;
  double round_s = 1;                       // that a lease runs
  double timeout_s = 120;                   // for a step, a release, an end
  const std::atomic<bool>* stop = nullptr;  // borrowed; true: give up
  std::function<void(size_t done, size_t all, const std::string& what)> show;
};

// By workload, then as kRoundEnds.
using PreemptionRounds = std::vector<std::array<std::vector<MeasuredRound>, 3>>;

// `all` gets the workloads that ran in full, in their order, also on an error.
// CANCELLED: stopped. ABORTED: a program failed or did not obey; the message
// names the program, the reason, and the file of its output.
absl::Status RunPreemption(const PreemptionOptions& options,
                           PreemptionRounds* all);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PREEMPTION_RUN_H_
