// The program of [notify] gets the notices, with real processes.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class NotifyTest : public GavelClusterTest {
 protected:
  // Starts a coordinator whose program is a script of this body, and an agent.
  void StartTelling(const std::string& body,
                    const std::string& more_keys = "") {
    const std::string script = Write("tell", "#!/bin/sh\n" + body + "\n");
    chmod(script.c_str(), 0755);
    WriteCluster(1, 30, 20);
    std::ofstream(Path("cluster.toml"), std::ios::app)
        << "[notify]\ncommand = [\"" << script << "\"]\n"
        << more_keys;
    StartCoordinator({"--policy", "fifo"});
    agent_ = StartAgent();
    ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  }
  std::string Out() const { return Path("told"); }

  // "finished a", and "node_lost " of no job.
  std::vector<std::string> Told() const {
    std::vector<std::string> told;
    std::ifstream in(Out());
    for (std::string line; std::getline(in, line);) {
      const json notice = json::parse(line, nullptr, false);
      if (notice.is_discarded()) continue;
      told.push_back(notice.value("event", "") + " " +
                     notice.value("name", ""));
    }
    return told;
  }
  bool Tells(const std::string& notice) {
    return Eventually([&] { return std::ranges::count(Told(), notice) > 0; });
  }
  bool StatusHas(const std::string& text) {
    return Eventually(
        [&] { return Do({"status"}).output.find(text) != std::string::npos; });
  }
};

TEST_F(NotifyTest, TheProgramIsToldOfJobsAndServers) {
  StartTelling("cat >> " + Out(),
               "events = [\"started\", \"ended\", \"node_lost\"]\n");
  Submit(WriteJob("a", {"--steps", "20"}));
  Submit(WriteCommand("b", {"/nothing/there"}));
  Submit(WriteJob("c", {"--steps", "20"}, "notify = [\"none\"]\n"));
  Submit(WriteJob("d", {"--steps", "20"}));
  ASSERT_TRUE(Tells("finished d"));
  const std::vector<std::string> told = Told();
  const auto of = [&](const std::string& name) {
    std::vector<std::string> events;
    for (const std::string& one : told) {
      if (one.ends_with(" " + name)) events.push_back(one);
    }
    return events;
  };
  EXPECT_THAT(of("a"), ElementsAre("started a", "finished a"));
  EXPECT_THAT(of("b"), ElementsAre("failed b"));
  EXPECT_THAT(of("c"), IsEmpty());
  EXPECT_THAT(of("d"), ElementsAre("started d", "finished d"));
  agent_->Signal(SIGKILL);
  EXPECT_TRUE(Tells("node_lost "));
}

TEST_F(NotifyTest, AKilledCoordinatorTellsTheRestAfterItsRestart) {
  const std::string flag = Path("works");
  StartTelling("test -e " + flag +
               " || { echo no mail server >&2; exit 3; }\ncat >> " + Out());
  Submit(WriteJob("a", {"--steps", "20"}));
  ASSERT_TRUE(StatusHas("TROUBLE: notify command "));
  EXPECT_TRUE(StatusHas("exit code 3: no mail server (try 1 of 5"));
  KillCoordinator();
  EXPECT_THAT(coordinator_->errors(), HasSubstr("exit code 3: no mail server"));
  EXPECT_THAT(Told(), IsEmpty());
  Write("works", "");
  StartCoordinator({"--policy", "fifo"});
  ASSERT_TRUE(Tells("finished a"));
  EXPECT_THAT(Told(), ElementsAre("finished a"));
  EXPECT_THAT(Do({"status"}).output, Not(HasSubstr("notify")));
  KillCoordinator();
  StartCoordinator({"--policy", "fifo"});
  Submit(WriteJob("b", {"--steps", "20"}));
  ASSERT_TRUE(Tells("finished b"));
  EXPECT_THAT(Told(), ElementsAre("finished a", "finished b"));
}

TEST_F(NotifyTest, ATestTellsWhatBecameOfIt) {
  StartTelling("test -e " + Path("broken") +
               " && { echo no route >&2; exit 4; }\ncat >> " + Out());
  const Ended fine = Do({"notify", "--test"});
  EXPECT_EQ(fine.exit_code, 0) << fine.errors;
  EXPECT_THAT(fine.output, HasSubstr("Delivered a test notice"));
  EXPECT_THAT(Told(), ElementsAre("test "));
  Write("broken", "");
  const Ended failed = Do({"notify", "--test"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.errors, HasSubstr("exit code 4: no route"));
  EXPECT_THAT(ReadText(state() + "/audit.log"), HasSubstr("notify"));
}

TEST_F(NotifyTest, WithoutAProgramATestSaysWhereToNameOne) {
  StartCluster(1);
  const Ended refused = Do({"notify", "--test"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("[notify]"));
}

TEST_F(NotifyTest, AProgramThatIsNotThereIsShownAndStopsNothing) {
  WriteCluster(1, 30, 20);
  std::ofstream(Path("cluster.toml"), std::ios::app)
      << "[notify]\ncommand = [\"" << Path("missing") << "\"]\n";
  StartCoordinator({"--policy", "fifo"});
  EXPECT_TRUE(StatusHas("there is no such program"));
  EXPECT_THAT(coordinator_->errors(), HasSubstr("there is no such program"));
  agent_ = StartAgent();
  Submit(WriteJob("a", {"--steps", "20"}));
  EXPECT_TRUE(ReachesState(endpoint_, "a", "CD"));
}

TEST_F(NotifyTest, AProgramThatHangsDelaysNoJob) {
  StartTelling("sleep 1000", "events = [\"started\", \"ended\"]\n");
  Submit(WriteJob("a", {"--steps", "20"}));
  Submit(WriteJob("b", {"--steps", "20"}));
  EXPECT_TRUE(ReachesState(endpoint_, "b", "CD"));
  coordinator_->Signal(SIGTERM);
  EXPECT_EQ(coordinator_->Wait(), 0);
}

}  // namespace
}  // namespace gavel::testing
