// The coordinator as a process: one event loop that drives the engine with the
// real clock, ZeroMQ, the journal and the solver. `gavel coordinator` and
// `gavel local` run one.
//
// Run() belongs to one thread; Stop() may be called from any, and from a signal
// handler. More threads run inside: commits, solving, notices and the like.
#ifndef GAVEL_COORDINATOR_SERVER_COORDINATOR_SERVER_H_
#define GAVEL_COORDINATOR_SERVER_COORDINATOR_SERVER_H_

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/journal.h"
#include "coordinator/server/journal_writer.h"
#include "coordinator/server/limits.h"
#include "coordinator/workload/cluster_spec.h"
#include "core/text.h"
#include "runtime/transport/curve.h"

namespace spdlog {
class logger;
}

namespace gavel {

// ---- How a live coordinator's engine is set up for its policy; a replay does
// the same. Stateless, thread-safe.

// Tiers of pauses: a job that is expected back within so many rounds may stay
// on its accelerator; one that is away for longer than this frees everything.
inline constexpr double kKeepRounds_max = 2;
inline constexpr double kParkAbsence_s_max = 3600;

// Even a short round ends with a measurement made in it.
inline constexpr double kReportRounds = 0.125;

// A connection's handshake takes about a millisecond of a core here; at this
// rate a quarter of one, and nobody's renewal waits for a round's new workers.
inline constexpr double kLaunchesPerSecond = 250;

// Servers that were not there for so long are not listed any more.
inline constexpr double kForgetAfter_s = 30 * 24 * 3600.0;

// A solve of 10,000 jobs at most five times a second, and of 100 at once.
inline constexpr double kSolveGap_s_per_job = 20e-6;

inline void SetUpFor(const Policy& policy, EngineOptions* options) {
  options->packing = policy.packs();
  options->progress = policy.reads_progress();
  options->pair_trials = policy.packs();
  // The next round is planned before a lease would reach beyond its round.
  // Jobs that continue get longer leases then, so the loss of the coordinator
  // near the end of a round interrupts no more than in its middle.
  options->plan_lead_s = options->lease_duration_s;
  options->launches_per_s = kLaunchesPerSecond;
  options->forget_after_s = kForgetAfter_s;
  options->report_interval_s = std::min(
      options->report_interval_s, kReportRounds * options->round_duration_s);
  options->solve_gap_s_per_job = kSolveGap_s_per_job;
  options->keep_absence_s_max = kKeepRounds_max * options->round_duration_s;
  options->park_absence_s_max = kParkAbsence_s_max;
}

// INVALID_ARGUMENT names the option that is not above 0.
inline absl::Status CheckTimes(const EngineOptions& options) {
  const std::pair<const char*, double> times[] = {
      {"round_duration_s", options.round_duration_s},
      {"lease_duration_s", options.lease_duration_s},
      {"agent_timeout_s", options.agent_timeout_s},
      {"heartbeat_interval_s", options.heartbeat_interval_s},
      {"launch_timeout_s", options.launch_timeout_s}};
  for (const auto& [name, value] : times) {
    if (std::isfinite(value) && value > 0) continue;
    return absl::InvalidArgumentError(
        StrCat(name, " is ", value, ", it must be above 0"));
  }
  return absl::OkStatus();
}

class LocalRequests;
struct Requester;

// ---- The server

struct CoordinatorServerOptions {
  // Port 0: a free one. Beyond loopback only with `keys`.
  std::string endpoint = "tcp://127.0.0.1:0";
  std::optional<CurveKeyPair> keys;  // its own; with them it is encrypted
  std::string principals_path;       // with keys: who may connect, as what
  QuotaOptions quota;
  // Journal and default checkpoints; created when it is not there, mode 0700.
  std::string state_directory;
  EngineOptions engine;
  JournalOptions journal;
  SnapshotOptions snapshots;
  std::string policy = "max_min_fairness_perf";
  std::map<std::string, double> prices;  // per accelerator and hour, by type
  NotifySpec notify;
  std::shared_ptr<spdlog::logger> log;  // null: none
  // The journal is an older copy that lacks the last rows. Agents and workers
  // that have seen the lost rows are accepted all the same.
  bool accept_loss = false;
  // The end waits for no solve; see solve_abandoned.
  bool abandon_solves = false;
  // Gets the line "gavel: listening on tcp://127.0.0.1:PORT" for scripts, once
  // requests are answered; null: none. Borrowed.
  std::FILE* announce = nullptr;
  // See ClientRequests::Options. Called by the event loop, which it must not
  // keep waiting.
  std::function<absl::StatusOr<std::string>(const Requester&)> dashboard;
  // The principals have changed: ends the tokens of keys that are unknown now.
  // Called by the event loop. Null: there is no dashboard.
  std::function<void(const std::function<bool(const std::string&)>& is_known)>
      end_tokens;
};

class CoordinatorServer {
 public:
  // Takes the journal's lock, binds, recovers the engine, opens a new term.
  // INVALID_ARGUMENT: an option. NOT_FOUND: no such policy. ALREADY_EXISTS:
  // another coordinator has the journal or the port. PERMISSION_DENIED: the
  // endpoint is not loopback and there are no keys, or a file or directory not
  // ours alone. DATA_LOSS: the journal
  // is damaged. Each names the remedy.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Create(
      CoordinatorServerOptions options);
  ~CoordinatorServer();

  // Serves until Stop() or a client's shutdown (OK), or until it must not go
  // on: a peer has seen a later journal (ABORTED), or a commit failed (the
  // disk's error). Then nothing more is granted, and the message says what to
  // do.
  absl::Status Run();

  void Stop();

  // Changes the quota from the next turn on. May be called by the same threads
  // as Stop().
  void SetQuota(const QuotaOptions& quota);

  // After Run(), with `abandon_solves`: one is still under way. End the process
  // with std::_Exit once all else has been destroyed.
  bool solve_abandoned() const;

  // For requests from within this process, by any thread. Lives as long as the
  // server.
  LocalRequests& local();

  // With the port that was really bound.
  const std::string& endpoint() const;

 private:
  struct Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_COORDINATOR_SERVER_H_
