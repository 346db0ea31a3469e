#include "tests/simulation/clients.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include "coordinator/workload/job_array.h"
#include "core/text.h"

namespace gavel {
namespace {

// The retries of a job that fails by itself and is then held.
constexpr int kRetries = 4;
// The policies are mostly cheap ones, because the engine is under test.
constexpr auto kPolicies =
    std::to_array<const char*>({"fifo",
                                "sjf",
                                "fifo",
                                "gandiva",
                                "fifo_perf",
                                "isolated",
                                "fifo",
                                "fifo_packed",
                                "fifo",
                                "sjf",
                                "proportional",
                                "fifo",
                                "max_min_fairness_perf",
                                "fifo",
                                "fifo_packed",
                                "fifo_perf",
                                "gandiva",
                                "fifo",
                                "sjf",
                                "fifo",
                                "isolated",
                                "fifo_packed",
                                "fifo",
                                "max_min_fairness_packed"});

// Returns why the job has not ended as it should; empty if it has.
// `steps_saved` is the largest number of steps in a checkpoint of the job.
// `cancelled` tells whether its user cancelled it, `parent_cancelled` whether a
// job that it waited for was cancelled.
std::string WrongEnd(const Client& client, const Job& job, uint64_t steps_saved,
                     bool cancelled, bool parent_cancelled) {
  if (job.active()) return "has not ended";
  if (client.kind == Kind::kInteractive) return "";
  if (job.state == JobState::kFinished) {
    const uint64_t steps = steps_saved;
    if (steps >= client.training.steps_total) return "";
    return StrCat("has finished after ", steps, " steps of ",
                  client.training.steps_total);
  }
  if (job.state == JobState::kHeld && client.kind == Kind::kFailing) {
    return "";
  }
  if (client.spec.time_limit_s && IsAtLimit(job)) return "";
  if (job.state == JobState::kCancelled && cancelled) {
    return "";
  }
  if (std::holds_alternative<reason::ParentFailed>(job.reason) &&
      parent_cancelled) {
    return "";
  }
  return "could have finished";
}

bool HasCancelledParent(const Job& job, const Engine& engine) {
  return std::ranges::any_of(engine.jobs(), [&](const auto& entry) {
    const Job& parent = entry.second;
    const auto is_named = [&](std::string_view name) {
      return std::ranges::count(job.spec.after_success, name) > 0;
    };
    const bool of_array =
        parent.array.valid() && is_named(ArrayNameOf(parent.spec.name));
    return parent.state == JobState::kCancelled &&
           (of_array || is_named(parent.spec.name));
  });
}

std::string Stands(const Job& job) {
  std::string text;
  if (!job.active()) return text;
  for (const Worker& worker : job.workers) {
    StrAppend(&text, "\n    #", worker.incarnation, " on ", worker.server,
              ": process ", static_cast<int>(worker.process), ", holds ",
              worker.held_epoch, " of ", job.epoch,
              worker.leaving ? ", leaving" : "");
  }
  return text;
}

}  // namespace

bool IsAtLimit(const Job& job) {
  return job.state == JobState::kHeld &&
         std::holds_alternative<reason::HeldTimeLimit>(job.reason);
}

std::vector<JobId> HungLaunches(const Engine& engine) {
  std::vector<JobId> held;
  for (const auto& [id, job] : engine.jobs()) {
    if (job.state == JobState::kHeld &&
        (std::holds_alternative<reason::HeldHungLaunch>(job.reason) ||
         std::holds_alternative<reason::HeldSilent>(job.reason))) {
      held.push_back(id);
    }
  }
  return held;
}

// Jobs share accelerators well, at either scale factor.
std::shared_ptr<const ThroughputTable> Throughputs() {
  static const auto* const table = [] {
    std::string rows;
    for (const int scale : {1, 2}) {
      StrAppend(&rows, scale == 1 ? "" : ", ", "\"('app', ", scale,
                ")\": {\"null\": 2, \"('app', ", scale, ")\": [1.5, 1.5]}");
    }
    auto parsed = ThroughputTable::Parse(
        StrCat("{\"fast\": {", rows, "}, \"slow\": {", rows, "}}"), "table");
    return new std::shared_ptr<const ThroughputTable>(
        std::make_shared<const ThroughputTable>(*std::move(parsed)));
  }();
  return *table;
}

std::string AppOf(int number) { return StrCat("app", number); }

Client MakeClient(int i, const ClientTraits& traits, std::mt19937_64& random) {
  const auto draw_below = [&](uint64_t below) { return random() % below; };
  Client client;
  JobSpec& spec = client.spec;
  spec.name = StrCat("job", i);
  spec.argv = {"./train"};
  spec.app = "app";
  spec.weight = 1 + static_cast<double>(draw_below(3));
  const uint64_t draw = draw_below(8);
  client.kind = draw == 0   ? Kind::kFailing
                : draw <= 2 ? Kind::kFragile
                            : Kind::kRobust;
  const bool gang = client.kind == Kind::kRobust && draw_below(3) == 0;
  spec.scale_factor = gang ? 2 : 1;
  spec.retries_max = client.kind == Kind::kRobust ? 1000 : kRetries;
  if (gang && draw_below(2) == 0) {
    spec.scale_factor_min = 1;
    spec.scale_factor_max = 3;
  }
  VirtualTraining& training = client.training;
  training.speed_up = {{2, 1.8}, {3, 2.4}};
  training.steps_total = 15 + draw_below(45);
  training.steps_per_s = {{"fast", 2.0}, {"slow", 1.0}};
  training.state_bytes = 60 + draw_below(50);
  training.resume_kept_s = 0.02;
  training.resume_parked_s = 0.1;
  training.keep_s = 0.01;
  training.checkpoint_every_s = 2 + static_cast<double>(draw_below(10));
  training.gang_failures = static_cast<int>(draw_below(3));
  if (client.kind == Kind::kFailing) {
    training.fail_code = 1;
    training.fail_at_step = 3;
    training.fail_incarnations = 1'000'000;
    training.checkpoint_every_s = 0;  // with checkpoints it would make progress
  }
  // This draws no random number, so that each seed still gives the same run.
  training.in_shell = i % 3 == 1;
  if (client.kind == Kind::kFailing && i % 2 == 0) {
    training.fail_code = kExitEvicted;
  }
  spec.steps_total = training.steps_total;
  // Likewise. Each cluster has a server besides this one.
  if (!gang && i % 4 == 3) spec.exclude_servers = {"server1"};
  if (i % 5 == 4) spec.not_before_s = 3 + i;
  if (i % 7 == 5) spec.time_limit_s = 12;  // most would run longer
  if (traits.bids) {
    spec.workload = "app";  // the row of the table
    spec.app = traits.alone && i % 4 == 3 ? "" : AppOf(i % kApps);
  }
  if (traits.tries) {
    training.packed_pace = i % 2 == 0 ? 0.35 : 0.8;
    if (i % 3 != 0) {
      spec.workload = StrCat("own", i % 2);
      spec.throughputs = training.steps_per_s;
    }
    if (!gang && i % 4 == 1) spec.types = {"fast"};
  }
  return client;
}

void AddParents(std::vector<Client>& clients, bool arrays) {
  constexpr char kIndices[] = "0-1";
  for (size_t i = 1; i < clients.size(); ++i) {
    Client& parent = clients[i - 1];
    if (i % 3 == 0 || parent.kind == Kind::kFailing) continue;
    if (parent.spec.time_limit_s) continue;
    JobSpec& spec = clients[i].spec;
    (i % 4 == 1 ? spec.after_any : spec.after_success) = {parent.spec.name};
    if (!arrays || i % 2 == 0) continue;
    // Some have a limit.
    parent.spec.array = i % 8 == 1 ? "0-2%2" : i % 4 == 3 ? "0-1%1" : kIndices;
    // Each fourth one waits for its parent by index.
    if (i % 4 == 1) continue;
    spec.array = kIndices;
    spec.after_by_index = std::exchange(spec.after_success, {});
  }
}

Client MakeShell(int i) {
  Client client;
  client.kind = Kind::kInteractive;
  client.spec.name = StrCat("shell", i);
  client.spec.argv = {"sh"};
  client.spec.job_class = JobClass::kInteractive;
  // The last one is ended for being idle.
  client.spec.idle_limit_s = i == 2 ? 10 : 60;
  client.training.opaque_s = 8 + 10 * i;
  return client;
}

const Client& ClientOf(const std::vector<Client>& clients,
                       const std::string& name) {
  return *std::find_if(clients.begin(), clients.end(),
                       [&](const Client& client) {
                         return client.spec.name == name ||
                                (HasElements(client.spec) &&
                                 client.spec.name == ArrayNameOf(name));
                       });
}

std::string WrongEnds(const std::vector<Client>& clients,
                      const VirtualCluster& cluster,
                      const std::set<JobId>& cancelled) {
  std::string text;
  std::set<std::string> there;
  for (const auto& [id, job] : cluster.engine().jobs()) {
    const Client& client = ClientOf(clients, job.spec.name);
    there.insert(client.spec.name);
    const std::string wrong =
        WrongEnd(client, job, cluster.world().truth.StepsSaved(id),
                 cancelled.contains(id) || cancelled.contains(job.array),
                 HasCancelledParent(job, cluster.engine()));
    if (wrong.empty()) continue;
    StrAppend(&text, "job ", id.value(), " (", job.spec.name, ") ", wrong, ": ",
              JobStateName(job.state), ", ",
              RenderReason(cluster.engine().Why(id, cluster.engine_now())),
              Stands(job), "; ");
  }
  for (const Client& client : clients) {
    if (client.accepted && there.contains(client.spec.name)) continue;
    StrAppend(&text, client.spec.name,
              client.accepted ? " was accepted and is gone; "
                              : " was never accepted; ");
  }
  return text;
}

EngineOptions EngineOf(uint64_t seed, bool is_long) {
  EngineOptions engine;
  engine.round_duration_s = is_long ? 90 : 10;
  engine.lease_duration_s = is_long ? 60 : 4;
  engine.plan_lead_s = engine.lease_duration_s;  // as SetUpFor has it
  engine.pause_grace_s = 5;
  engine.stop_grace_s = 2;
  engine.launch_timeout_s = 20;
  engine.gang_timeout_s = 10;
  engine.hang_timeout_s = 15;
  engine.keep_absence_s_max = 25;
  if (seed % 3 == 0) engine.park_absence_s_max = 35;
  if (seed % 7 == 0) engine.launches_per_s = 2;  // slower than they come
  engine.mechanism =
      seed % 8 < 4 ? MechanismKind::kGavel : MechanismKind::kMoveAware;
  engine.throughputs = Throughputs();
  engine.pair_trials = seed % 5 == 0;
  if (seed % 5 == 2) {
    engine.introspection = true;
    engine.trial_backoff_s = 5 + static_cast<double>(seed % 4) * 10;
  }
  return engine;
}

std::string PolicyOf(uint64_t seed) {
  if (seed % 8 != 6) return kPolicies[seed / 3 % kPolicies.size()];
  constexpr auto kFairness =
      std::to_array<const char*>({"0", "0.3", "0.5", "0", "0.8"});
  return StrCat("themis_f=", kFairness[seed / 8 % kFairness.size()]);
}

ClientTraits TraitsOf(uint64_t seed, const std::string& policy) {
  ClientTraits traits;
  traits.bids = policy.starts_with("themis");
  traits.alone = seed / 8 % 3 == 0;
  traits.tries = EngineOf(seed, false).introspection;
  return traits;
}

void CountFaultsOf(const VirtualWorld& world,
                   std::map<std::string, uint64_t>& faults) {
  const VirtualNetwork::Counts& counts = world.network.counts();
  faults["message: lost"] = counts.lost;
  faults["message: doubled"] = counts.doubled;
  faults["message: late"] = counts.late;
  faults["message: cut off"] = counts.cut_off;
  faults["checkpoint: failed"] = world.checkpoint_faults.failed;
  faults["checkpoint: late"] = world.checkpoint_faults.delayed;
  faults["accelerator: of no use"] = world.refused;
}

std::map<std::string, uint64_t> ChecksOf(const VirtualCluster& cluster) {
  const AuctionTruth& auctions = cluster.world().auctions;
  const TrialTruth& trials = cluster.trials();
  return {{"bids: counted", auctions.bids_counted()},
          {"auctions: held again", auctions.payments_checked()},
          {"trials: begun", trials.begun()},
          {"trials: kept", trials.kept()},
          {"trials: undone", trials.undone()}};
}

}  // namespace gavel
