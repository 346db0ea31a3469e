#include "tests/simulation/scenario.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <variant>

#include "core/text.h"
#include "tests/engine/describe.h"
#include "tests/simulation/clients.h"
#include "tests/simulation/world/virtual_cluster.h"

namespace gavel {
namespace {

constexpr Time kFaultsUntil_s = 60;
// Without further faults all work is done in a tenth of this time.
constexpr Time kEndWithin_s = 6000;
// Processes that nobody wants are gone within this time.
constexpr Time kSettle_s = 120;
// Late messages from before the end of the faults have arrived after this time.
constexpr Time kLate_s = 30;
// Clocks differ by at most 2 %, as EngineOptions::drift says.
constexpr double kClockError = 0.0098;

class Scenario {
 public:
  Scenario(uint64_t seed, const ScenarioOptions& options)
      : seed_(seed),
        random_(seed * 0x9e3779b97f4a7c15),
        story_(options.story),
        cluster_(Options(options)) {
    cluster_.set_observer([this](Time now, const Action& a) { See(now, a); });
    if (story_) cluster_.set_story(story_);
    AddServers();
    for (int i = 0; i < options.jobs; ++i)
      clients_.push_back(MakeClient(i, traits_, random_));
    if (seed % 4 == 2) AddParents(clients_, /*arrays=*/seed % 8 == 2);
    // One more than their owner may have at once.
    for (int i = 0; i < 3 && seed % 4 == 1; ++i) {
      clients_.push_back(MakeShell(i));
    }
    for (int app = 0; traits_.bids && app < kApps; ++app) {
      StartBidder(app, static_cast<BidHabit>(Draw(kBidHabits)));
    }
  }

  ScenarioResult Run() {
    // Most jobs are submitted before the faults begin, the rest while they
    // happen.
    while (cluster_.now() < kFaultsUntil_s) {
      SubmitSome();
      cluster_.RunUntil(cluster_.now() + 0.2 + 5 * Unit());
      End(/*all=*/false);
      if (cluster_.now() > 5) Fault();
      if (!cluster_.coordinator_up() && !restarting_) RestartCoordinator(10);
    }
    Heal();
    const bool ended = Finish();
    result_.ended_at = cluster_.now();
    Judge(ended);
    return std::move(result_);
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  double Unit() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Unit() < probability; }

  // ---- the world at its beginning

  bool is_long() const { return seed_ % 16 == 3; }

  VirtualClusterOptions Options(const ScenarioOptions& given) {
    VirtualClusterOptions options;
    options.engine = EngineOf(seed_, is_long());
    options.engine.agent_timeout_s = 3 + static_cast<double>(Draw(12));
    options.policy = given.policy.empty() ? PolicyOf(seed_) : given.policy;
    traits_ = TraitsOf(seed_, options.policy);
    calm_.delay_s_max = 0.0005 + 0.05 * static_cast<double>(seed_ % 4);
    options.network = Weather();
    options.checkpoints.fail = 0.1 * static_cast<double>(seed_ % 3);
    options.checkpoints.late = 0.1 * static_cast<double>(seed_ % 4);
    options.checkpoints.late_s_max = 25;
    if (seed_ % 2 == 1) options.snapshot_rows = 20 + seed_ % 40;
    options.coordinator_clock_rate = ClockRate();
    options.seed = seed_;
    return options;
  }

  NetworkFaults Weather() {
    NetworkFaults network = calm_;
    network.drop = 0.02 * static_cast<double>(Draw(5));
    network.duplicate = 0.03 * static_cast<double>(Draw(3));
    network.late = 0.01 * static_cast<double>(Draw(4));
    network.late_s_max = 20;
    return network;
  }

  double ClockRate() {
    return 1 + kClockError * (static_cast<double>(Draw(3)) - 1);
  }

  // Adds six accelerators of two types, on three servers or on two.
  void AddServers() {
    const size_t servers = Chance(0.7) ? 3 : 2;
    for (size_t i = 0; i < servers; ++i) {
      std::vector<AcceleratorInfo> accelerators(6 / servers);
      const std::string name = StrCat("server", i);
      for (size_t k = 0; k < accelerators.size(); ++k) {
        AcceleratorInfo& info = accelerators[k];
        info.type = (i + k) % 2 == 0 ? "fast" : "slow";
        info.uuid = StrCat(name, "-", k);
        // Each accelerator has memory for two and a half jobs, contexts
        // included, or its memory is not known.
        if (seed_ % 2 == 0) {
          info.memory_bytes = 250;
          info.context_bytes = 10;
        }
      }
      cluster_.AddServer(name, accelerators,
                         {ClockRate(), static_cast<double>(Draw(100'000))});
      servers_.push_back(name);
    }
  }

  // ---- clients

  // Submits each client's job again until its acceptance arrives.
  void SubmitSome() {
    for (Client& client : clients_) {
      if (client.accepted || Chance(0.3) || !cluster_.coordinator_up()) {
        continue;
      }
      // The reply may arrive before Submit returns; requests are numbered one
      // by one.
      client.asked = requests_ + 1;
      requests_ =
          std::max(requests_, cluster_.Submit(client.spec, client.training));
    }
  }

  void See(Time now, const Action& action) {
    Digest(std::bit_cast<uint64_t>(now));
    Digest(action.index());
    if (const auto* row = std::get_if<action::Persist>(&action)) {
      ++result_.rows;
      Digest(std::hash<std::string>{}(row->row));
      if (row->event != nullptr) NoteLimit(*row->event);
    } else if (story_) {
      story_(now, Describe(action));
    }
    if (const auto* reply = std::get_if<action::Reply>(&action)) {
      for (Client& client : clients_) {
        if (client.asked != reply->reply_to) continue;
        // If the name is taken, an earlier attempt was accepted and its reply
        // was lost.
        client.accepted |= reply->error.empty() ||
                           reply->error.find("taken") != std::string::npos;
      }
    }
    if (const auto* send = std::get_if<action::SendToWorker>(&action)) {
      if (const auto* pause = std::get_if<PauseRequest>(&send->message)) {
        constexpr auto kTiers =
            std::to_array<const char*>({"park", "evict", "stop", "keep"});
        ++result_.pauses[kTiers[static_cast<size_t>(pause->tier)]];
      }
    }
  }

  // A job that its time_limit ends while nothing fails has to save all of its
  // steps. Any other job that the event names has made none yet.
  void NoteLimit(const Event& event) {
    const auto* reached = std::get_if<event::TimeReached>(&event);
    if (reached == nullptr || cluster_.now() < calm_from_) return;
    at_limit_[reached->job] = cluster_.StepsToSave(reached->job);
  }

  void Digest(uint64_t value) {
    constexpr uint64_t kPrime = 0x100000001b3;  // FNV-1a
    result_.digest = (result_.digest ^ value) * kPrime;
  }

  // ---- faults

  void Note(const std::string& kind, const std::string& whom = "") {
    ++result_.faults[kind];
    if (story_) {
      story_(cluster_.now(),
             StrCat("FAULT ", kind, whom.empty() ? "" : ": ", whom));
    }
  }

  // Schedules `end`, which ends the fault, within about `seconds_max`.
  void Later(double seconds_max, std::function<void()> end) {
    ends_.emplace_back(cluster_.now() + 0.1 + seconds_max * Unit() * Unit(),
                       std::move(end));
  }

  void End(bool all) {
    auto due = std::partition(ends_.begin(), ends_.end(), [&](const auto& e) {
      return !all && e.first > cluster_.now();
    });
    std::vector<std::pair<Time, std::function<void()>>> over(
        std::make_move_iterator(due), std::make_move_iterator(ends_.end()));
    ends_.erase(due, ends_.end());
    std::sort(over.begin(), over.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [time, end] : over) end();
  }

  void Fault() {
    constexpr double kOfBidders = 0.2;
    if (traits_.bids && Chance(kOfBidders)) return BidderFault();
    constexpr uint64_t kKinds = 27;
    const uint64_t kind = Draw(kKinds);
    if (kind < 8) return CoordinatorFault(kind);
    if (kind < 17) return ServerFault(kind - 8);
    if (kind < 23) return WorkerFault(kind - 17);
    if (kind == 23) return CommandOfUser();
    if (kind == 24) {
      Note("network: other weather");
      return cluster_.SetNetworkFaults(Weather());
    }
    if (kind == 25) return BreakAccelerator();
    const std::string& name = servers_[Draw(servers_.size())];
    Note("agent: state lost", name);
    cluster_.KillAgentAndState(name);
    Later(25, [this, name] { cluster_.StartAgent(name); });
  }

  void RestartCoordinator(double seconds_max) {
    restarting_ = true;
    Later(seconds_max, [this] {
      restarting_ = false;
      if (!cluster_.coordinator_up()) cluster_.KillCoordinator();
      cluster_.StartCoordinator();
    });
  }

  // An operator changes the lease duration while a server can't hear of it.
  void ChangeLeases() {
    Note("coordinator: other leases");
    const double least_s = is_long() ? 10 : 3;
    cluster_.SetLeaseDuration(least_s * static_cast<double>(1 + 2 * Draw(4)));
    const std::string& name = servers_[Draw(servers_.size())];
    cluster_.SetPartitioned(name, true);
    Later(40, [this, name] { cluster_.SetPartitioned(name, false); });
    cluster_.KillCoordinator();
    RestartCoordinator(2);
  }

  // The coordinator stalls or is cut off, is taken for dead, and loses its
  // lock. Another one starts; then the first one wakes up, or it has spoken all
  // along.
  void TakeOver() {
    Note("coordinator: taken over");
    if (Chance(0.3)) {
      cluster_.TakeOver();
    } else {
      cluster_.StallCoordinator();
      Later(6, [this] {
        cluster_.TakeOver();
        Later(12, [this] { cluster_.WakeFormerCoordinator(); });
      });
    }
  }

  void CoordinatorFault(uint64_t kind) {
    if (!cluster_.coordinator_up()) return;
    switch (kind) {
      case 0:
        return ChangeLeases();
      case 1:
        Note("coordinator: killed");
        cluster_.KillCoordinator();
        return RestartCoordinator(20);
      case 2:
        Note("coordinator: stalled");
        cluster_.StallCoordinator();
        return Later(12, [this] { cluster_.ResumeCoordinator(); });
      case 3:
        Note("journal: disk full");
        return cluster_.journal().FailNextCommit(
            VirtualJournal::Failure::kNothingWritten);
      case 4:
        Note("journal: fsync failed");
        return cluster_.journal().FailNextCommit(
            VirtualJournal::Failure::kUnknown);
      case 5:
        Note("journal: disk slow");
        cluster_.journal().set_commit_s(2 * Unit());
        return Later(10,
                     [this] { cluster_.journal().set_commit_s(kCommit_s); });
      case 6:
        return TakeOver();
      default:
        Note("journal: end lost");
        cluster_.StartForgetfulCoordinator(1 + Draw(30), 1 + Draw(3));
        return RestartCoordinator(8);
    }
  }

  void ServerFault(uint64_t kind) {
    const std::string& name = servers_[Draw(servers_.size())];
    switch (kind) {
      case 0:
      case 1:
        Note("agent: killed", name);
        cluster_.KillAgent(name, /*processes_survive=*/Chance(0.3));
        return Later(25, [this, name] { cluster_.StartAgent(name); });
      case 2:
        Note("agent: stalled", name);
        cluster_.StallAgent(name);
        return Later(25, [this, name] { cluster_.ResumeAgent(name); });
      case 3:
      case 4:
        Note("network: server cut off", name);
        cluster_.SetPartitioned(name, true);
        return Later(30,
                     [this, name] { cluster_.SetPartitioned(name, false); });
      case 5:
        Note("network: server not heard", name);
        cluster_.SetCut(name, Direction::kFromServer, true);
        return Later(30,
                     [this, name] { cluster_.SetPartitioned(name, false); });
      case 6:
        Note("network: server hears nothing", name);
        cluster_.SetCut(name, Direction::kToServer, true);
        return Later(30,
                     [this, name] { cluster_.SetPartitioned(name, false); });
      case 7:
        // The server's driver is wedged, and then the server is unreachable.
        Note("server: wedged", name);
        HangWorkersOf(name);
        cluster_.SetPartitioned(name, true);
        return Later(60,
                     [this, name] { cluster_.SetPartitioned(name, false); });
      default:
        Note("checkpoint: damaged");
        return cluster_.DamageCheckpoint(JobId(1 + Draw(clients_.size())));
    }
  }

  void StartBidder(int app, BidHabit habit) {
    cluster_.StartBidder(AppOf(app), servers_[Draw(servers_.size())], habit);
  }

  // The process that bids for an app ends and another one comes later, another
  // one comes beside it, or all of them take up another habit.
  void BidderFault() {
    const int app = static_cast<int>(Draw(kApps));
    const auto habit = static_cast<BidHabit>(Draw(kBidHabits));
    switch (Draw(3)) {
      case 0:
        Note("bidder: killed", AppOf(app));
        cluster_.KillBidders(AppOf(app));
        return Later(25, [this, app, habit] { StartBidder(app, habit); });
      case 1:
        Note("bidder: two of an app", AppOf(app));
        return StartBidder(app, habit);
      default:
        Note("bidder: other habit");
        return cluster_.SetBidHabit(habit);
    }
  }

  // Breaks only one accelerator per scenario: with two broken at a time, a job
  // that never ran could not know that the fault is not in its own program.
  // Once the accelerator is mended, its agent restarts.
  void BreakAccelerator() {
    const std::string& name = servers_[Draw(servers_.size())];
    if (std::exchange(broken_, true)) return;
    const std::string uuid = StrCat(name, "-", Draw(6 / servers_.size()));
    Note("accelerator: fails", uuid);
    cluster_.BreakAccelerator(uuid);
    KillWorkersOn(uuid);
    Later(60, [this, name] {
      cluster_.MendAccelerators();
      cluster_.KillAgent(name);
      cluster_.StartAgent(name);
    });
  }

  // Calls `does` for each worker of the jobs to which a fault is no failure of
  // their own (Kind::kRobust).
  template <class Does>
  void ForEachRobustWorker(Does does) {
    if (!cluster_.coordinator_up()) return;
    for (const auto& [id, job] : cluster_.engine().jobs()) {
      if (ClientOf(clients_, job.spec.name).kind != Kind::kRobust) continue;
      for (size_t rank = 0; rank < job.workers.size(); ++rank) {
        does(WorkerId{id, static_cast<int>(rank)}, job.workers[rank]);
      }
    }
  }

  void KillWorkersOn(const std::string& uuid) {
    ForEachRobustWorker([&](const WorkerId& id, const Worker& worker) {
      if (worker.held_epoch == 0) return;
      const Cluster& cluster = cluster_.engine().cluster();
      if (cluster.accelerator(worker.held).info.uuid != uuid) return;
      cluster_.KillWorker(id);
    });
  }

  void HangWorkersOf(const std::string& server) {
    ForEachRobustWorker([&](const WorkerId& id, const Worker& worker) {
      if (worker.server == server) cluster_.HangWorker(id);
    });
  }

  // Does nothing to a job to which the fault would be a failure of its own.
  void WorkerFault(uint64_t kind) {
    if (!cluster_.coordinator_up()) return;
    const JobId job(1 + Draw(clients_.size()));
    const auto found = cluster_.engine().jobs().find(job);
    if (found == cluster_.engine().jobs().end() ||
        found->second.workers.empty() ||  // an element before its turn
        ClientOf(clients_, found->second.spec.name).kind != Kind::kRobust) {
      return;
    }
    const WorkerId worker{job,
                          static_cast<int>(Draw(found->second.workers.size()))};
    const std::string name = StrCat("job ", job.value(), " rank ", worker.rank);
    switch (kind) {
      case 0:
      case 1:
        Note("worker: killed", name);
        return cluster_.KillWorker(worker);
      case 2:
      case 3:
        Note("worker: hangs", name);
        return cluster_.HangWorker(worker);
      default:
        Note("worker: stalled", name);
        cluster_.StallWorker(worker);
        return Later(20, [this] { cluster_.ResumeWorkers(); });
    }
  }

  void CommandOfUser() {
    const JobId job(1 + Draw(clients_.size()));
    const bool cancels = Draw(3) == 0;
    Note(cancels ? "user: cancels" : "user: releases",
         StrCat("job ", job.value()));
    const uint64_t request = cluster_.Command(
        job, cancels ? CommandKind::kCancel : CommandKind::kRelease);
    requests_ = std::max(requests_, request);
    if (request != 0 && cancels) cancelled_.insert(job);
  }

  // ---- the end

  // The faults are over: everything comes back, and every job can end.
  void Heal() {
    if (story_) story_(cluster_.now(), "the faults are over");
    End(/*all=*/true);
    cluster_.SetNetworkFaults(calm_);
    cluster_.SetCheckpointFaults({});
    for (const std::string& name : servers_) {
      cluster_.SetPartitioned(name, false);
      cluster_.ResumeAgent(name);
      cluster_.StartAgent(name);
    }
    cluster_.ResumeCoordinator();
    cluster_.WakeFormerCoordinator();
    // Leaves time for a commit that is still due to fail.
    cluster_.RunUntil(cluster_.now() + 5);
    if (!cluster_.coordinator_up()) cluster_.KillCoordinator();
    cluster_.StartCoordinator();
    cluster_.ResumeWorkers();
    if (traits_.bids) cluster_.HealBidders();
    calm_from_ = cluster_.now() + kLate_s;
  }

  void RunFor(double seconds) {
    cluster_.RunUntil(cluster_.now() + seconds);
    // A failure that was still due may have ended the coordinator.
    if (!cluster_.coordinator_up()) cluster_.StartCoordinator();
  }

  bool Finish() {
    const auto all_accepted = [this] {
      return std::all_of(clients_.begin(), clients_.end(),
                         [](const Client& client) { return client.accepted; });
    };
    while (!all_accepted() && cluster_.now() < kEndWithin_s) {
      SubmitSome();
      RunFor(1);
    }
    bool ended = false;
    while (!ended && cluster_.now() < kEndWithin_s) {
      // Releases jobs that are held for hung launches, as their reason tells
      // users to do once the servers are back.
      for (const JobId id : HungLaunches(cluster_.engine())) {
        requests_ =
            std::max(requests_, cluster_.Command(id, CommandKind::kRelease));
      }
      RunFor(1);
      ended = cluster_.RunUntilAllEnded(
          std::min(kEndWithin_s, cluster_.now() + kSettle_s));
      if (!cluster_.coordinator_up()) cluster_.StartCoordinator();
      ended &= HungLaunches(cluster_.engine()).empty();
      if (!cluster_.violations().empty()) return ended;
    }
    if (!ended) return false;
    const Time settle_by = cluster_.now() + kSettle_s;
    while (!cluster_.Leftovers().empty() && cluster_.now() < settle_by) {
      RunFor(5);
    }
    return true;
  }

  void Judge(bool ended) {
    result_.violations = cluster_.violations();
    CountFaultsOf(cluster_.world(), result_.faults);
    result_.checks = ChecksOf(cluster_);
    if (!result_.violations.empty()) return;
    std::string& why = result_.unfinished;
    if (!ended) StrAppend(&why, "not all jobs have ended; ");
    StrAppend(&why, WrongEnds(clients_, cluster_, cancelled_));
    JudgeLimits();
    if (ended && !cluster_.Leftovers().empty()) {
      StrAppend(&why, "left behind: ", cluster_.Leftovers());
    }
  }

  void JudgeLimits() {
    for (const auto& [id, job] : cluster_.engine().jobs()) {
      if (!IsAtLimit(job)) continue;
      ++result_.checks["limits: reached"];
      const auto found = at_limit_.find(id);
      if (found == at_limit_.end() || found->second == 0) continue;
      ++result_.checks["limits: reached in training"];
      const uint64_t saved = cluster_.world().truth.StepsSaved(id);
      if (saved >= found->second) continue;
      StrAppend(&result_.unfinished, "job ", id.value(), " had done ",
                found->second, " steps at its time_limit, and has saved ",
                saved, "; ");
    }
  }

  static constexpr double kCommit_s = 0.002;

  const uint64_t seed_;
  std::mt19937_64 random_;
  std::function<void(Time, const std::string&)> story_;
  NetworkFaults calm_;
  ClientTraits traits_;  // Options sets it
  VirtualCluster cluster_;
  std::vector<std::string> servers_;
  std::vector<Client> clients_;
  std::set<JobId> cancelled_;
  Time calm_from_ = kNever;
  std::map<JobId, uint64_t> at_limit_;  // steps done then
  // For each lasting fault, its end time and the function that ends it.
  std::vector<std::pair<Time, std::function<void()>>> ends_;
  bool restarting_ = false;
  bool broken_ = false;  // an accelerator is, or was
  uint64_t requests_ = 0;
  ScenarioResult result_;
};

}  // namespace

ScenarioResult RunScenario(uint64_t seed, const ScenarioOptions& options) {
  return Scenario(seed, options).Run();
}

}  // namespace gavel
