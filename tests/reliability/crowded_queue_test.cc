// Thousands of jobs wait, and many people look at the queue: nobody's renewals
// wait for that. bench_queue has the figures; the limits here are wide, for
// other things run on the machine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/text.h"
#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

constexpr int kViewers = 20;
constexpr int kUnansweredMax = 64;
constexpr double kWatch_s = 8;
constexpr double kFirstPage_s_max = 0.5;
constexpr double kListing_s_max = 4;
constexpr double kRenewal_s_max = 0.25;  // of 99 in 100

double Now() {
  const std::chrono::duration<double> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

int Jobs() {
  const char* const jobs = std::getenv("GAVEL_CROWDED_QUEUE_JOBS");
  return jobs == nullptr ? 10'000 : std::atoi(jobs);
}

struct Listing {
  double first_s = 0;
  double all_s = 0;
  int rows = 0;
};

Listing List(Tenant& viewer) {
  Listing listing;
  const double asked = Now();
  QueryRequest request;
  request.kind = QueryKind::kQueue;
  do {
    const auto page = viewer.Ask<QueryReply>(request);
    EXPECT_EQ(page.error, "");
    if (listing.first_s == 0) listing.first_s = Now() - asked;
    listing.rows += Count(page.json, "\"state\":");
    request.cursor = page.next_cursor;
  } while (request.cursor != 0);
  listing.all_s = Now() - asked;
  return listing;
}

class CrowdedQueueTest : public ClusterTest {
 protected:
  static std::string Viewer(int number) { return StrCat("viewer-", number); }
  CurveClient KeysOf(const std::string& user) const {
    return keys().Keys(keys().KeyFile(user));
  }
  void SetUp() override {
    UseKeys({"here"});
    for (int i = 0; i < kViewers; ++i) keys().AddUser(Viewer(i));
    WriteCluster(/*slots=*/2, 600, 2);
    StartCoordinator({"--quota-jobs", "0", "--quota-submissions", "0",
                      "--quota-requests", "0"});
    StartAgent("here");
    Submit("victim", {"--steps", "1000000", "--step-ms", "20"});
    ASSERT_TRUE(Logs("victim", " take "));
    const Ended submitted =
        Run({"submit", "--coordinator", endpoint(),
             WriteCommand("spoken", {"/bin/sleep", "300"})});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
    voice_ = VoiceOf("here", {JobId(2), 0, 1});
    ASSERT_NE(voice_, nullptr);
    ASSERT_TRUE(voice_->Hello());
    const auto grant = voice_->AskForLease(0, false);
    ASSERT_TRUE(grant.has_value());
    epoch_ = grant->epoch;
  }
  void SubmitMany(int jobs) {
    Tenant alice(endpoint(), KeysOf("alice"));
    int sent = 0;
    for (int answered = 0; answered < jobs; ++answered) {
      for (; sent < jobs && sent - answered < kUnansweredMax; ++sent) {
        alice.Send(SubmitRequest{0, "job.toml",
                                 StrCat("name = \"job-", sent,
                                        "\"\ncommand = [\"./train\"]\n"
                                        "[throughputs]\ncpu = 10\n"),
                                 "/jobs"});
      }
      const auto reply = alice.Receive<SubmitReply>(30);
      ASSERT_TRUE(reply.has_value());
      ASSERT_EQ(reply->error, "");
    }
  }
  // Of 99 in 100, while it lasts.
  double Renewal_s(double seconds) {
    std::vector<double> waits;
    const double end = Now() + seconds;
    while (Now() < end) {
      const double asked = Now();
      EXPECT_TRUE(voice_->AskForLease(epoch_, /*holding=*/true).has_value());
      waits.push_back(Now() - asked);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::ranges::sort(waits);
    return waits[waits.size() * 99 / 100];
  }

  std::unique_ptr<WorkerVoice> voice_;
  uint64_t epoch_ = 0;
};

TEST_F(CrowdedQueueTest, ViewersOfThousandsOfJobsKeepNoRenewalWaiting) {
  const int jobs = Jobs();
  const double began = Now();
  SubmitMany(jobs);
  const double submitted_s = Now() - began;
  Listing best{1e9, 1e9, 0};
  {
    Tenant alone(endpoint(), KeysOf("alice"));
    for (int i = 0; i < 3; ++i) {
      const Listing listing = List(alone);
      best = {std::min(best.first_s, listing.first_s),
              std::min(best.all_s, listing.all_s), listing.rows};
    }
  }
  EXPECT_EQ(best.rows, jobs + 2);
  std::atomic<bool> stopping{false};
  std::atomic<int> listings{0};
  std::vector<std::thread> viewers;
  for (int i = 0; i < kViewers; ++i) {
    viewers.emplace_back([&, i] {
      Tenant viewer(endpoint(), KeysOf(Viewer(i)));
      while (!stopping) {
        List(viewer);
        ++listings;
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    });
  }
  const double renewal_s = Renewal_s(kWatch_s);
  stopping = true;
  for (std::thread& viewer : viewers) viewer.join();
  std::printf(
      "%d submissions in %.1f s; first page %.0f ms, all %.0f ms; beside %d "
      "viewers (%d listings) 99 of 100 renewals within %.1f ms\n",
      jobs, submitted_s, 1e3 * best.first_s, 1e3 * best.all_s, kViewers,
      listings.load(), 1e3 * renewal_s);
  const std::string log = WorkerLog("victim");
  EXPECT_EQ(Count(log, " take "), 1) << log;
  EXPECT_EQ(Count(log, " give "), 0) << log;
  EXPECT_GT(listings, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best.first_s, kFirstPage_s_max);
  EXPECT_LT(best.all_s, kListing_s_max);
  EXPECT_LT(renewal_s, kRenewal_s_max);
#endif
}

}  // namespace
}  // namespace gavel::testing
