// Runs gavel::AppScheduler with a coordinator and an agent that are real
// processes.
#include "gavel/app_scheduler.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "core/text.h"
#include "tests/support/eventually.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

// Bids for one accelerator of the first type, and gives it to one job.
class OneJobFirst : public AppScheduler {
 public:
  double Rho(const Offer&) override { return 2; }
  RhoTable Bid(const Offer& offer) override {
    ++bids;
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms.load()));
    RhoTable table;
    table.rho_nothing = 4;
    table.rows.push_back({{wanted.load()}, 2});
    const std::lock_guard lock(mutex_);
    offer_ = offer;
    return table;
  }
  std::vector<Place> Divide(const Offer&,
                            const std::vector<int>& won) override {
    return won.at(0) > 0 ? std::vector<Place>{{favourite.load(), 0}}
                         : std::vector<Place>();
  }
  Offer offer() const {
    const std::lock_guard lock(mutex_);
    return offer_;
  }

  std::atomic<int> bids{0};
  std::atomic<int> delay_ms{0};
  std::atomic<int> wanted{1};
  std::atomic<uint64_t> favourite{1};

 private:
  mutable std::mutex mutex_;
  Offer offer_;
};

class AppSchedulerTest : public GavelClusterTest {
 protected:
  ~AppSchedulerTest() override { Stop(); }
  void StartCluster() {
    WriteCluster(1, 2, 1);
    ASSERT_NO_FATAL_FAILURE(StartCoordinator({"--policy", "themis"}));
    agent_ = StartAgent();
  }
  void SubmitTrial(const std::string& name) {
    Submit(WriteJob(name, {"--steps", "100000", "--step-ms", "5"},
                    "app = \"search\"\nsteps_total = 100000\n"
                    "[throughputs]\ncpu = 100\n"));
  }
  AppSchedulerOptions Options() {
    AppSchedulerOptions options;
    options.app = "search";
    options.coordinator = endpoint_;
    options.stop = &stop_;
    options.on_notice = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      notices_ += line + "\n";
    };
    return options;
  }
  void Serve() {
    thread_ = std::thread([this, options = Options()] {
      status_ = RunAppScheduler(scheduler_, options);
    });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::string Notices() const {
    const std::lock_guard lock(mutex_);
    return notices_;
  }
  std::string BidderShown() {
    const nlohmann::json apps = Json({"apps"});
    return apps.size() == 1 ? apps[0].value("bidder", "") : "";
  }
  bool IsShown(const std::string& part) {
    return Eventually(
        [&] { return BidderShown().find(part) != std::string::npos; });
  }

  OneJobFirst scheduler_;
  std::atomic<bool> stop_{false};
  Status status_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::string notices_;
};

// By the command, for optimisers that are programs of users.
TEST_F(AppSchedulerTest, AGoalIsShownUntilTheAppEnds) {
  StartCluster();
  EXPECT_THAT(Do({"goal", "search"}).errors,
              HasSubstr("you have no app \"search\" now"));
  SubmitTrial("one");
  ASSERT_TRUE(ReachesState(endpoint_, "one", "R"));
  const Ended set =
      Do({"goal", "search", "--steps-to-come", "360000", "--longest-to-come",
          "1000", "--steps-total", "460000", "--longest-total", "100000"});
  ASSERT_EQ(set.exit_code, 0) << set.errors;
  EXPECT_THAT(set.output, HasSubstr("App search goes on"));
  const auto to_come_s = [&] {
    const nlohmann::json apps = Json({"apps"});
    return apps.size() == 1 ? apps[0].value("to_come_accelerator_s", -1.0) : -1;
  };
  EXPECT_TRUE(Eventually([&] { return to_come_s() > 0; }));
  EXPECT_THAT(Do({"why", "one"}).output,
              HasSubstr("work of its app in jobs that are to come: "));
  EXPECT_EQ(Do({"goal", "search", "--ended"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return to_come_s() == 0; }));
}

TEST_F(AppSchedulerTest, BidsDividesAndOutlivesTheCoordinator) {
  StartCluster();
  SubmitTrial("one");
  SubmitTrial("two");
  ASSERT_TRUE(ReachesState(endpoint_, "one", "R"));
  scheduler_.favourite = 2;
  Serve();
  // The default gives the accelerator to the first job.
  ASSERT_TRUE(ReachesState(endpoint_, "two", "R"));
  EXPECT_EQ(BidderShown(), "itself");
  EXPECT_THAT(Do({"why", "two"}).output, HasSubstr("by its own bid"));
  const AppScheduler::Offer offer = scheduler_.offer();
  ASSERT_THAT(offer.jobs, SizeIs(2));
  EXPECT_EQ(offer.jobs[1].id, 2u);
  EXPECT_THAT(offer.accelerators, ElementsAre(1));

  KillCoordinator();
  ASSERT_NO_FATAL_FAILURE(StartCoordinator({"--policy", "themis"}));
  const int bids = scheduler_.bids;
  scheduler_.favourite = 1;
  ASSERT_TRUE(Eventually([&] { return scheduler_.bids > bids; }));
  ASSERT_TRUE(ReachesState(endpoint_, "one", "R"));

  // Its last job ends, and so does the app.
  EXPECT_EQ(Do({"cancel", "one", "two"}).exit_code, 0);
  thread_.join();
  EXPECT_TRUE(status_.ok()) << status_.message();
}

TEST_F(AppSchedulerTest, IsToldWhyTheCoordinatorActsForIt) {
  StartCluster();
  SubmitTrial("one");
  scheduler_.wanted = 5;
  Serve();
  ASSERT_TRUE(IsShown("row 0: it asks for 5"));
  EXPECT_THAT(Notices(), HasSubstr("its bid is not used: row 0: it asks for"));
  EXPECT_TRUE(ReachesState(endpoint_, "one", "R"));
  scheduler_.wanted = 1;
  ASSERT_TRUE(IsShown("itself"));
  scheduler_.delay_ms = 1500;
  ASSERT_TRUE(IsShown("no bid came in time"));
  scheduler_.delay_ms = 0;
  ASSERT_TRUE(IsShown("itself"));
  // A process that is gone delays nothing for long.
  Stop();
  EXPECT_TRUE(status_.ok()) << status_.message();
  ASSERT_TRUE(IsShown("no bid came in time"));
  EXPECT_THAT(Do({"why", "one"}).output,
              HasSubstr("the coordinator acted for it, because no bid"));
}

TEST_F(AppSchedulerTest, BadOptionsAreRefused) {
  StartCluster();
  EXPECT_EQ(RunAppScheduler(scheduler_, Options()).code(),
            StatusCode::kNotFound);
  AppSchedulerOptions options = Options();
  options.app.clear();
  EXPECT_EQ(RunAppScheduler(scheduler_, options).code(),
            StatusCode::kInvalidArgument);
  options = Options();
  options.key_file = "/dev/null";
  EXPECT_EQ(RunAppScheduler(scheduler_, options).code(),
            StatusCode::kInvalidArgument);
  options = Options();
  options.coordinator = "no endpoint";
  EXPECT_EQ(RunAppScheduler(scheduler_, options).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(AppSchedulerTest, OnlyTheOwnerOfAnAppBidsForIt) {
  UseKeys({"here"});
  keys().AddUser("eve");
  StartCluster();
  SubmitTrial("one");
  const std::string owner = Json({"queue"})[0]["owner"];
  AppSchedulerOptions options = Options();
  const auto use_key = [&](const std::string& user) {
    const std::string file = keys().KeyFile(user);
    options.key_file = file;
    options.coordinator_key = keys().Keys(file).server_public_key;
  };
  use_key("eve");
  options.owner = owner;
  const Status refused = RunAppScheduler(scheduler_, options);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("is not yours"));
  options.owner.clear();  // an app of its own of that name
  EXPECT_EQ(RunAppScheduler(scheduler_, options).code(), StatusCode::kNotFound);
  use_key(owner);
  thread_ =
      std::thread([&] { status_ = RunAppScheduler(scheduler_, options); });
  EXPECT_TRUE(IsShown("itself"));
  EXPECT_TRUE(Eventually([&] { return scheduler_.bids > 0; }));
  Stop();
}

TEST_F(AppSchedulerTest, AnExceptionIsAStatus) {
  class Thrower : public OneJobFirst {
    RhoTable Bid(const Offer&) override { throw std::string("no rho"); }
  };
  StartCluster();
  SubmitTrial("one");
  Thrower thrower;
  const Status status = RunAppScheduler(thrower, Options());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("app search threw"));
}

}  // namespace
}  // namespace gavel::testing
