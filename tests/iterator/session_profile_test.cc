// The measurements of a session: Span, profile(), the trace and TensorBoard's
// files.
#include <torch/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "tests/iterator/training.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Takes 4 ms for each batch.
struct SlowRange {
  struct End {};
  struct Cursor {
    int left;
    int operator*() const { return left; }
    Cursor& operator++() { return --left, Sleep(4), *this; }
    bool operator!=(End) const { return left > 0; }
  };
  int count;
  Cursor begin() const { return {count}; }
  End end() const { return {}; }
};

class SessionProfile : public Test {
 protected:
  SessionOptions Options() {
    SessionOptions options;
    options.device = "cpu";
    options.log = log_.Sink();
    return options;
  }
  // Each step takes 4 ms for data and 2 ms for "forward", which includes 1 ms
  // of "attention".
  static void Run(Session& session, int steps) {
    for (auto& batch : Iterator(session, SlowRange{steps})) {
      const Span forward(session, "forward");
      Sleep(1);
      const Span attention(session, "attention");
      Sleep(1);
      session.Report("loss", batch);
    }
  }
  static std::map<std::string, PhaseProfile> Phases(const Profile& profile) {
    std::map<std::string, PhaseProfile> phases;
    for (const PhaseProfile& phase : profile.phases) phases[phase.name] = phase;
    return phases;
  }
  std::string TracePath() { return folder_.path() + "/trace.json"; }
  Json ReadTrace() {
    std::ifstream file(TracePath());
    return Json::parse(file);
  }
  static std::vector<Json> Events(const Json& trace, const std::string& name) {
    std::vector<Json> events;
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("name") == name) events.push_back(event);
    }
    return events;
  }

  TemporaryFolder folder_;
  Lines log_;
};

TEST_F(SessionProfile, TellsWhereTheTimeOfAStepGoes) {
  auto session = Session::Create(Options());
  Run(*session, 10);
  EXPECT_EQ(session->Finish(), 0);
  const Profile profile = session->profile();
  EXPECT_EQ(profile.steps, 10u);
  EXPECT_GE(profile.step_mean_s, 0.002 + 0.9 * 0.004);
  EXPECT_GE(profile.step_max_s, profile.step_mean_s);
  auto phases = Phases(profile);
  EXPECT_EQ(phases["forward"].count, 10u);
  EXPECT_GE(phases["forward"].mean_s, 0.002);
  EXPECT_EQ(phases["attention"].count, 10u);
  EXPECT_LT(phases["attention"].mean_s, phases["forward"].mean_s);
  EXPECT_GE(phases["data"].mean_s, 0.5 * 0.004);
  EXPECT_LT(phases["wrapper"].mean_s, phases["data"].mean_s);
  EXPECT_GT(phases["wrapper"].count, 0u);
  EXPECT_GT(profile.memory_low_bytes, 1'000'000);
  EXPECT_GE(profile.memory_high_bytes, profile.memory_low_bytes);
  EXPECT_EQ(log_.Count("profile of this process"), 1) << log_.Text();
  for (const char* name : {"step", "data", "wrapper", "forward", "attention"}) {
    EXPECT_EQ(log_.Count(std::string("  ") + name + " "), 1) << log_.Text();
  }
}

TEST_F(SessionProfile, CheckpointsAreNotTheWrappersTime) {
  SessionOptions options = Options();
  options.checkpoint_directory = folder_.path() + "/checkpoints";
  options.checkpoint_interval_steps = 1;
  auto session = Session::Create(options);
  session->Track(
      "slow", [] { return Sleep(250), std::string(); },
      [](const std::string&) {});
  Run(*session, 4);
  EXPECT_EQ(session->Finish(), 0);
  const Profile profile = session->profile();
  EXPECT_LT(Phases(profile)["wrapper"].max_s, 0.2);
  EXPECT_EQ(profile.checkpoints, 5u);  // Finish() makes one more
  EXPECT_GE(profile.pausing_s, 4 * 0.25);
}

TEST_F(SessionProfile, ManyNamesOfSpansAreBounded) {
  auto session = Session::Create(Options());
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("span" + std::to_string(i));
  std::vector<int> range = {1, 2};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    for (const std::string& name : names) Span(*session, name.c_str());
  }
  EXPECT_EQ(session->Finish(), 0);
  auto phases = Phases(session->profile());
  EXPECT_EQ(phases.size(), 16u);
  EXPECT_EQ(phases["span13"].count, 2u);
}

TEST_F(SessionProfile, TheTraceHasItAll) {
  SessionOptions options = Options();
  options.trace_file = TracePath();
  options.checkpoint_directory = folder_.path() + "/checkpoints";
  options.checkpoint_interval_steps = 5;
  auto session = Session::Create(options);
  Run(*session, 10);
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  const Json trace = ReadTrace();
  const auto steps = Events(trace, "step");
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[0].at("args").at("step"), 1);
  EXPECT_EQ(steps[9].at("args").at("step"), 10);
  // Spans lie inside their steps, and steps do not overlap.
  const auto forward = Events(trace, "forward");
  ASSERT_EQ(forward.size(), 10u);
  double last_end = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double begin = steps[i].at("ts");
    const double end = begin + steps[i].at("dur").get<double>();
    EXPECT_GE(begin, last_end);
    EXPECT_GE(forward[i].at("ts").get<double>(), begin);
    EXPECT_LE(
        forward[i].at("ts").get<double>() + forward[i].at("dur").get<double>(),
        end);
    last_end = end;
  }
  EXPECT_EQ(Events(trace, "data").size(), 10u);
  EXPECT_EQ(Events(trace, "boundary").size(), 11u);
  // Finish() makes one more checkpoint.
  EXPECT_EQ(Events(trace, "checkpoint").size(), 3u);
  EXPECT_EQ(Events(trace, "checkpoint copy").size(), 3u);
  EXPECT_FALSE(Events(trace, "memory between steps").empty());
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
}

TEST_F(SessionProfile, TheTraceIsWrittenAtAPause) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  SessionOptions options = Options();
  options.trace_file = TracePath();
  options.coordinator = coordinator.endpoint();
  options.job = 1;
  options.incarnation = 1;
  std::thread resume;
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 4) {
      coordinator.Pause();
      resume = std::thread([&] {
        EXPECT_TRUE(coordinator.Wait(
            [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
        EXPECT_TRUE(coordinator.Wait(
            [&] { return !Events(ReadTrace(), "pause").empty(); }));
        coordinator.Grant(TestSlot("slot-b"));
      });
    }
    if (coordinator.Heard<LeaseReleased>().empty()) Sleep(30);
  };
  const Outcome outcome = Train(options, training);
  resume.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  const Json trace = ReadTrace();
  ASSERT_EQ(Events(trace, "pause").size(), 1u);
  const Json pause = Events(trace, "pause")[0];
  const Json leave = Events(trace, "leave accelerator")[0];
  EXPECT_GE(leave.at("ts").get<double>(), pause.at("ts").get<double>());
  EXPECT_LE(leave.at("dur").get<double>(), pause.at("dur").get<double>());
  EXPECT_EQ(Events(trace, "take accelerator").size(), 2u);
  EXPECT_EQ(Events(trace, "step").size(), 24u);
}

TEST_F(SessionProfile, ScalarsGoToTensorBoard) {
  SessionOptions options = Options();
  options.tensorboard_directory = folder_.path() + "/events";
  auto session = Session::Create(options);
  Run(*session, 3);
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  std::string bytes;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path() + "/events")) {
    EXPECT_THAT(entry.path().string(), HasSubstr("tfevents"));
    std::ifstream file(entry.path(), std::ios::binary);
    bytes.append(std::istreambuf_iterator<char>(file), {});
  }
  for (const char* tag : {"loss", "gavel/step_time_s", "gavel/pauses"}) {
    EXPECT_THAT(bytes, HasSubstr(tag));
  }
}

TEST_F(SessionProfile, FilesThatCannotBeWrittenEndTheSessionAtOnce) {
  SessionOptions options = Options();
  options.trace_file = "/proc/none/trace.json";
  auto session = Session::Create(options);
  Run(*session, 3);
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("GAVEL_TRACE_FILE"));
  EXPECT_EQ(session->steps_done(), 0);
}

TEST_F(SessionProfile, ALoopOfOnesOwnIsMeasuredToo) {
  auto session = Session::Create(Options());
  for (int i = 0; i < 5 && session->Boundary(); ++i) {
    const Span forward(*session, "forward");
    Sleep(2);
    session->StepDone();
  }
  EXPECT_EQ(session->Finish(), 0);
  const Profile profile = session->profile();
  EXPECT_EQ(profile.steps, 5u);
  EXPECT_GE(profile.step_mean_s, 0.002);
  EXPECT_LT(profile.step_max_s, 2);
  EXPECT_EQ(Phases(profile)["forward"].count, 5u);
}

}  // namespace
}  // namespace gavel::testing
