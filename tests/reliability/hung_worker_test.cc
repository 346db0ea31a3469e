// A worker in a step that never ends, whose lease thread goes on, and that
// nobody asks to pause.
#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

class HungWorkerTest : public ClusterTest {};

TEST_F(HungWorkerTest, IsToldThenKilledAndItsJobGoesOnFromItsCheckpoint) {
  WriteServers({"here"}, 600, 2);
  StartCoordinator({"--hang-timeout", "4"});
  StartAgent("here");
  Submit("job", {"--steps", "120", "--hang-at", "60"});
  ASSERT_TRUE(Logs("job", " commit "));
  const auto says = [&](const std::vector<std::string>& command,
                        const std::string& text) {
    return Eventually([&] {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--coordinator", endpoint()});
      return Run(arguments).output.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(says({"why", "job"}, "has made no step"));
  EXPECT_TRUE(says({"nodes"}, "hung"));
  EXPECT_TRUE(Logs("job", " take ", 2)) << coordinator().errors();
  EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  ExpectEachStepOnce("job", 120);
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
