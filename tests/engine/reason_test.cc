#include "coordinator/engine/reason.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "coordinator/engine/event.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

struct Case {
  Reason reason;
  std::string_view name;
  std::string_view sentence;
  ReasonRow row;  // as journals have it
};

// One of each, in the order of their numbers.
std::vector<Case> Cases() {
  const JobId job(7);
  return {
      {reason::None(), "none", "", {0}},
      {reason::Running{"v100", 40.4, 50},
       "running",
       "running on v100: received 40 % of the time, target 50 %",
       {1, "v100", 40.4, 50}},
      {reason::Submitted(),
       "submitted",
       "waiting: for the first allocation",
       {2}},
      {reason::NoServer(),
       "no_server",
       "waiting: no accelerator can be reached; start `gavel agent` on a "
       "server",
       {3}},
      {reason::Priority{"v100", 3, 41},
       "priority",
       "waiting: 3rd in line for v100, 41 % of its share received",
       {4, "v100", 3, 41}},
      {reason::NotInAllocation(),
       "not_in_allocation",
       "waiting: the policy gives it no share now",
       {5}},
      {reason::Starting{"a", 31, 120},
       "starting",
       "starting on a: for 31 s its process has given no sign and read no "
       "byte, and it is ended after 120 s; does a file system hang that it "
       "needs, such as its checkpoint_directory?",
       {6, "a", 31, 120}},
      {reason::Pausing(),
       "pausing",
       "pausing: to stop at the next iteration boundary",
       {7}},
      {reason::Ending(), "ending", "ending: its training loop is over", {8}},
      {reason::WaitsForRelease{"v100", JobId(3)},
       "waits_for_release",
       "waiting: job 3 has not yet released its v100",
       {9, "v100", 3}},
      {reason::Unusable{16},
       "unusable",
       "waiting: scale factor 16 fits on no type whose accelerators are "
       "reachable, or its throughput is 0 on all of them",
       {10, "16"}},
      {reason::HeldFailures{job, 3, -9, "bad layer"},
       "held_failures",
       "held: failed 3 times in a row without a new checkpoint (last: killed "
       "by signal 9, \"bad layer\"); read `gavel logs 7`, then `gavel release "
       "7`",
       {11, "7", 3, -9, "bad layer"}},
      {reason::HeldLaunch{"no such program"},
       "held_launch",
       "held: could not be started: no such program",
       {12, "no such program"}},
      {reason::Cancelled(), "cancelled", "cancelled by its user", {13}},
      {reason::Finished(), "finished", "finished", {14}},
      {reason::GangStarting{"a", 2, 5},
       "gang_starting",
       "starting on a: its gang did not come together 2 times in a row, it is "
       "held after 5; `gavel logs` tells which rank",
       {15, "a", 2, 5}},
      {reason::HeldGang{job, 5},
       "held_gang",
       "held: its gang did not come together 5 times in a row; see that its "
       "servers reach each other, read `gavel logs 7`, then `gavel release 7`",
       {16, "7", 5}},
      {reason::RunningPacked{"v100 beside job 3", 40, 50},
       "running_packed",
       "running on v100 beside job 3: received 40 % of the time, target 50 %",
       {17, "v100 beside job 3", 40, 50}},
      {reason::OutOfMemory{"k80, p100", job},
       "out_of_memory",
       "waiting: it ran out of memory on k80, p100, and nothing else is left; "
       "lower its batch size, or `gavel release 7` to try again",
       {18, "k80, p100", 7}},
      {reason::Grown{"k80", 2, 1.7},
       "grown",
       "2 k80 idle, +1.7 steps/s",
       {19, "k80", 2, 1.7}},
      {reason::ShrunkForJob{"k80", JobId(3)},
       "shrunk_for_job",
       "job 3 waits for k80",
       {20, "k80", 3}},
      {reason::ShrunkSlow{"k80", 1.25, 1},
       "shrunk_slow",
       "more of k80 were not faster by enough, 1.25 instead of 1 steps/s",
       {21, "k80", 1.25, 1}},
      {reason::ShrunkToFit{"k80"},
       "shrunk_to_fit",
       "no more k80 are free",
       {22, "k80"}},
      {reason::ShrunkFailed{"k80", 4},
       "shrunk_failed",
       "with 4 of k80 it did not come together; `gavel logs` tells why",
       {23, "k80", 4}},
      {reason::Moving{"a to b", 1.2e9, 3.4e9},
       "moving",
       "moving from a to b: 1.2 of 3.4 GB",
       {24, "a to b", 1.2e9, 3.4e9}},
      {reason::Stranded{"a and b", 70, job},
       "stranded",
       "waiting: its last checkpoint (step 70) lies on a and b alone, which "
       "can't be reached; start the agent there, or `gavel release 7` to go on "
       "from what other servers have",
       {25, "a and b", 70, 7}},
      {reason::TooWide{16},
       "too_wide",
       "waiting: no one server has 16 accelerators of a type, and servers "
       "without a shared checkpoint directory can't checkpoint a gang "
       "together; lower its scale factor, or share the directory",
       {26, "16"}},
      {reason::HeldFetch{{job, "a to b"}, 120, 3},
       "held_fetch",
       "held: its checkpoint was to move from a to b, but no bytes came for "
       "120 s, 3 times in a row; see that these servers reach each other (the "
       "agents' --address), then `gavel release 7`",
       {27, "7 a to b", 120, 3}},
      {reason::StandsStill{"v100", 61, 300, 2},
       "stands_still",
       "running, but rank 2 on v100 has made no step and passed no boundary "
       "for 61 s; it is ended after 300 s (hang_timeout_s)",
       {28, "v100", 61, 300, "2"}},
      {reason::HeldHung{job, 3, 300},
       "held_hung",
       "held: failed 3 times in a row without a new checkpoint (last: no step "
       "and no boundary for 300 s); read `gavel logs 7`, call Boundary() in "
       "what takes longer or raise its hang_timeout_s, then `gavel release 7`",
       {29, "7", 3, 300}},
      {reason::HeldDevice{"GPU-1 nor GPU-2", job},
       "held_device",
       "held: it could use neither GPU-1 nor GPU-2, where other jobs may have "
       "no trouble; see that its program can use such devices (was it built "
       "with CUDA?), read `gavel logs 7`, then `gavel release 7`",
       {30, "GPU-1 nor GPU-2", 7}},
      {reason::HeldSilent{job, 3},
       "held_silent",
       "held: it never spoke to the coordinator within its start_timeout_s "
       "(failure 3): it does not link the runtime; set class = \"opaque\" to "
       "run it as it is. If it links it, and is long before its session, raise "
       "start_timeout_s; read `gavel logs 7`, then `gavel release 7`",
       {31, "7", 3}},
      {reason::HeldHungLaunch{"on a", job, 2, "no exec"},
       "held_hung_launch",
       "held: its launch came to nothing 2 times, at last on a: no exec; see "
       "that its working_directory and its program can be read there, then "
       "`gavel release 7`",
       {32, "on a", 7, 2, "no exec"}},
      {reason::TooExtreme{"weight 1e+300", job},
       "too_extreme",
       "waiting: the policy leaves it out, since its figures (weight 1e+300) "
       "are too far from other jobs' for the solver; cancel job 7, and submit "
       "it with others",
       {33, "weight 1e+300", 7}},
      {reason::Drained{"v100 of a"},
       "drained",
       "waiting: what it can use is drained (v100 of a); `gavel resume` gives "
       "it back",
       {34, "v100 of a"}},
      {reason::HeldByUser{.job = job},
       "held_by_user",
       "held: by `gavel hold`; `gavel release 7` lets it go on",
       {35, "", 7}},
      {reason::HeldUnready{job, 3, 120},
       "held_unready",
       "held: failed 3 times in a row: it spoke to the coordinator, but was "
       "not ready to train after 120 s in which it read and wrote nothing; "
       "raise its start_timeout_s (or --start-timeout of the coordinator), or "
       "shorten what comes before its loop; read `gavel logs 7`, then `gavel "
       "release 7`",
       {36, "7", 3, 120}},
      {reason::KeptOut{"here/GPU-1", job},
       "kept_out",
       "waiting: it could not use here/GPU-1, and there is no other that it "
       "could have; see in `gavel logs 7` why, then let it try again with "
       "`gavel release 7`, or repair the device and restart its agent",
       {37, "here/GPU-1", 7}},
      {reason::LosesPlace{"a"},
       "loses_place",
       "waiting: its process on a has no place any more and is being ended; it "
       "has not spoken to the coordinator, so it may still use its accelerator",
       {38, "a"}},
      {reason::RunningOpaque{"v100"},
       "running_opaque",
       "running on v100, which it has until its end: it is opaque",
       {39, "v100"}},
      {reason::HeldTimeLimit{job, 60},
       "held_time_limit",
       "held: it was ended, having run for its time_limit of 60 s; `gavel "
       "release 7` lets it run for as long again, after `gavel update 7 "
       "--time-limit SECONDS` for another time",
       {40, "7", 60}},
      {reason::Tried{"to run beside job 7", 1.5, 12.4, "kept"},
       "tried",
       "tried to run beside job 7: kept at 1.50 times the rate before, for 12 "
       "accelerator-seconds",
       {41, "to run beside job 7", 1.5, 12.4, "kept"}},
      {reason::NotItsServers{"all but here", 2},
       "not_its_servers",
       "waiting: the servers that its file lets it have (all but here) have "
       "not 2 accelerators in reach of a type that it can use; `gavel nodes` "
       "lists them",
       {42, "all but here", 2}},
      {reason::NotBefore{"2026-12-01T08:00:00Z", job},
       "not_before",
       "waiting: its not_before is 2026-12-01T08:00:00Z; `gavel release 7` "
       "lets it start now",
       {43, "2026-12-01T08:00:00Z", 7}},
      {reason::SizedByPolicy{},
       "sized_by_policy",
       "the policy gives it so many workers",
       {44}},
      {reason::AwaitsJobs{"12 prepare (running)", 2, job},
       "awaits_jobs",
       "waiting: for job 12 prepare (running) and 2 more; `gavel release 7` "
       "lets it start without them",
       {45, "12 prepare (running)", 2, 7}},
      {reason::ParentFailed{"12 prepare"},
       "parent_failed",
       "cancelled: its parent 12 prepare was cancelled; `gavel why` tells "
       "more of that job",
       {46, "12 prepare"}},
      {reason::ArrayLimit{JobId(42), 10},
       "array_limit",
       "waiting: for other elements of array 42, at most 10 at once",
       {47, "42", 10}},
      {reason::RunningInteractive{"v100", 240, 300},
       "running_interactive",
       "running on v100, which it has until its end: it is interactive; idle "
       "for 240 s, and ended after 300 s (idle_limit)",
       {48, "v100", 240, 300}},
      {reason::InteractiveQuota{2, 3},
       "interactive_quota",
       "waiting: the interactive jobs of its owner have 2 accelerators, and at "
       "most 3 are allowed (--interactive-max of the coordinator); it starts "
       "when one of them ends",
       {49, "2", 3}},
      {reason::NoSeat{2},
       "no_seat",
       "waiting: fewer than 2 accelerators that it can use are free of jobs "
       "which are never paused; it starts when one of those ends",
       {50, "2"}},
      {reason::EndedIdle{job, 3600},
       "ended_idle",
       "ended: for 3600 s its terminal had no input and no output, and its "
       "accelerators were not used (idle_limit); `gavel logs 7` has what it "
       "wrote, and another one may have a longer --idle-limit",
       {51, "7", 3600}},
      {reason::FinishedWith{3},
       "finished_with",
       "finished with exit code 3",
       {52, "3"}},
      {reason::WaitsForEnd{"v100 on here", JobId(3), true,
                           "2026-12-01T08:00:00Z"},
       "waits_for_end",
       "waiting: interactive job 3 keeps its v100 on here until it ends, by "
       "2026-12-01T08:00:00Z at the latest (its time_limit)",
       {53, "v100 on here", 3, 1, "2026-12-01T08:00:00Z"}},
  };
}

void ExpectSame(const ReasonRow& a, const ReasonRow& b) {
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.first, b.first);
  EXPECT_EQ(a.second, b.second);
  EXPECT_EQ(a.detail, b.detail);
}

TEST(Reason, EachHasItsNameAndItsSentence) {
  const std::vector<Case> cases = Cases();
  ASSERT_EQ(cases.size(), std::variant_size_v<ReasonVariant>);
  std::set<std::string_view> names;
  for (const Case& c : cases) {
    EXPECT_EQ(ReasonName(c.reason), c.name);
    EXPECT_EQ(RenderReason(c.reason), c.sentence) << c.name;
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
  }
}

// Journals and snapshots have these rows, so they never change.
TEST(Reason, EachIsWrittenAndReadInItsSlots) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ExpectSame(ToReasonRow(c.reason), c.row);
    const std::optional<Reason> back = FromReasonRow(c.row);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->index(), c.reason.index());
    EXPECT_EQ(RenderReason(*back), c.sentence);
    ExpectSame(ToReasonRow(*back), c.row);
  }
}

TEST(Reason, EachIsInAJournal) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const std::string written =
        EncodeEvent(event::JobsResized{{{JobId(7), 2, c.reason}}});
    ASSERT_OK_AND_ASSIGN(const Event event, DecodeEvent(written));
    const auto& resized = std::get<event::JobsResized>(event);
    EXPECT_EQ(RenderReason(resized.resizes.at(0).reason), c.sentence);
    EXPECT_EQ(EncodeEvent(event), written);
  }
}

TEST(Reason, OfALaterVersionIsNotRead) {
  EXPECT_FALSE(FromReasonRow({std::variant_size_v<ReasonVariant>}).has_value());
}

// A damaged row is read as something, which is then written the same.
TEST(Reason, AnyNumbersAndTextAreRead) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (uint64_t code = 0; code < std::variant_size_v<ReasonVariant>; ++code) {
    for (const double number : {std::nan(""), kInfinity, -kInfinity, 1e300,
                                -1e300, -0.5, 1e17 + 32}) {
      for (const char* text : {"", " ", "x", "-1", "99999999999999999999"}) {
        const ReasonRow row{code, text, number, number, text};
        const std::optional<Reason> reason = FromReasonRow(row);
        ASSERT_TRUE(reason.has_value());
        RenderReason(*reason);
        const ReasonRow once = ToReasonRow(*reason);
        if (!std::isnan(once.first) && !std::isnan(once.second)) {
          ExpectSame(ToReasonRow(*FromReasonRow(once)), once);
        }
      }
    }
  }
}

TEST(Reason, ShortFormsLeaveOutWhatIsNotKnown) {
  EXPECT_EQ(RenderReason(reason::Starting{"a", 29, 120}), "starting on a");
  EXPECT_EQ(RenderReason(reason::Starting{"a", 29, 120, "it failed once"}),
            "starting on a again: it failed once");
  EXPECT_EQ(RenderReason(reason::Moving{"a to b"}), "moving from a to b");
  EXPECT_EQ(RenderReason(reason::Moving{"a to b", 5, 10}),
            "moving from a to b: 5 of 10 bytes");
  EXPECT_THAT(RenderReason(reason::HeldFailures{JobId(7), 3, 127}),
              HasSubstr("(last: exit code 127); read"));
}

TEST(Reason, OfAnElementThatWaitsTellsHowManyMayRun) {
  EXPECT_EQ(RenderReason(reason::ArrayLimit{JobId(42), 0}),
            "waiting: for other elements of array 42, as many as the cluster "
            "runs are before it");
}

TEST(Reason, OfAWaitForAnOpaqueJobTellsWhetherItsEndIsKnown) {
  EXPECT_EQ(RenderReason(reason::WaitsForEnd{"cpu on a", JobId(3)}),
            "waiting: opaque job 3 keeps its cpu on a until it ends; it has no "
            "time_limit");
  EXPECT_EQ(RenderReason(reason::WaitsForEnd{"cpu on a", JobId(3), true}),
            "waiting: interactive job 3 keeps its cpu on a until it ends");
}

TEST(Reason, OfAnOperatorNamesIt) {
  EXPECT_EQ(RenderReason(reason::Cancelled{"olga"}),
            "cancelled by operator olga");
  EXPECT_EQ(RenderReason(reason::HeldByUser{"olga", JobId(7)}),
            "held: by `gavel hold` of operator olga; `gavel release 7` lets it "
            "go on");
}

TEST(Reason, OfAnEarlierJournalIsReadAsItWasWritten) {
  EXPECT_THAT(RenderReason(*FromReasonRow({32, "on a: no exec", 7, 2})),
              HasSubstr("at last on a: no exec; see"));
}

TEST(Reason, OthersAreToldNothingOfWhatAProgramWroteOrItsFileSays) {
  const auto told = [](const Reason& reason) {
    return RenderReason(ForOthers(reason));
  };
  const JobId job(7);
  EXPECT_EQ(told(reason::HeldFailures{job, 3, 3, "password=hunter2"}),
            "held: failed 3 times in a row without a new checkpoint (last: "
            "exit code 3); read `gavel logs 7`, then `gavel release 7`");
  EXPECT_EQ(told(reason::HeldLaunch{"./train-hunter2: no such file"}),
            "held: could not be started; `gavel why` tells its owner more");
  EXPECT_THAT(told(reason::HeldHungLaunch{"on a", job, 2, "/home/hunter2"}),
              AllOf(HasSubstr("at last on a; see"), Not(HasSubstr("hunter2"))));
  // Whatever else there is to say, everybody may know.
  for (const Case& c : Cases()) {
    EXPECT_EQ(ReasonName(ForOthers(c.reason)), c.name);
  }
}

TEST(Reason, PlacesInLineAreCountedAsPeopleDo) {
  const auto line = [](int place) {
    return RenderReason(reason::Priority{"k80", place, 0});
  };
  for (const auto& [place, text] : {std::pair{1, "1st"},
                                    {2, "2nd"},
                                    {11, "11th"},
                                    {13, "13th"},
                                    {21, "21st"},
                                    {112, "112th"}}) {
    EXPECT_THAT(line(place), HasSubstr(text));
  }
}

}  // namespace
}  // namespace gavel
