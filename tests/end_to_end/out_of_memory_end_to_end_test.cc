// A real process that runs out of memory in its step on one type of
// accelerators: under the real coordinator its job goes on on the other type,
// and has not failed.

#include "core/text.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kMovePatience_s = 100;

class OutOfMemoryEndToEnd : public GavelTest {};

TEST_F(OutOfMemoryEndToEnd, InAStepIsNoFailureAndTheJobGoesElsewhere) {
  Write("cluster.toml",
        "[scheduling]\nround_duration_s = 4\nlease_duration_s = 4\n"
        "[[server]]\nname = \"here\"\n"
        "[[server.accelerator]]\ntype = \"small\"\nthreads = 2\n"
        "[[server.accelerator]]\ntype = \"large\"\nthreads = 1\n");
  const auto local = StartLocal(
      {WriteCommand("wide", {GAVEL_GANG_WORKER, Path("weights")},
                    "[throughputs]\nsmall = 50\nlarge = 1\n"
                    "[environment]\nOUT_OF_MEMORY_WITH_THREADS = \"2\"\n"
                    "EPOCHS = \"1\"\nSAMPLES = \"9600\"\nSTEP_MS = \"20\"\n")});
  const std::string endpoint = EndpointOf(*local);
  ASSERT_TRUE(ReachesStep(endpoint, "wide", 20)) << local->output();
  const std::string why =
      Run({"why", "wide", "--coordinator", endpoint}).output;
  EXPECT_THAT(why, HasSubstr("out of memory")) << why;
  EXPECT_EQ(QueueRow(endpoint, "wide")["failures_in_a_row"], 0);
  EXPECT_EQ(local->Wait(kMovePatience_s), 0) << local->errors();
  EXPECT_EQ(Summary()["jobs"][0]["state"], "finished");
  const std::string log = LogOf(1);
  EXPECT_THAT(log, HasSubstr("out of memory after step 0: a step: CUDA out of "
                             "memory"));
  EXPECT_THAT(log, Not(HasSubstr("terminate called")));
}

}  // namespace
}  // namespace gavel::testing
