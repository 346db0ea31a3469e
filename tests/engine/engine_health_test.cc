// Accelerators that the coordinator drains for what their drivers say.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class Health : public ::testing::Test {
 protected:
  const Accelerator& Of(int index) const {
    return driver_.engine().cluster().accelerator(
        AcceleratorId(static_cast<uint64_t>(index) + 1));
  }
  AcceleratorHealth Told(int index, uint64_t errors = 0,
                         const std::string& failure = "") const {
    AcceleratorHealth told;
    told.uuid = Of(index).info.uuid;
    told.temperature_c = 60;
    told.uncorrectable_errors = errors;
    told.failure = failure;
    return told;
  }
  void Tell(const AcceleratorHealth& told) {
    AgentHeartbeat beat{"here", 1, {1, driver_.rows.back().seq}};
    beat.health = {told};
    driver_.Step(event::AgentHeard{beat});
  }
  void Resume() {
    event::AcceleratorsDrained resumed{Of(0).info.uuid};
    resumed.drained = false;
    driver_.Step(resumed);
    ASSERT_FALSE(Of(0).drained);
  }

  EngineDriver driver_{2};
};

TEST_F(Health, AnAcceleratorWithUncorrectableErrorsIsDrainedAndItsJobLeaves) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  Tell(Told(0, 3));
  EXPECT_TRUE(Of(0).drained);
  EXPECT_EQ(Of(0).drained_for,
            "its memory had 3 uncorrectable errors; reset or replace it, then "
            "`gavel resume here/here-0`");
  EXPECT_FALSE(Of(1).drained);
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  driver_.Restart();
  EXPECT_TRUE(Of(0).drained) << "it is in the journal";
  EXPECT_THAT(Of(0).drained_for, HasSubstr("3 uncorrectable errors"));
  EXPECT_EQ(
      driver_.Restored().cluster().accelerator(AcceleratorId(1)).drained_for,
      Of(0).drained_for);
}

TEST_F(Health, OneThatIsWellIsNotDrained) {
  Tell(Told(0));
  EXPECT_FALSE(Of(0).drained);
  const auto& told = driver_.engine().agents().at("here").health;
  EXPECT_EQ(told.at("here-0").temperature_c, 60);
}

TEST_F(Health, AnOperatorsResumeHoldsUntilThereAreOtherErrors) {
  Tell(Told(0, 3));
  Resume();
  EXPECT_EQ(Of(0).drained_for, "");
  Tell(Told(0, 3));
  EXPECT_FALSE(Of(0).drained);
  Tell(Told(0, 4));
  EXPECT_TRUE(Of(0).drained);
  Resume();
  Tell(Told(0, 1));  // the driver has started again
  EXPECT_TRUE(Of(0).drained);
}

TEST_F(Health, OneThatIsGoneIsDrainedWithTheRemedy) {
  Tell(Told(0, 0, "it is not there any more; restart the agent"));
  EXPECT_TRUE(Of(0).drained);
  EXPECT_EQ(Of(0).drained_for, "it is not there any more; restart the agent");
}

TEST_F(Health, WhatNobodyDeclaredIsIgnored) {
  AcceleratorHealth told = Told(0, 3);
  told.uuid = "another";
  Tell(told);
  EXPECT_FALSE(Of(0).drained);
  EXPECT_FALSE(Of(1).drained);
}

}  // namespace
}  // namespace gavel
