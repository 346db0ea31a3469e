// The ring, the file, and what Chrome's format says of it.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "iterator/step_profile.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

using Json = nlohmann::json;

TEST(TraceRing, KeepsTheLastEventsAndCountsTheOthers) {
  TraceRing ring(4);
  for (int i = 0; i < 3; ++i) ring.Add({"step", i, i + 1, 0, {}});
  EXPECT_EQ(ring.Events().size(), 3u);
  EXPECT_EQ(ring.dropped(), 0u);
  for (int i = 3; i < 10; ++i) ring.Add({"step", i, i + 1, 0, {}});
  const auto events = ring.Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events.front().begin_ns, 6);
  EXPECT_EQ(events.back().begin_ns, 9);
  EXPECT_EQ(ring.dropped(), 6u);
}

TEST(TraceRing, RuntimeEventsEndInAnyOrderAndAreBounded) {
  TraceRing ring(4);
  const uint64_t outer = ring.Begin("pause", 10);
  const uint64_t inner = ring.Begin("checkpoint", 20);
  ring.End(inner, 30);
  ring.End(outer, 40);
  auto events = ring.RuntimeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].end_ns, 40);
  EXPECT_EQ(events[1].end_ns, 30);
  const uint64_t old = ring.Begin("pause", 50);
  for (size_t i = 0; i < TraceRing::kRuntimeEventsMax; ++i) {
    ring.End(ring.Begin("checkpoint", 60), 70);
  }
  ring.End(old, 80);  // dropped meanwhile
  events = ring.RuntimeEvents();
  EXPECT_EQ(events.size(), TraceRing::kRuntimeEventsMax);
  EXPECT_EQ(ring.runtime_dropped(), 3u);
  for (const RuntimeEvent& event : events) EXPECT_EQ(event.end_ns, 70);
}

TEST(TraceFile, IsChromesFormat) {
  TraceRing ring(8);
  ring.Add({"a \"quoted\" \\ name\n", 1'001'500, 1'002'500, 0, {}});
  ring.Add({"step", 1'000'000, 1'004'000, 7, TraceEvent::Kind::kStep});
  ring.Add({"memory", 1'004'000, 1'004'000, 123, TraceEvent::Kind::kMemory});
  ring.End(ring.Begin("checkpoint", 1'005'000), 1'007'000);
  ring.Begin("pause", 1'008'000);
  ring.AddRuntime(
      RuntimeEvent{"write", 1'001'000, 1'002'000, RuntimeEvent::Row::kWriter});
  const Json trace = Json::parse(TraceText(ring, {3, 1'000'000, 1'009'000}));
  Json spans = Json::object();
  int counted = 0;
  for (const Json& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("ph") == "X") spans[event.at("name")] = event;
    if (event.at("ph") == "C") counted = event.at("args").at("bytes");
  }
  EXPECT_EQ(counted, 123);
  const Json& quoted = spans.at("a \"quoted\" \\ name\n");
  EXPECT_DOUBLE_EQ(quoted.at("ts"), 1.5);
  EXPECT_DOUBLE_EQ(quoted.at("dur"), 1.0);
  EXPECT_EQ(spans.at("step").at("args").at("step"), 7);
  EXPECT_EQ(spans.at("step").at("tid"), quoted.at("tid"));
  EXPECT_NE(spans.at("checkpoint").at("tid"), quoted.at("tid"));
  EXPECT_DOUBLE_EQ(spans.at("checkpoint").at("dur"), 2.0);
  EXPECT_NE(spans.at("checkpoint").at("tid"), spans.at("write").at("tid"));
  EXPECT_DOUBLE_EQ(spans.at("pause").at("dur"), 1.0);  // goes on
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
  EXPECT_DOUBLE_EQ(trace.at("otherData").at("monotonic_origin_us"), 1000);
}

TEST(TraceFile, SaysWhatWasDropped) {
  TraceRing ring(2);
  for (int i = 0; i < 5; ++i) ring.Add({"step", i, i, 0, {}});
  const Json trace = Json::parse(TraceText(ring, {}));
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 3);
}

TEST(TraceFile, EachRankHasItsOwn) {
  EXPECT_EQ(TracePath("a.b/trace.json", 0, 1), "a.b/trace.json");
  EXPECT_EQ(TracePath("a.b/trace.json", 3, 4), "a.b/trace.rank-3.json");
  EXPECT_EQ(TracePath("a.b/trace", 0, 4), "a.b/trace.rank-0");
}

TEST(TraceFile, ReplacesTheOldOneAsAWhole) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/trace.json";
  TraceRing ring(2);
  ASSERT_OK(WriteTrace(ring, {}, path));
  ring.Add({"step", 0, 1, 0, {}});
  ASSERT_OK(WriteTrace(ring, {}, path));
  std::ifstream file(path);
  EXPECT_EQ(Json::parse(file).at("traceEvents").size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const absl::Status status = WriteTrace(ring, {}, "/proc/none/trace.json");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GAVEL_TRACE_FILE"));
}

}  // namespace
}  // namespace gavel::internal
