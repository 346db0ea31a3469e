// Every method keeps its bounds, does not depend on the order in which trials
// train, and resumes from its record.
#include "tests/tune/searches.h"

namespace gavel::tune {
namespace {

std::vector<SearchSpec> AllMethods() {
  return {
      SearchOf("method = 'random'\ntrials = 7\nsteps = 9"),
      SearchOf("method = 'grid'\nsteps = 9"),
      SearchOf("method = 'successive_halving'\ntrials = 11\nsteps = 20\n"
               "steps_min = 2\neta = 2"),
      SearchOf("method = 'hyperband'\nsteps = 30\nsteps_min = 2"),
      SearchOf("method = 'median'\ntrials = 9\nsteps = 10\nsteps_min = 3\n"
               "trials_at_once = 3\ngoal = 'max'"),
      SearchOf("method = 'population'\ntrials = 10\nsteps = 10\n"
               "steps_min = 2\ntrials_at_once = 4"),
      SearchOf("method = 'program'\ntrials = 9\nsteps = 10\nsteps_min = 4\n"
               "trials_at_once = 4\nprogram = ['x']"),
  };
}

World WorldOf(const SearchSpec& spec, unsigned seed) {
  World world(spec, ByChance, seed);
  world.answer = [](const Question& asked) {
    const bool stop = asked.steps > 0 && asked.value.value_or(0) > 0.7;
    return Answer{asked.trial, asked.steps, stop, {"0.1"}};
  };
  return world;
}

TEST(Optimiser, NoTrialGetsMoreStepsThanTheSearchAllows) {
  for (const SearchSpec& spec : AllMethods()) {
    SCOPED_TRACE(NameOf(spec.method));
    World world = WorldOf(spec, 1);
    world.RunToEnd();
    ASSERT_FALSE(world.begun().empty());
    for (const auto& [key, segment] : world.Segments()) {
      EXPECT_LE(segment.to_steps, spec.steps);
      EXPECT_LT(segment.from_steps, segment.to_steps);
      EXPECT_LT(segment.trial, spec.trials);
    }
  }
}

TEST(Optimiser, ATrialContinuesWhereItOrItsSourceHasEnded) {
  for (const SearchSpec& spec : AllMethods()) {
    SCOPED_TRACE(NameOf(spec.method));
    World world = WorldOf(spec, 1);
    world.RunToEnd();
    std::map<std::pair<int, uint64_t>, Outcome> ended;
    for (const SegmentRecord& one : world.begun()) {
      ended[{one.segment.trial, one.segment.to_steps}] = one.outcome;
    }
    for (const auto& [key, segment] : world.Segments()) {
      if (segment.from_steps == 0) continue;
      const auto before = ended.find({segment.source, segment.from_steps});
      ASSERT_NE(before, ended.end());
      EXPECT_EQ(before->second, Outcome::kDone);
    }
  }
}

TEST(Optimiser, AtMostSoManyTrialsHaveAJob) {
  const SearchSpec spec =
      SearchOf("method = 'random'\ntrials = 9\nsteps = 2\ntrials_at_once = 4");
  const Plan plan = Decide(spec, {});
  EXPECT_EQ(plan.next.size(), 9);  // as far as trials_at_once allows
  EXPECT_FALSE(plan.over);
}

TEST(Optimiser, TheOrderInWhichTrialsEndChangesNothing) {
  for (const SearchSpec& spec : AllMethods()) {
    SCOPED_TRACE(NameOf(spec.method));
    World first = WorldOf(spec, 1);
    first.RunToEnd();
    for (unsigned seed = 2; seed < 20; ++seed) {
      World other = WorldOf(spec, seed);
      other.RunToEnd();
      EXPECT_EQ(other.Segments(), first.Segments());
    }
  }
}

TEST(Optimiser, ItResumesFromItsRecordAtEveryStep) {
  for (const SearchSpec& spec : AllMethods()) {
    SCOPED_TRACE(NameOf(spec.method));
    SearchState state;
    state.id = "abcdef";
    std::mt19937 random(3);
    for (int step = 0; step < 1000; ++step) {
      const absl::StatusOr<SearchState> read = DecodeState(EncodeState(state));
      ASSERT_OK(read);
      const Plan plan = Decide(spec, state.begun(), state.answers);
      const Plan again = Decide(spec, read->begun(), read->answers);
      ASSERT_EQ(again.next, plan.next);
      ASSERT_EQ(again.question, plan.question);
      ASSERT_EQ(again.over, plan.over);
      if (plan.over) break;
      if (plan.question) {
        state.answers.push_back(
            {plan.question->trial, plan.question->steps, false, {"0.1"}});
        continue;
      }
      if (!plan.next.empty() && random() % 2 == 0) {
        TrialSegment begun;
        begun.segment = plan.next.front();
        state.segments.push_back(begun);
        continue;
      }
      for (TrialSegment& one : state.segments) {
        if (one.outcome != Outcome::kRunning) continue;
        const std::optional<double> value = ByChance(one.segment);
        one.outcome = value ? Outcome::kDone : Outcome::kFailed;
        one.value = value.value_or(0);
        break;
      }
    }
    EXPECT_TRUE(Decide(spec, state.begun(), state.answers).over);
  }
}

TEST(Optimiser, ASearchOfFailuresEnds) {
  for (const SearchSpec& spec : AllMethods()) {
    SCOPED_TRACE(NameOf(spec.method));
    World world(spec, [](const Segment&) { return std::nullopt; });
    world.RunToEnd();
    EXPECT_FALSE(BestOf(spec, world.begun()));
    for (const auto& [key, segment] : world.Segments()) {
      EXPECT_EQ(segment.from_steps, 0);
    }
  }
}

// Steps to come, longest to come, steps in all, longest in all.
std::vector<double> GoalNumbers(const SearchSpec& spec,
                                const std::vector<SegmentRecord>& begun) {
  const AppGoal goal = GoalOf(spec, begun);
  EXPECT_EQ(goal.app, "s");
  EXPECT_FALSE(goal.ended);
  return {goal.steps_to_come, goal.longest_to_come, goal.steps_total,
          goal.longest_total};
}

SegmentRecord Record(int trial, uint64_t from, uint64_t to,
                     Outcome outcome = Outcome::kRunning, double value = 0) {
  return {{trial, from, to, trial, {"1"}}, outcome, value};
}

TEST(Goal, TrialsThatTrainToTheEndAreToComeUntilTheyBegin) {
  const SearchSpec random =
      SearchOf("method = 'random'\ntrials = 3\nsteps = 10");
  EXPECT_THAT(GoalNumbers(random, {}), ElementsAre(30, 10, 30, 10));
  EXPECT_THAT(GoalNumbers(random, {Record(0, 0, 10)}),
              ElementsAre(20, 10, 30, 10));
  EXPECT_THAT(GoalNumbers(random, {Record(0, 0, 10, Outcome::kFailed),
                                   Record(1, 0, 10), Record(2, 0, 10)}),
              ElementsAre(0, 0, 20, 10));
  const SearchSpec grid = SearchOf("method = 'grid'\nsteps = 10");
  EXPECT_THAT(GoalNumbers(grid, {}), ElementsAre(40, 10, 40, 10));
}

// 4 trials to 1, 2 of them to 2, 1 to 4.
TEST(Goal, OfHalvingTheTrialsOfLaterRungsAreToCome) {
  const SearchSpec spec = SearchOf(
      "method = 'successive_halving'\ntrials = 4\nsteps = 4\n"
      "steps_min = 1\neta = 2");
  EXPECT_THAT(GoalNumbers(spec, {}), ElementsAre(8, 4, 8, 4));
  std::vector<SegmentRecord> begun;
  for (int trial = 0; trial < 4; ++trial) begun.push_back(Record(trial, 0, 1));
  EXPECT_THAT(GoalNumbers(spec, begun), ElementsAre(4, 3, 8, 4));
  for (SegmentRecord& one : begun) one.outcome = Outcome::kDone;
  EXPECT_THAT(GoalNumbers(spec, begun), ElementsAre(4, 3, 8, 4));
  begun.push_back(Record(0, 1, 2));
  begun.push_back(Record(1, 1, 2));
  EXPECT_THAT(GoalNumbers(spec, begun), ElementsAre(2, 2, 8, 4));
}

// The example of Li et al.: 81, 34, 15, 8 and 5 trials.
TEST(Goal, OfHyperBandAllWorkStaysTheSame) {
  const SearchSpec spec =
      SearchOf("method = 'hyperband'\nsteps = 81\nsteps_min = 1\neta = 3");
  World world(spec, ByNumber);
  const std::vector<double> first = GoalNumbers(spec, {});
  EXPECT_EQ(first[0], first[2]);
  EXPECT_EQ(first[1], 81);
  do {
    const std::vector<double> now = GoalNumbers(spec, world.begun());
    EXPECT_EQ(now[2], first[2]);
    EXPECT_LE(now[0], first[0]);
  } while (world.Step());
  EXPECT_THAT(GoalNumbers(spec, world.begun()),
              ElementsAre(0, 0, first[2], 81));
}

TEST(Goal, OfMedianATrialGoesOnUntilItIsStopped) {
  const SearchSpec spec =
      SearchOf("method = 'median'\ntrials = 3\nsteps = 10\nsteps_min = 4");
  EXPECT_THAT(GoalNumbers(spec, {}), ElementsAre(30, 10, 30, 10));
  const SegmentRecord good = Record(0, 0, 4, Outcome::kDone, 1);
  EXPECT_THAT(GoalNumbers(spec, {good, Record(1, 0, 4), Record(2, 0, 4)}),
              ElementsAre(18, 6, 30, 10));
  // It is worse than the first.
  EXPECT_THAT(GoalNumbers(spec, {good, Record(1, 0, 4, Outcome::kDone, 2),
                                 Record(2, 0, 4)}),
              ElementsAre(12, 6, 24, 10));
}

TEST(Goal, OfAPopulationAllTrialsTrainToTheEnd) {
  const SearchSpec spec = SearchOf(
      "method = 'population'\ntrials = 4\nsteps = 10\n"
      "steps_min = 5");
  EXPECT_THAT(GoalNumbers(spec, {}), ElementsAre(40, 10, 40, 10));
  std::vector<SegmentRecord> begun;
  for (int trial = 0; trial < 4; ++trial) {
    begun.push_back(Record(trial, 0, 5, Outcome::kDone, trial));
  }
  EXPECT_THAT(GoalNumbers(spec, begun), ElementsAre(20, 5, 40, 10));
}

TEST(Goal, OfAProgramOnlyThatItGoesOn) {
  const SearchSpec spec =
      SearchOf("method = 'program'\ntrials = 3\nsteps = 4\nprogram = ['x']");
  EXPECT_THAT(GoalNumbers(spec, {}), ElementsAre(0, 0, 0, 0));
}

// A search begins only segments that were to come before.
TEST(Goal, NothingBeginsThatWasNotToCome) {
  for (const SearchSpec& spec : AllMethods()) {
    if (spec.method == Method::kProgram) continue;
    SCOPED_TRACE(NameOf(spec.method));
    World world = WorldOf(spec, 1);
    double total = GoalNumbers(spec, {})[2];
    while (world.Step()) {
      const std::vector<double> now = GoalNumbers(spec, world.begun());
      EXPECT_LE(now[2], total);
      total = now[2];
    }
    EXPECT_EQ(GoalNumbers(spec, world.begun())[0], 0);
  }
}

TEST(Optimiser, AFailedTrialOfAPopulationContinuesAnother) {
  const SearchSpec spec =
      SearchOf("method = 'population'\ntrials = 5\nsteps = 3\nsteps_min = 1");
  World world(spec, [](const Segment& one) -> std::optional<double> {
    if (one.trial == 2 && one.to_steps == 1) return std::nullopt;
    return one.trial;
  });
  world.RunToEnd();
  EXPECT_EQ(world.Segments().at({2, 2}).source, 0);
  EXPECT_EQ(world.Segments().at({2, 3}).source, 2);
}

TEST(Optimiser, TheBestIsTheBestOfThoseThatTrainedLongest) {
  SearchSpec spec = SearchOf("method = 'random'\ntrials = 4\nsteps = 9");
  const auto record = [](int trial, uint64_t steps, double value) {
    return SegmentRecord{
        {trial, 0, steps, trial, {"1"}}, Outcome::kDone, value};
  };
  const std::vector<SegmentRecord> begun = {
      record(0, 3, 0.1), record(1, 9, 0.5), record(2, 9, 0.4),
      record(3, 9, 0.4)};
  EXPECT_EQ(BestOf(spec, begun)->trial, 2);
  spec.maximise = true;
  EXPECT_EQ(BestOf(spec, begun)->trial, 1);
  EXPECT_FALSE(BestOf(spec, {}));
}

TEST(Optimiser, AProgramIsToldInTheOrderOfTrialsAndThenAsked) {
  const SearchSpec spec = SearchOf(
      "method = 'program'\ntrials = 3\nsteps = 4\nsteps_min = 2\n"
      "trials_at_once = 2\nprogram = ['x']");
  World world(spec, ByNumber);
  std::vector<std::string> asked;
  world.answer = [&](const Question& question) {
    asked.push_back(StrCat(question.trial, "@", question.steps));
    const bool stop = question.trial == 0 && question.steps == 2;
    return Answer{question.trial, question.steps, stop, {"0.1"}};
  };
  world.RunToEnd();
  EXPECT_THAT(asked, ElementsAre("0@0", "1@0", "0@2", "1@2", "2@0", "1@4",
                                 "2@2", "2@4"));
}

TEST(Optimiser, AProgramMayHaveNoMoreTrials) {
  const SearchSpec spec =
      SearchOf("method = 'program'\ntrials = 9\nsteps = 4\nprogram = ['x']");
  World world(spec, ByNumber);
  world.answer = [](const Question& question) {
    return Answer{question.trial, question.steps, question.trial >= 2, {"0.1"}};
  };
  world.RunToEnd();
  EXPECT_EQ(world.begun().size(), 2);
}

}  // namespace
}  // namespace gavel::tune
