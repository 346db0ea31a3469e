#include "coordinator/cli/table.h"

#include <sstream>

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

HeldAcceleratorRow OnServer(const std::string& server,
                            const std::string& type) {
  return {server, type, server + "-0"};
}

AcceleratorRow InUse(const std::string& type, const std::string& state,
                     std::vector<uint64_t> jobs) {
  AcceleratorRow row;
  row.type = type;
  row.state = state;
  row.jobs = std::move(jobs);
  return row;
}

QueueRow RunningRow() {
  QueueRow row;
  row.id = 12;
  row.name = "resnet";
  row.state = "R";
  row.accelerators = {OnServer("here", "v100")};
  row.steps_done = 1200;
  row.steps_total = 2'000'000;
  row.steps_per_s = 45.53;
  row.scalars = {{"accuracy", 0.9}, {"loss", 2.30259}};
  row.share_target = 0.5;
  row.share_got = 0.478;
  row.pauses = 3;
  row.moves = 1;
  return row;
}

TEST(Table, QueueLooksLikeSqueue) {
  QueueRow waiting;
  waiting.id = 13;
  waiting.name = "lm";
  waiting.state = "PD";
  waiting.reason = "waiting: 1st in line for v100";
  EXPECT_EQ(RenderQueue({RunningRow(), waiting}, 120),
            "JOBID NAME   ST ACCELERATOR      STEPS STEPS/S  LOSS TARGET/GOT "
            "PAUSES MOVES NODELIST(REASON)\n"
            "   12 resnet R  v100        1200/2.00M    45.5 2.303     50/48% "
            "     3     1 here-0\n"
            "   13 lm     PD -                    0       -     -       0/0% "
            "     0     0 (waiting: 1st in line for v100)\n");
}

TEST(Table, WorkThatIsToComeIsWorkLeftOfTheApp) {
  QueueRow row = RunningRow();
  row.app = "search";
  row.left_s = 3600;
  row.scale_factor = 2;
  row.app_to_come_s = 7200;
  QueueRow other = row;
  other.left_s.reset();
  other.app_to_come_s.reset();  // its throughput is not known
  const std::vector<AppRow> apps = AppsOf({row, other});
  ASSERT_EQ(apps.size(), 1u);
  EXPECT_EQ(apps[0].left_accelerator_s, 2 * 3600 + 7200);
  EXPECT_EQ(apps[0].to_come_accelerator_s, 7200);
}

// An element of array 42, whose ids begin at 43.
QueueRow ElementRow(int index, const std::string& state) {
  QueueRow row;
  row.id = static_cast<uint64_t>(43 + index);
  row.name = StrCat("lm_", index);
  row.state = state;
  row.array = 42;
  row.array_name = "lm";
  row.array_index = index;
  row.reason = StrCat("reason of ", index);
  return row;
}

TEST(Table, TheWaitingRestOfAnArrayIsOneLine) {
  std::vector<QueueRow> rows;
  QueueRow running = ElementRow(0, "R");
  running.accelerators = {OnServer("here", "v100")};
  running.incarnations = 1;
  rows.push_back(running);
  QueueRow started = ElementRow(1, "PD");  // it has run before
  started.incarnations = 1;
  rows.push_back(started);
  for (const int index : {2, 3, 4, 7}) rows.push_back(ElementRow(index, "PD"));
  rows.push_back(ElementRow(5, "F"));
  rows.push_back(ElementRow(6, "CA"));
  QueueRow other = ElementRow(8, "PD");
  other.array = 60;
  rows.push_back(other);
  std::istringstream table(RenderQueue(rows, kUncut));
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string id;
    std::string name;
    words >> id >> name;
    lines.push_back(StrCat(id, " ", name));
  }
  EXPECT_THAT(lines, ElementsAre("JOBID NAME", "42_0 lm_0", "42_1 lm_1",
                                 "42_[2-4,7] lm", "42_5 lm_5", "42_6 lm_6",
                                 "60_8 lm_8"));
}

TEST(Table, ALineOfAnArrayHasTheReasonOfMostOfItsElements) {
  std::vector<QueueRow> rows;
  for (const int index : {0, 1, 2}) rows.push_back(ElementRow(index, "PD"));
  rows[0].code = "priority";
  rows[1].code = rows[2].code = "array_limit";
  const std::string text = RenderQueue(rows, kUncut);
  EXPECT_THAT(text, HasSubstr("42_[0-2]"));
  EXPECT_THAT(text, HasSubstr("(reason of 1)"));
}

TEST(Table, ALineOfHeldElementsSaysHowToReleaseThemAll) {
  std::vector<QueueRow> rows;
  for (const int index : {3, 4}) rows.push_back(ElementRow(index, "F"));
  rows[0].reason = "held: by `gavel hold`; `gavel release 46` lets it go on";
  EXPECT_THAT(RenderQueue(rows, kUncut),
              HasSubstr("`gavel release 42_[3-4]` lets it go on"));
}

TEST(Table, ALineOfEndedElementsSaysThatOthersMayBeLeftOut) {
  std::vector<QueueRow> rows;
  for (const int index : {6, 7}) rows.push_back(ElementRow(index, "PD"));
  for (const int index : {8, 9}) rows.push_back(ElementRow(index, "CA"));
  std::vector<std::string> ids;
  for (const bool is_cut : {false, true}) {
    for (const QueueLine& line : LinesOf(rows, is_cut)) ids.push_back(line.id);
  }
  EXPECT_THAT(ids,
              ElementsAre("42_[6-7]", "42_[8-9]", "42_[6-7]", "42_[...,8-9]"));
}

TEST(Table, TheQueueShowsLiveJobsFirst) {
  std::vector<QueueRow> rows;
  for (const char* state : {"CD", "PD", "F", "R", "CA", "S", "CG", "PD"}) {
    QueueRow row;
    row.id = rows.size() + 1;
    row.state = state;
    rows.push_back(row);
  }
  SortLiveFirst(rows);
  std::string order;
  for (const QueueRow& row : rows) order += StrCat(row.state, row.id, " ");
  EXPECT_EQ(order, "R4 CG7 PD2 S6 PD8 F3 CD1 CA5 ");
}

TEST(Table, TheQueueShowsOwnersWhereThereAreAny) {
  QueueRow row = RunningRow();
  EXPECT_THAT(RenderQueue({row}), Not(HasSubstr("USER")));
  row.owner = "ann";
  EXPECT_THAT(RenderQueue({row}), HasSubstr(" NAME   USER ST "));
  EXPECT_THAT(RenderQueue({row}), HasSubstr(" resnet ann  R  "));
}

// Files and pipes get names and reasons in full.
TEST(Table, NothingIsCutForAFile) {
  QueueRow row = RunningRow();
  row.name = std::string(64, 'n');
  row.accelerators.clear();
  row.reason = std::string(500, 'r');
  const std::string text = RenderQueue({row}, kUncut);
  EXPECT_THAT(text, HasSubstr(row.name));
  EXPECT_THAT(text, HasSubstr("(" + row.reason + ")"));
}

TEST(Rows, StatesAreLettersOrWords) {
  using Letters = std::vector<std::string>;
  EXPECT_EQ(StateLettersOf("R"), Letters{"R"});
  EXPECT_EQ(StateLettersOf("running"), Letters{"R"});
  EXPECT_EQ(StateLettersOf("waiting"), Letters{"PD"});
  EXPECT_EQ(StateLettersOf("dreaming"), Letters{});
}

TEST(Table, LinesFitTheWidthWhateverIsInThem) {
  QueueRow row = RunningRow();
  row.owner = std::string(64, 'o');
  row.name = std::string(64, 'n');
  row.accelerators.front().type = std::string(64, 't');
  row.accelerators.front().uuid = std::string(64, 'u');
  row.steps_done = row.steps_total = 18'000'000'000'000'000'000u;
  row.pauses = row.moves = 4'000'000'000;
  row.scalars = {{"loss", -1.23456e-300}};
  for (const size_t width : {100, 120, 200}) {
    std::istringstream lines(RenderQueue({row}, width));
    std::string line;
    while (std::getline(lines, line)) {
      // Without the second and third bytes of each "…".
      const auto extra = std::ranges::count_if(
          line, [](char c) { return (c & 0xC0) == 0x80; });
      EXPECT_LE(line.size() - static_cast<size_t>(extra), width) << line;
    }
  }
}

TEST(Table, AGangShowsHowManyAndWhere) {
  QueueRow row = RunningRow();
  row.accelerators.push_back(OnServer("there", "v100"));
  EXPECT_THAT(RenderQueue({row}), HasSubstr("v100 x2"));
  EXPECT_THAT(RenderQueue({row}), HasSubstr("here,there"));
}

TEST(Table, NodesAreGroupedByTypeAndUse) {
  NodeRow node;
  node.server = "here";
  node.state = "mixed";
  node.parked_bytes = 3 << 20;
  node.accelerators = {
      InUse("cpu_fast", "allocated", {3}), InUse("cpu_fast", "idle", {}),
      InUse("cpu_fast", "allocated", {5, 8}), InUse("cpu_slow", "idle", {})};
  node.accelerators.back().slow_down_factor = 2;
  node.accelerators.back().kept_jobs = {9, 10};
  EXPECT_EQ(
      RenderNodes({node}),
      "SERVER STATE ACCELERATOR COUNT USE       SLOWED JOBS  KEPT  PARKED\n"
      "here   mixed cpu_fast        2 allocated      - 3,5+8 -    3.0 MiB\n"
      "here   mixed cpu_fast        1 idle           - -     -          -\n"
      "here   mixed cpu_slow        1 idle          2x -     9,10       -\n");
}

TEST(Table, ANodeSaysWhyTheCoordinatorDrainedAnAccelerator) {
  NodeRow node;
  node.server = "here";
  node.state = "mixed";
  node.accelerators = {InUse("v100", "drained", {}), InUse("v100", "idle", {})};
  node.accelerators[0].uuid = "GPU-aa";
  node.accelerators[0].drained_for = "its memory had 3 uncorrectable errors";
  node.accelerators[0].drained = true;
  node.accelerators[0].device = "cuda:0";
  node.accelerators[1].uuid = "GPU-bb";
  node.accelerators[1].device = "cuda:1";
  node.accelerators[1].last_xid = 79;
  EXPECT_THAT(RenderNodes({node}),
              EndsWith("\nhere/GPU-aa (cuda:0): drained: its memory had 3 "
                       "uncorrectable errors\n"
                       "here/GPU-bb (cuda:1): last fault: XID 79\n"));
}

// Only of those: a healthy one has no line, nor all of a server that is down.
TEST(Table, ANodeNamesAcceleratorsThatAreLostOrOtherwiseUnusual) {
  NodeRow node;
  node.server = "here";
  node.accelerators = {
      InUse("v100", "lost", {}),     InUse("v100", "idle", {}),
      InUse("v100", "draining", {}), InUse("v100", "down", {}),
      InUse("v100", "hung", {7}),    InUse("v100", "allocated", {8})};
  for (size_t i = 0; i < node.accelerators.size(); ++i) {
    node.accelerators[i].uuid = StrCat("here-", i);
    node.accelerators[i].device = StrCat("hpu:", i);
  }
  node.accelerators[0].lost_for = "job 3 could not use it";
  node.accelerators[2].drained = true;
  node.accelerators[5].speed = 0.6;
  EXPECT_THAT(
      RenderNodes({node}),
      EndsWith("-\nhere/here-0 (hpu:0): lost: job 3 could not use it\n"
               "here/here-2 (hpu:2): draining, by an operator\n"
               "here/here-4 (hpu:4): hung: job 7 makes no steps there\n"
               "here/here-5 (hpu:5): slow: 60 % of its type's speed\n"));
}

TEST(Table, ANodeSaysHowSlowItsStragglersAre) {
  NodeRow node;
  node.server = "here";
  node.state = "allocated";
  node.accelerators = {InUse("v100", "allocated", {3}),
                       InUse("v100", "allocated", {4})};
  node.accelerators.back().speed = 0.6;
  EXPECT_THAT(RenderNodes({node}), HasSubstr("1 allocated, slow: 60 % "));
  EXPECT_THAT(RenderNodes({node}), HasSubstr("1 allocated            "));
}

TEST(Table, StatusSaysWhatTrialsTakeAndMayTake) {
  const auto render = [](double percentage_max) {
    const nlohmann::ordered_json profiling = {
        {"percentage_max", percentage_max},
        {"accelerators", 2},
        {"accelerator_s", 5400}};
    return RenderStatus(ParseStatus({{"term", 3},
                                     {"seq", 41},
                                     {"policy", "fifo"},
                                     {"rounds", 7},
                                     {"lease_duration_s", 60},
                                     {"profiling", profiling},
                                     {"jobs", {{"R", 2}}}}));
  };
  EXPECT_EQ(render(25),
            "round 7; fifo; jobs: 2 running\n"
            "leases of 60 s; journal at term 3, row 41\n"
            "profiling: on 2 accelerators, 1.50 accelerator-hours so far; at "
            "most 25 % of each type\n");
  EXPECT_EQ(render(0),
            "round 7; fifo; jobs: 2 running\n"
            "leases of 60 s; journal at term 3, row 41\n");
}

TEST(Table, StatusTellsOfTroubles) {
  EXPECT_THAT(
      RenderStatus(ParseStatus({{"troubles", {"row 7 is damaged", "full"}}})),
      HasSubstr("\nTROUBLE: row 7 is damaged\nTROUBLE: full\n"));
}

TEST(Rows, WhatIsMissingOrOddIsLeftAtItsDefault) {
  const auto rows = ParseQueue(nlohmann::ordered_json::parse(
      R"([{"id": "x", "name": 3, "steps_done": -4, "last_generation": null,
           "scalars": {"loss": null, "f1": 0.5}}, 7])"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].id, 0);
  EXPECT_EQ(rows[0].steps_done, 0);
  EXPECT_EQ(rows[0].scalars.size(), 1);
  EXPECT_TRUE(ParseQueue(nullptr).empty());
  EXPECT_FALSE(ParseStatus(nullptr).round_ends_in_s.has_value());
}

}  // namespace
}  // namespace gavel
