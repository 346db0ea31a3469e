// Safety and liveness under faults, by seed: messages lost, doubled, delayed
// and overtaking, workers, agents and the coordinator killed, servers cut off.
// Whatever happens, no invariant breaks, no two processes use one accelerator,
// and every job ends.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "core/text.h"
#include "gtest/gtest.h"
#include "simulator/virtual_cluster.h"

namespace gavel {
namespace {

constexpr int kServers = 3;
constexpr int kJobs = 8;
constexpr Time kFaultsUntil_s = 300;
constexpr Time kLimit_s = 6000;

// Mostly the cheap one: what matters here is the engine.
const std::vector<std::string>& Policies() {
  static const auto* const policies =
      new std::vector<std::string>{"fifo", "max_min_fairness_perf",
                                   "fifo", "max_min_fairness_packed",
                                   "fifo", "gandiva",
                                   "fifo"};
  return *policies;
}

// Jobs go well together, at either scale factor.
std::shared_ptr<const ThroughputTable> Throughputs() {
  static const auto* const table =
      new std::shared_ptr<const ThroughputTable>([] {
        const std::string rows = [] {
          std::string text;
          for (const int scale : {1, 2}) {
            StrAppend(&text, scale == 1 ? "" : ", ", "\"('app', ", scale,
                      ")\": {\"null\": 2, \"('app', ", scale,
                      ")\": [1.5, 1.5]}");
          }
          return text;
        }();
        auto parsed = ThroughputTable::Parse(
            StrCat("{\"fast\": {", rows, "}, \"slow\": {", rows, "}}"),
            "table");
        EXPECT_TRUE(parsed.ok()) << parsed.status().message();
        return std::make_shared<const ThroughputTable>(*std::move(parsed));
      }());
  return *table;
}

VirtualClusterOptions Options(uint64_t seed) {
  VirtualClusterOptions options;
  options.engine.round_duration_s = 10;
  options.engine.lease_duration_s = 4;
  options.engine.plan_lead_s = 1;
  options.engine.pause_grace_s = 5;
  options.engine.stop_grace_s = 2;
  options.engine.launch_timeout_s = 20;
  options.policy = Policies()[seed % Policies().size()];
  options.engine.mechanism =
      seed % 8 < 4 ? MechanismKind::kGavel : MechanismKind::kMoveAware;
  options.engine.throughputs = Throughputs();
  options.engine.gang_timeout_s = 10;
  options.engine.keep_absence_s_max = 25;
  if (seed % 3 == 0) options.engine.park_absence_s_max = 35;
  options.network.drop = 0.02 * static_cast<double>(seed % 5);
  options.network.duplicate = 0.02 * static_cast<double>(seed % 3);
  options.network.delay_s_max = 0.0005 + 0.05 * static_cast<double>(seed % 4);
  options.seed = seed;
  return options;
}

class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed), cluster_(Options(seed)) {
    cluster_.set_observer([this](Time, const Action& a) { Count(a); });
    for (int i = 0; i < kServers; ++i) {
      std::vector<AcceleratorInfo> accelerators(2);
      for (int k = 0; k < 2; ++k) {
        accelerators[static_cast<size_t>(k)].type = k == 0 ? "fast" : "slow";
        accelerators[static_cast<size_t>(k)].uuid = StrCat(Name(i), "-", k);
        // Room for two and a half jobs, contexts included; or nobody says.
        if (seed % 2 == 0) {
          accelerators[static_cast<size_t>(k)].memory_bytes = 250;
          accelerators[static_cast<size_t>(k)].context_bytes = 10;
        }
      }
      cluster_.AddServer(Name(i), accelerators);
    }
    for (int i = 0; i < kJobs; ++i) {
      JobSpec spec;
      spec.name = StrCat("job", i);
      spec.argv = {"./train"};
      spec.app = "app";
      spec.scale_factor = Draw(4) == 0 ? 2 : 1;
      spec.retries_max = 1000;  // faults are no failures of the job's own
      VirtualTraining training;
      training.steps_total = 20 + Draw(60);
      training.steps_per_s = {{"fast", 2.0}, {"slow", 1.0}};
      training.state_bytes = 60 + Draw(50);
      training.resume_kept_s = 0.02;
      training.resume_parked_s = 0.1;
      training.keep_s = 0.01;
      training.gang_failures = static_cast<int>(Draw(3));
      cluster_.Submit(spec, training);
      cluster_.RunUntil(cluster_.now() + static_cast<double>(Draw(3)));
    }
  }

  void Run() {
    while (cluster_.now() < kFaultsUntil_s) {
      cluster_.RunUntil(cluster_.now() + 1 + static_cast<double>(Draw(12)));
      Fault();
    }
    // The faults are over: everything comes back, and every job can end.
    for (int i = 0; i < kServers; ++i) {
      cluster_.SetPartitioned(Name(i), false);
      cluster_.StartAgent(Name(i));
    }
    cluster_.StartCoordinator();
    all_ended_ = cluster_.RunUntilAllEnded(kLimit_s);
  }

  bool all_ended() const { return all_ended_; }
  // Pauses that were asked for, by how far they go.
  const std::map<PauseTier, int>& pauses() const { return pauses_; }
  const VirtualCluster& cluster() const { return cluster_; }

 private:
  static std::string Name(int server) { return StrCat("server", server); }
  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Fault() {
    const std::string server = Name(static_cast<int>(Draw(kServers)));
    switch (Draw(8)) {
      case 0:
        return cluster_.KillCoordinator();
      case 1:
        return cluster_.KillAgent(server);
      case 2:
        return cluster_.StartAgent(server);
      case 3:
        return cluster_.SetPartitioned(server, true);
      case 4:
        return cluster_.SetPartitioned(server, false);
      case 5:
        return cluster_.KillWorker({JobId(1 + Draw(kJobs)), 0});
      default:
        return cluster_.StartCoordinator();
    }
  }

  void Count(const Action& action) {
    const auto* send = std::get_if<action::SendToWorker>(&action);
    if (send == nullptr) return;
    const auto* pause = std::get_if<PauseRequest>(&send->message);
    if (pause != nullptr) ++pauses_[pause->tier];
  }

  std::mt19937_64 random_;
  std::map<PauseTier, int> pauses_;
  VirtualCluster cluster_;
  bool all_ended_ = false;
};

std::string WhereJobsStand(const VirtualCluster& cluster) {
  std::string text;
  if (!cluster.coordinator_up()) return "no coordinator";
  for (const auto& [id, job] : cluster.engine().jobs()) {
    StrAppend(&text, "\njob ", id.value(), ": ", JobStateName(job.state), ", ",
              RenderReason(cluster.engine().Why(id, cluster.now())));
    for (const Worker& worker : job.workers) {
      StrAppend(&text, "\n  #", worker.incarnation, " on ", worker.server,
                ": process ", static_cast<int>(worker.process), ", holds ",
                worker.held_epoch, " of ", job.epoch,
                worker.leaving ? ", leaving" : "");
    }
  }
  return text;
}

TEST(Faults, NeverBreakAnInvariantAndEveryJobEnds) {
  constexpr uint64_t kSeeds = 150;
  std::map<PauseTier, int> pauses;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Chaos chaos(seed);
    chaos.Run();
    ASSERT_EQ(chaos.cluster().halted(), "") << "seed " << seed;
    for (const std::string& broken : chaos.cluster().violations()) {
      ADD_FAILURE() << "seed " << seed << ": " << broken;
    }
    ASSERT_FALSE(testing::Test::HasFailure());
    ASSERT_TRUE(chaos.all_ended())
        << "seed " << seed << WhereJobsStand(chaos.cluster());
    for (const auto& [tier, count] : chaos.pauses()) pauses[tier] += count;
  }
  // Or it would have shown nothing of them.
  for (const PauseTier tier :
       {PauseTier::kKeep, PauseTier::kPark, PauseTier::kEvict}) {
    EXPECT_GT(pauses[tier], 100) << static_cast<int>(tier);
  }
}

TEST(Faults, TheSameSeedGivesTheSameRun) {
  const auto run = [] {
    Chaos chaos(7);
    chaos.Run();
    return std::pair(chaos.cluster().now(),
                     chaos.cluster().engine().position().seq);
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace gavel
