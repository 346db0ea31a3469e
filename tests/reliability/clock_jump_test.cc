// The wall clock of coordinator and agent jumps by days, forwards and back, and
// stands still. Leases, rounds and time-outs use monotonic clocks and are not
// affected. The drift and the offset of those are tested in the simulation. The
// test needs libfaketime and is skipped without it.
#include <cstdlib>
#include <filesystem>

#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

constexpr char kLibrary[] =
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

class ClockJumpTest : public ClusterTest {
 protected:
  // Fakes the wall clock of all processes that are started from here on.
  void FakeClocks() {
    setenv("FAKETIME_TIMESTAMP_FILE", Path("now").c_str(), 1);
    setenv("FAKETIME_NO_CACHE", "1", 1);
    setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    setenv("LD_PRELOAD", kLibrary, 1);
  }
  ~ClockJumpTest() override {
    for (const char* name :
         {"LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_NO_CACHE",
          "FAKETIME_DONT_FAKE_MONOTONIC"}) {
      unsetenv(name);
    }
  }
};

TEST_F(ClockJumpTest, NothingIsLostAndNoLeaseEnds) {
  if (!std::filesystem::exists(kLibrary)) {
    GTEST_SKIP() << "libfaketime is not installed (apt-get install faketime)";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own library has to be the first";
#endif
  Write("now", "+0");
  WriteServers({"here"}, 3, 1.5);
  FakeClocks();
  StartCoordinator();
  StartAgent("here");
  unsetenv("LD_PRELOAD");
  Submit("first", {"--steps", "600"});
  Submit("second", {"--steps", "600"});
  ASSERT_TRUE(Logs("first", " commit "));
  for (const char* offset :
       {"+40d", "-40d", "+1h", "@2001-01-01 00:00:00", "-3s", "+9999d", "+0"}) {
    Write("now", offset);
    Eventually([] { return false; }, 1);
  }
  EXPECT_TRUE(ReachesState(endpoint(), "first", "CD"));
  EXPECT_TRUE(ReachesState(endpoint(), "second", "CD"));
  // Jobs paused only for rounds: no process was ended or taken as lost.
  for (const char* job : {"first", "second"}) {
    ExpectEachStepOnce(job, 600);
    EXPECT_EQ(Count(WorkerLog(job), " start "), 1) << WorkerLog(job);
  }
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
