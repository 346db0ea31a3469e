// A coordinator whose journal is gone counts jobs from 1 again, on servers that
// still have the output of those before.
#include <filesystem>

#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NewJournalTest : public ClusterTest {
 protected:
  void SetUp() override {
    UseKeys({"here"});
    keys().AddUser("mallory");
    WriteServers({"here"}, 600, 2);
  }
  Ended RunAs(const std::string& user, std::vector<std::string> arguments) {
    Append({"--coordinator", endpoint(), "--key", keys().KeyFile(user)},
           &arguments);
    return Run(arguments);
  }
  void Echo(const std::string& user, const std::string& text) {
    const std::string file = WriteCommand("job", {"/bin/echo", text});
    const Ended submitted = RunAs(user, {"submit", file});
    EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
    EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  }
};

TEST_F(NewJournalTest, OutputIsNotShownToTheNextOwnerOfAJobsNumber) {
  StartCoordinator();
  Process& agent = StartAgent("here");
  Echo("alice", "secret-of-alice");
  EXPECT_THAT(RunAs("alice", {"logs", "1"}).output,
              HasSubstr("secret-of-alice"));
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.Wait(), 0);
  coordinator().Signal(SIGTERM);
  EXPECT_EQ(coordinator().Wait(), 0);
  std::filesystem::remove_all(state());

  StartCoordinator();
  StartAgent("here");
  Echo("mallory", "of-mallory");
  const Ended logs = RunAs("mallory", {"logs", "1"});
  EXPECT_THAT(logs.output, HasSubstr("of-mallory"));
  EXPECT_THAT(logs.output, Not(HasSubstr("secret-of-alice")));
}

}  // namespace
}  // namespace gavel::testing
