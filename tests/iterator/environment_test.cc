#include "iterator/environment.h"

#include <stdlib.h>

#include "tests/support/test.h"

namespace gavel::internal {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Reads with these variables set, and nothing of Gavel's else.
Status ReadWith(const Variables& variables, SessionOptions* options) {
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  const Status status = ReadEnvironment(options);
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return status;
}

TEST(Environment, IsAloneWhenNothingIsSet) {
  SessionOptions options;
  EXPECT_TRUE(ReadWith({}, &options).ok());
  EXPECT_EQ(options.coordinator, "");
  EXPECT_EQ(options.world_size, 1);
  EXPECT_LT(options.checkpoint_interval_s, 0);  // tuned
  EXPECT_EQ(options.failure_interval_s, 6 * 3600);
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST(Environment, ReadsWhatTheAgentSets) {
  SessionOptions options;
  ASSERT_TRUE(ReadWith({{"GAVEL_WORKER_COORDINATOR", "127.0.0.1:7000"},
                        {"GAVEL_JOB", "12"},
                        {"GAVEL_RANK", "1"},
                        {"GAVEL_WORLD_SIZE", "2"},
                        {"GAVEL_INCARNATION", "3"},
                        {"GAVEL_RUN_DIRECTORY", "/run/gavel"},
                        {"GAVEL_CHECKPOINT_DIRECTORY", "/data/12"},
                        {"GAVEL_CHECKPOINT_INTERVAL_S", "2.5"},
                        {"GAVEL_FAILURE_INTERVAL_S", "100"},
                        {"GAVEL_PAUSE_GRACE_S", "7"},
                        {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "10"},
                        {"GAVEL_CHECKPOINTS_KEPT", "4"},
                        {"GAVEL_CHECKPOINTS_KEPT_EVERY_STEPS", "1000"},
                        {"GAVEL_CHECKPOINTS_KEPT_BEST", "max:accuracy"},
                        {"GAVEL_STEPS", "500"},
                        {"GAVEL_DEVICE", "cpu"},
                        {"GAVEL_PINNED_MEMORY_BYTES", "1000000"},
                        {"GAVEL_TRACE_FILE", "/tmp/trace.json"},
                        {"GAVEL_TENSORBOARD_DIRECTORY", "/tmp/events"},
                        {"GAVEL_REPORT_FILE", "/tmp/report"}},
                       &options)
                  .ok());
  EXPECT_EQ(options.coordinator, "127.0.0.1:7000");
  EXPECT_EQ(options.job, 12u);
  EXPECT_EQ(options.trace_file, "/tmp/trace.json");
  EXPECT_EQ(options.tensorboard_directory, "/tmp/events");
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.world_size, 2);
  EXPECT_EQ(options.incarnation, 3u);
  EXPECT_EQ(options.run_directory, "/run/gavel");
  EXPECT_EQ(options.checkpoint_directory, "/data/12");
  EXPECT_EQ(options.checkpoint_interval_s, 2.5);
  EXPECT_EQ(options.failure_interval_s, 100);
  EXPECT_EQ(options.pause_grace_s, 7);
  EXPECT_EQ(options.checkpoint_interval_steps, 10);
  EXPECT_EQ(options.checkpoints_kept, 4);
  EXPECT_EQ(options.checkpoints_kept_every_steps, 1000);
  EXPECT_EQ(options.checkpoints_kept_best, "max:accuracy");
  EXPECT_EQ(options.steps_total, 500);
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(options.pinned_memory_bytes, 1'000'000u);
  EXPECT_EQ(options.report_file, "/tmp/report");
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST(Environment, FindsItsGangAsTorchrunSays) {
  SessionOptions options;
  ASSERT_TRUE(ReadWith({{"MASTER_ADDR", "node-1"},
                        {"MASTER_PORT", "29500"},
                        {"LOCAL_RANK", "3"},
                        {"GAVEL_ADDRESS", "10.0.0.7"},
                        {"TORCHELASTIC_RUN_ID", "run"},
                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                       &options)
                  .ok());
  EXPECT_EQ(options.gang.store, "node-1:29500");
  EXPECT_EQ(options.gang.name, "run/2");
  EXPECT_TRUE(options.gang.launcher_hosts);
  EXPECT_EQ(options.gang.local_rank, 3);
  EXPECT_EQ(options.address, "10.0.0.7");

  SessionOptions none;
  ASSERT_TRUE(ReadWith({{"MASTER_ADDR", "node-1"}}, &none).ok());
  EXPECT_EQ(none.gang.store, "");
  EXPECT_FALSE(none.gang.launcher_hosts);
  EXPECT_FALSE(ReadWith({{"MASTER_PORT", "70000"}}, &none).ok());
  EXPECT_FALSE(ReadWith({{"MASTER_PORT", "x"}}, &none).ok());
}

TEST(Environment, TakesTorchrunsNamesWhereOursAreNotSet) {
  SessionOptions options;
  ASSERT_TRUE(ReadWith({{"RANK", "2"}, {"WORLD_SIZE", "4"}}, &options).ok());
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.world_size, 4);
  ASSERT_TRUE(ReadWith({{"RANK", "2"},
                        {"WORLD_SIZE", "4"},
                        {"GAVEL_RANK", "0"},
                        {"GAVEL_WORLD_SIZE", "1"}},
                       &options)
                  .ok());
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.world_size, 1);
}

TEST(Environment, NamesTheVariableThatCantBeRead) {
  for (const Variables& bad :
       std::vector<Variables>{{{"GAVEL_STEPS", "many"}},
                              {{"GAVEL_JOB", "-1"}},
                              {{"GAVEL_CHECKPOINT_INTERVAL_S", "nan"}},
                              {{"GAVEL_RANK", "1x"}}}) {
    SessionOptions options;
    const Status status = ReadWith(bad, &options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(bad[0].first), std::string::npos);
    EXPECT_NE(status.message().find(bad[0].second), std::string::npos);
  }
}

TEST(Environment, WhatIsKeptMustMakeSense) {
  const auto with = [](auto change) {
    SessionOptions options;
    change(options);
    return CheckOptions(options);
  };
  const auto says = [](const absl::Status& status, const char* name) {
    return absl::IsInvalidArgument(status) &&
           std::string(status.message()).find(name) != std::string::npos;
  };
  EXPECT_TRUE(says(with([](auto& o) { o.checkpoints_kept = 1; }),
                   "GAVEL_CHECKPOINTS_KEPT)"));
  EXPECT_TRUE(says(with([](auto& o) { o.checkpoints_kept_every_steps = -1; }),
                   "GAVEL_CHECKPOINTS_KEPT_EVERY_STEPS"));
  EXPECT_TRUE(says(with([](auto& o) { o.checkpoints_kept_best = "loss"; }),
                   "min:loss"));
  EXPECT_TRUE(with([](auto& o) { o.checkpoints_kept_best = "min:loss"; }).ok());
}

TEST(Environment, AWorkerNeedsItsIdentity) {
  SessionOptions options;
  options.coordinator = "127.0.0.1:7000";
  const absl::Status status = CheckOptions(options);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("GAVEL_JOB"));
}

TEST(Environment, TheClientsDefaultMakesNoWorker) {
  SessionOptions options;
  ASSERT_TRUE(
      ReadWith({{"GAVEL_COORDINATOR", "127.0.0.1:7000"}}, &options).ok());
  EXPECT_EQ(options.coordinator, "");
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST(Environment, AnAgentThatTellsNoCoordinatorIsOld) {
  SessionOptions options;
  ASSERT_TRUE(ReadWith({{"GAVEL_COORDINATOR", "127.0.0.1:7000"},
                        {"GAVEL_JOB", "1"},
                        {"GAVEL_INCARNATION", "1"}},
                       &options)
                  .ok());
  const absl::Status status = CheckOptions(options);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("GAVEL_WORKER_COORDINATOR"));
}

TEST(Environment, RefusesARankOutsideOfTheGang) {
  SessionOptions options;
  options.rank = 2;
  options.world_size = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOptions(options)));
}

}  // namespace
}  // namespace gavel::internal
