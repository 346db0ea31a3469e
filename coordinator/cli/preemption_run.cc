#include "coordinator/cli/preemption_run.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "coordinator/cli/live_workloads.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/user_files.h"
#include "runtime/transport/lease_granter.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr double kTurn_s = 0.002;
// For messages that a process sent just before it ended.
constexpr double kLastWords_s = 0.1;
constexpr size_t kJob = 0;

// One program through all rounds, which all end in the same way.
class RoundEndRun {
 public:
  RoundEndRun(const PreemptionOptions& options, const ProfileWorkload& workload,
              RoundEnd end, LeaseGranter& leases)
      : options_(options), workload_(workload), end_(end), leases_(leases) {}

  absl::StatusOr<PreemptionRecord> Run() {
    std::error_code error;
    fs::remove_all(options_.folder, error);
    GAVEL_RETURN_IF_ERROR(MakeDirectory(options_.folder));
    GAVEL_RETURN_IF_ERROR(Start());
    if (end_ == RoundEnd::kExtended) {
      GAVEL_RETURN_IF_ERROR(Train());
    } else {
      for (int round = 0; round < options_.rounds; ++round) {
        GAVEL_RETURN_IF_ERROR(Train());
        if (end_ == RoundEnd::kPaused) {
          GAVEL_RETURN_IF_ERROR(TakeBack(PauseTier::kPark));
          continue;
        }
        GAVEL_RETURN_IF_ERROR(TakeBack(PauseTier::kEvict));
        ++epoch_;
        GAVEL_RETURN_IF_ERROR(Start());
      }
    }
    GAVEL_RETURN_IF_ERROR(End());
    for (const std::string& trace : traces_) {
      GAVEL_ASSIGN_OR_RETURN(const auto steps, ReadWorkerTrace(trace));
      record_.steps.insert(record_.steps.end(), steps.begin(), steps.end());
    }
    return std::move(record_);
  }

 private:
  const LeasedJob& job() const { return leases_.jobs()[kJob]; }
  ChildProcess& child() const { return *children_.front(); }

  absl::Status Start() {
    LeasedJob one;
    one.terms.places = {options_.accelerator};
    one.epoch = epoch_;
    if (!children_.empty()) one.steps_done = job().steps_done;
    if (end_ == RoundEnd::kExtended) one.terms.duration_s = options_.round_s;
    LiveLaunch launch;
    launch.worker.server = "preemption";
    launch.worker.job_name = "preemption";
    launch.worker.checkpoint_directory = File("checkpoints");
    traces_.push_back(File(StrCat("trace-", traces_.size(), ".json")));
    // Only the round's end saves a checkpoint.
    launch.worker.environment = {{"GAVEL_CHECKPOINT_INTERVAL_S", "0"},
                                 {"GAVEL_TRACE_FILE", traces_.back()}};
    launch.worker.worker = {JobId(kJob + 1), 0, leases_.Begin({one})};
    launch.places = {options_.accelerator};
    launch.endpoint = leases_.endpoint();
    launch.run_directory = options_.folder;
    launch.output_path = File("job.log");
    children_.clear();
    return StartWorkload(workload_, std::move(launch), &children_);
  }

  // One round under one lease: from the grant, the first round from its first
  // step.
  absl::Status Train() {
    GAVEL_RETURN_IF_ERROR(Wait("request for a lease", options_.timeout_s,
                               [&] { return job().granted_at >= 0; }));
    const uint64_t steps = job().steps_done;
    const auto has_stepped = [&, steps] { return job().steps_done > steps; };
    Time from = job().granted_at;
    if (record_.preemptions.empty()) {
      GAVEL_RETURN_IF_ERROR(Wait("step", options_.timeout_s, has_stepped));
      from = MonotonicNow();
    } else {
      record_.preemptions.back().granted_s = from;
    }
    const double rounds = end_ == RoundEnd::kExtended ? options_.rounds : 1;
    GAVEL_RETURN_IF_ERROR(Wait("end of the round", kNever, [&] {
      return MonotonicNow() >= from + rounds * options_.round_s;
    }));
    return Wait("step", options_.timeout_s, has_stepped);
  }

  absl::Status TakeBack(PauseTier tier) {
    leases_.TakeBack(MonotonicNow(), kJob, tier);
    Preemption& one = record_.preemptions.emplace_back();
    one.asked_s = job().asked_at;
    GAVEL_RETURN_IF_ERROR(Wait("boundary", options_.timeout_s,
                               [&] { return job().released_at >= 0; }));
    one.released_s = job().released_at;
    if (tier == PauseTier::kPark) {
      leases_.GrantNext(kJob);
      return absl::OkStatus();
    }
    return CollectProcess();
  }

  // Under the last lease, until a step is made.
  absl::Status End() {
    const uint64_t steps = job().steps_done;
    GAVEL_RETURN_IF_ERROR(Wait("request for a lease", options_.timeout_s,
                               [&] { return job().granted_at >= 0; }));
    if (!record_.preemptions.empty()) {
      record_.preemptions.back().granted_s = job().granted_at;
      GAVEL_RETURN_IF_ERROR(Wait("step", options_.timeout_s,
                                 [&] { return job().steps_done > steps; }));
    }
    leases_.TakeBack(MonotonicNow(), kJob, PauseTier::kEvict);
    return CollectProcess();
  }

  absl::Status CollectProcess() {
    GAVEL_RETURN_IF_ERROR(
        Wait("end", options_.timeout_s, [&] { return child().Ended(); }));
    const int code = child().Collect();
    if (code == kExitEvicted) return absl::OkStatus();
    return Failed(StrCat("it ended with ", code, " in place of ", kExitEvicted,
                         " when it was evicted"));
  }

  // Turns until `done`; ABORTED with `what` when it takes too long.
  template <class Done>
  absl::Status Wait(const std::string& what, double timeout_s,
                    const Done& done) {
    const Time begin = MonotonicNow();
    while (!done()) {
      if (options_.stop != nullptr && *options_.stop) {
        return absl::CancelledError("stopped");
      }
      if (!job().error.empty()) return Failed(job().error);
      if (child().Ended() && job().released_at < 0) {
        leases_.Turn(MonotonicNow(), kLastWords_s);
        if (job().released_at >= 0 || done()) continue;
        const int code = child().Collect();
        return Failed(StrCat("it ended with ", code, " while it was to train",
                             code == 0 ? "; let it train for longer" : ""));
      }
      if (MonotonicNow() - begin > timeout_s) {
        return Failed(StrCat("no ", what, " within ", timeout_s,
                             " s; is its loop a gavel::Iterator?"));
      }
      leases_.Turn(MonotonicNow(), kTurn_s);
    }
    return absl::OkStatus();
  }

  absl::Status Failed(const std::string& why) const {
    return absl::AbortedError(StrCat(workload_.type, ", ", RoundEndName(end_),
                                     ": ", why, "; its output is in ",
                                     File("job.log")));
  }
  std::string File(const std::string& name) const {
    return StrCat(options_.folder, "/", name);
  }

  const PreemptionOptions& options_;
  const ProfileWorkload& workload_;
  const RoundEnd end_;
  LeaseGranter& leases_;
  LiveProcesses children_;  // the one of now
  std::vector<std::string> traces_;
  uint64_t epoch_ = 1;
  PreemptionRecord record_;
};

MeasuredRound RoundBetween(const PreemptionRecord& record, Time from, Time to) {
  MeasuredRound round{from, to, to - from};
  for (const TracedStep& step : record.steps) {
    round.lost_s -=
        std::max(0.0, std::min(step.end_s, to) - std::max(step.begin_s, from));
  }
  return round;
}

}  // namespace

std::string_view RoundEndName(RoundEnd end) {
  constexpr std::string_view kNames[] = {"extended", "paused", "relaunched"};
  return kNames[static_cast<size_t>(end)];
}

std::vector<MeasuredRound> RoundsOf(const PreemptionRecord& record, int rounds,
                                    double round_s) {
  std::vector<MeasuredRound> all;
  if (record.steps.empty()) return all;
  const auto count = static_cast<size_t>(rounds);
  Time from = record.steps.front().begin_s;
  if (record.preemptions.empty()) {
    for (; all.size() < count && from + round_s <= record.steps.back().end_s;
         from += round_s) {
      all.push_back(RoundBetween(record, from, from + round_s));
    }
    return all;
  }
  for (const Preemption& one : record.preemptions) {
    const auto next = std::ranges::lower_bound(record.steps, one.granted_s, {},
                                               &TracedStep::begin_s);
    if (next == record.steps.end() || next == record.steps.begin() ||
        all.size() == count) {
      break;
    }
    MeasuredRound& round =
        all.emplace_back(RoundBetween(record, from, next->begin_s));
    round.leaving_s = std::max(0.0, one.released_s - std::prev(next)->end_s);
    round.away_s = one.granted_s - one.released_s;
    round.resuming_s = next->begin_s - one.granted_s;
    from = next->begin_s;
  }
  return all;
}

absl::Status RunPreemption(const PreemptionOptions& options,
                           PreemptionRounds* all) {
  all->clear();
  GAVEL_ASSIGN_OR_RETURN(const auto leases, LeaseGranter::Open());
  const size_t count = options.workloads.size() * kRoundEnds.size();
  for (const ProfileWorkload& workload : options.workloads) {
    PreemptionRounds::value_type ends;
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      const std::string_view name = RoundEndName(kRoundEnds[end]);
      if (options.show) {
        options.show(all->size() * kRoundEnds.size() + end, count,
                     StrCat(workload.type, ", ", name));
      }
      PreemptionOptions one = options;
      one.folder = StrCat(options.folder, "/", all->size() + 1, "-", name);
      GAVEL_ASSIGN_OR_RETURN(
          const PreemptionRecord record,
          RoundEndRun(one, workload, kRoundEnds[end], *leases).Run());
      ends[end] = RoundsOf(record, options.rounds, options.round_s);
      if (!ends[end].empty()) continue;
      return absl::AbortedError(
          StrCat(workload.type, ", ", name,
                 ": it made no step in a round; give --round more seconds"));
    }
    all->push_back(std::move(ends));
  }
  return absl::OkStatus();
}

}  // namespace gavel
