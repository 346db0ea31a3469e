// The auctions of `themis` under SIGKILL, with real processes: two apps of two
// jobs each share two CPU slots, and a program bids for one of the apps
// (docs/apps.md). While the coordinator waits for a bid, and once more while it
// waits for a division, the coordinator, the agent or the program itself is
// killed. The auction is held again, no two jobs have one slot, the journal has
// no two leases of a slot at a time, and all jobs end with all their steps.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "core/text.h"
#include "tests/reliability/worker_log.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kSteps = 1000;
constexpr double kJobPatience_s = 100;

class AuctionKills : public GavelClusterTest {
 protected:
  void SetUp() override {
    WriteCluster(2, 2, 1);
    ASSERT_NO_FATAL_FAILURE(StartThemis());
    agent_ = StartAgent();
    for (const char* app : {"search", "other"}) {
      for (int i = 1; i <= 2; ++i) SubmitTrial(StrCat(app, "-", i), app);
    }
    StartBidder();
    ASSERT_TRUE(BidderIs("itself")) << bidder_->errors();
  }

  void StartThemis() { StartCoordinator({"--policy", "themis"}); }
  void SubmitTrial(const std::string& name, const std::string& app) {
    jobs_.push_back(name);
    Submit(WriteJob(name,
                    {"--steps", StrCat(kSteps), "--step-ms", "10", "--log",
                     Path(name + ".log")},
                    StrCat("app = \"", app, "\"\nsteps_total = ", kSteps,
                           "\nretries_max = 100\n[throughputs]\ncpu = 90\n")));
  }
  void StartBidder() {
    bidder_ = std::make_unique<Process>(
        std::vector<std::string>{GAVEL_AUCTION_BIDDER, "search", endpoint_,
                                 Path("bids"), Path("victim")},
        Path(StrCat("bidder.", ++bidders_)));
  }

  int Bids() const { return Count(ReadText(Path("bids")), "bid\n"); }
  std::string BidderShown() {
    for (const nlohmann::json& app : Json({"apps"})) {
      if (app["app"] == "search") return app.value("bidder", "");
    }
    return "";
  }
  bool BidderIs(const std::string& text) {
    return Eventually(
        [&] { return BidderShown().find(text) != std::string::npos; });
  }
  // Has the process killed before the program's next answer, a "bid" or a
  // "divide", and waits until it is dead.
  void KillBefore(const std::string& answer, Process& victim,
                  bool itself = false) {
    Write("victim.new", StrCat(itself ? 0 : victim.pid(), " ", answer));
    std::filesystem::rename(Path("victim.new"), Path("victim"));
    ASSERT_EQ(victim.Wait(), -SIGKILL) << "no auction came to a " << answer;
    EXPECT_FALSE(std::filesystem::exists(Path("victim")));
  }
  bool BidsAgain() {
    const int bids = Bids();
    return Eventually([&] { return Bids() > bids; });
  }

  // By the history in the journal: each lease of a slot begins when the one
  // before it has ended. The row of a process that was ended before it spoke is
  // no lease: a program starts beside the job whose turn it is.
  void ExpectNoLeaseTwice() {
    const Ended history =
        Run({"history", "--show", "leases", "--json", "--file", state()});
    ASSERT_EQ(history.exit_code, 0) << history.errors;
    // In the order in which they began.
    const auto leases = nlohmann::json::parse(history.output);
    EXPECT_GE(leases.size(), jobs_.size());
    std::map<std::string, nlohmann::json> last;  // by slot
    for (const nlohmann::json& lease : leases) {
      ASSERT_GT(lease["to_s"], 0) << lease;
      if (lease["ended"] == "never spoke") continue;
      nlohmann::json& before = last[lease["uuid"]];
      if (before.is_object()) {
        EXPECT_GE(lease["from_s"], before["to_s"]) << before << lease;
      }
      before = lease;
    }
  }

  void ExpectAllEndWithNothingLostOrShared() {
    std::map<std::string, std::string> logs;
    for (const std::string& name : jobs_) {
      const auto ended = [&] {
        const nlohmann::json row = QueueRow(endpoint_, name);
        return row.is_object() && row["state"] == "CD";
      };
      EXPECT_TRUE(Eventually(ended, kJobPatience_s))
          << Do({"why", name}).output;
      ExpectEachStepOnce(name, kSteps);
      logs[name] = ReadText(Path(name + ".log"));
    }
    const Findings found = CheckWorkerLogs(logs);
    EXPECT_EQ(found.lost_steps, 0);
    EXPECT_EQ(found.shared, 0);
    EXPECT_THAT(found.details, IsEmpty());
    // The app has ended, so its program has nothing left to bid for.
    EXPECT_EQ(bidder_->Wait(), 0) << bidder_->errors();
  }
  // No lease is there twice, and the bids and divisions in the journal lead to
  // the decisions that are there.
  void ExpectSoundJournal() {
    coordinator_->Signal(SIGTERM);
    EXPECT_EQ(coordinator_->Wait(), 0) << coordinator_->errors();
    ExpectNoLeaseTwice();
    const Ended replay = Run({"replay", state()});
    EXPECT_EQ(replay.exit_code, 0) << replay.errors;
    EXPECT_THAT(replay.output, HasSubstr(", 0 otherwise today"));
  }

  std::vector<std::string> jobs_;
  std::unique_ptr<Process> bidder_;
  int bidders_ = 0;
};

TEST_F(AuctionKills, ACoordinatorThatDiesInAnAuctionHoldsItAgain) {
  for (const char* answer : {"bid", "divide"}) {
    SCOPED_TRACE(answer);
    ASSERT_NO_FATAL_FAILURE(KillBefore(answer, *coordinator_));
    const int bids = Bids();
    ASSERT_NO_FATAL_FAILURE(StartThemis());
    // The program registers again by itself.
    EXPECT_TRUE(Eventually([&] { return Bids() > bids; })) << bidder_->errors();
    EXPECT_TRUE(BidderIs("itself")) << BidderShown();
  }
  ExpectAllEndWithNothingLostOrShared();
  ExpectSoundJournal();
}

TEST_F(AuctionKills, AnAgentThatDiesInAnAuctionComesBackToTheNextOne) {
  for (const char* answer : {"bid", "divide"}) {
    SCOPED_TRACE(answer);
    ASSERT_NO_FATAL_FAILURE(KillBefore(answer, *agent_));
    agent_ = StartAgent();
    EXPECT_TRUE(BidsAgain()) << bidder_->errors();
  }
  ExpectAllEndWithNothingLostOrShared();
  ExpectSoundJournal();
}

TEST_F(AuctionKills, AProgramThatDiesWhileItBidsIsStoodInForUntilItIsBack) {
  for (const char* answer : {"bid", "divide"}) {
    SCOPED_TRACE(answer);
    ASSERT_NO_FATAL_FAILURE(KillBefore(answer, *bidder_, /*itself=*/true));
    // `gavel apps` shows why the coordinator acts in its place: no bid or no
    // division.
    EXPECT_TRUE(BidderIs("came in time")) << BidderShown();
    StartBidder();
    EXPECT_TRUE(BidderIs("itself")) << bidder_->errors();
    EXPECT_TRUE(BidsAgain()) << bidder_->errors();
  }
  ExpectAllEndWithNothingLostOrShared();
  ExpectSoundJournal();
}

}  // namespace
}  // namespace gavel::testing
