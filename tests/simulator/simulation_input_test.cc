#include "simulator/trace_simulation.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(ParseCluster, ReadsTypesCountsAndServers) {
  ASSERT_OK_AND_ASSIGN(const auto cluster,
                       ParseCluster("v100:36x4,p100:7,my-gpu:1"));
  EXPECT_THAT(cluster,
              ElementsAre(ClusterPart{"v100", 36, 4}, ClusterPart{"p100", 7, 7},
                          ClusterPart{"my-gpu", 1, 1}));
}

TEST(ParseCluster, ATypeMayHaveServersOfDifferentSizes) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, ParseCluster("v100:8x4,v100:4x2"));
  EXPECT_THAT(cluster, ElementsAre(ClusterPart{"v100", 8, 4},
                                   ClusterPart{"v100", 4, 2}));
}

TEST(ParseCluster, ReadsTheThreeNumbersOfGavel) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, ParseCluster("12:0:8x2"));
  EXPECT_THAT(cluster, ElementsAre(ClusterPart{"v100", 12, 12},
                                   ClusterPart{"k80", 8, 2}));
}

TEST(ParseCluster, WhatIsWrongIsQuotedWithTheRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"\" is not TYPE:COUNT; write e.g. v100:36"},
      {"v100", "\"v100\" is not TYPE:COUNT"},
      {"v100:36,", "\"\" is not TYPE:COUNT"},
      {"a b:3", "\"a b:3\" is not TYPE:COUNT"},
      {":3,k80:1", "\":3\" is not TYPE:COUNT"},
      {"v100:", "\"\" is no number of accelerators; write 1 to 1000000"},
      {"v100:0", "\"0\" is no number of accelerators"},
      {"v100:-3", "\"-3\" is no number of accelerators"},
      {"v100:3.5", "\"3.5\" is no number of accelerators"},
      {"v100:1000001", "\"1000001\" is no number of accelerators"},
      {"v100:99999999999999999999", "is no number of accelerators"},
      {"v100:36x5",
       "\"36x5\" does not fill servers; write behind the x how "
       "many are on each, a divisor of 36"},
      {"v100:36x", "\"36x\" does not fill servers"},
      {"v100:36x0", "\"36x0\" does not fill servers"},
      {"v100:36x4x2", "\"36x4x2\" does not fill servers"},
      {"v100:4x2,k80:2,v100:6x2",
       "\"v100:6x2\" is a second part of v100 with servers of this size"},
      {"36", "\"36\" has 1 numbers; write three (v100:p100:k80)"},
      {"36:36", "\"36:36\" has 2 numbers"},
      {"1:2:3:4", "\"1:2:3:4\" has 4 numbers"},
      {"1::3", "\"\" is no number of accelerators; write 0 to"},
      {"0:0:0", "\"0:0:0\" has no accelerators"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParseCluster(text), IsInvalid(error)) << text;
  }
}

TEST(ParseOverheads, MoveIsResumeUnlessItIsGiven) {
  EXPECT_EQ(ParseOverheads("none")->all, Overhead());
  EXPECT_EQ(ParseOverheads("pause=2,resume=5,move=9.5")->all,
            (Overhead{2, 5, 9.5}));
  EXPECT_EQ(ParseOverheads("move=0,resume=5")->all, (Overhead{0, 5, 0}));
  EXPECT_EQ(ParseOverheads("resume=5")->all, (Overhead{0, 5, 5}));
  EXPECT_EQ(ParseOverheads("pause=1")->all, (Overhead{1, 0, 0}));
  EXPECT_EQ(ParseOverheads("start=8")->all, (Overhead{.start_s = 8}));
}

TEST(ParseOverheads, WhatIsWrongIsQuotedWithTheRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"\" is not NAME=NUMBER; write e.g. pause=2,resume=5,move=9"},
      {"pause", "\"pause\" is not NAME=NUMBER"},
      {"=2", "\"=2\" is not NAME=NUMBER"},
      {"pause=", "\"pause=\" has no good number; write a number from 0 to"},
      {"pause=-1", "\"pause=-1\" has no good number"},
      {"pause=nan", "\"pause=nan\" has no good number"},
      {"pause=inf", "\"pause=inf\" has no good number"},
      {"pause=90000", "\"pause=90000\" has no good number"},
      {"pause=1s", "\"pause=1s\" has no good number"},
      {"pause=1,pause=2", "\"pause=2\" comes after another of that name"},
      {"begin=1",
       "\"begin\" is no overhead; write start, pause, resume or move"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParseOverheads(text), IsInvalid(error)) << text;
  }
}

TEST(ParseOverheadsFile, HasATableForEachJobTypeAndOneForTheOthers) {
  ASSERT_OK_AND_ASSIGN(const Overheads overheads,
                       ParseOverheadsFile(R"toml(
["*"]
start_s = 8
resume_s = 5
["ResNet-18 (batch size 64)"]
pause_s = 2
resume_s = 3.5
move_s = 9
[A3C]
)toml",
                                          "overheads.toml"));
  EXPECT_EQ(overheads.all, (Overhead{0, 5, 5, 8}));
  EXPECT_THAT(overheads.by_type, ElementsAre(Pair("A3C", Overhead()),
                                             Pair("ResNet-18 (batch size 64)",
                                                  Overhead{2, 3.5, 9})));
  EXPECT_EQ(ParseOverheadsFile("", "o").value(), Overheads());
}

TEST(ParseOverheadsFile, ErrorsPointIntoTheFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"pause_s = 2", "o.toml:1:11: \"pause_s\" is no table; write a job type"},
      {"[A3C]\npause = 2", "o.toml:2:1: unknown key \"pause\"; did you mean"},
      {"[A3C]\npause_s = -1", "o.toml:2:11: pause_s is -1; write a number"},
      {"[A3C]\nmove_s = nan", "o.toml:2:10: move_s is nan"},
      {"[A3C]\nmove_s = \"1\"", "o.toml:2:10: move_s is a string"},
      {"[A3C", "o.toml:1:5: not TOML"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParseOverheadsFile(text, "o.toml"), IsInvalid(error)) << text;
  }
}

TEST(ParseCluster, ReadsGroupsAndRacksThatNest) {
  ASSERT_OK_AND_ASSIGN(
      const auto cluster,
      ParseCluster("v100:64x8:group=4:rack=32,k80:8x2:rack=8"));
  EXPECT_THAT(cluster, ElementsAre(ClusterPart{"v100", 64, 8, 4, 32},
                                   ClusterPart{"k80", 8, 2, 0, 8}));
  const std::pair<const char*, const char*> cases[] = {
      {"v100:64x8:group=3", "\"group=3\" does not nest in servers of 8"},
      {"v100:64x8:group=16", "does not nest in servers of 8"},
      {"v100:64x8:rack=12", "\"rack=12\" does not hold whole servers of 8"},
      {"v100:64x8:rack=4", "does not hold whole servers"},
      {"v100:64x8:rack=16:rack=32", "gives the rack twice"},
      {"v100:64x8:pod=16", "\"pod=16\" is no level of locality"},
      {"v100:64x8:group", "is no level of locality"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParseCluster(text), IsInvalid(error)) << text;
  }
}

}  // namespace
}  // namespace gavel
