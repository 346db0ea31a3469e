// Each method against its definition in the paper.
#include "tests/tune/searches.h"

namespace gavel::tune {
namespace {

// Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar: Hyperband (JMLR 2018).

// Table 1: R = 81, eta = 3.
TEST(HyperBandPaper, Section3TheBracketsOfTheTable) {
  const SearchSpec spec =
      SearchOf("method = 'hyperband'\nsteps = 81\nsteps_min = 1");
  std::vector<int> trials;
  std::vector<std::vector<uint64_t>> rungs;
  for (const Bracket& bracket : BracketsOf(spec)) {
    trials.push_back(bracket.trials);
    rungs.push_back(bracket.rungs);
  }
  EXPECT_THAT(trials, ElementsAre(81, 34, 15, 8, 5));
  EXPECT_THAT(rungs,
              ElementsAre(ElementsAre(1, 3, 9, 27, 81),
                          ElementsAre(3, 9, 27, 81), ElementsAre(9, 27, 81),
                          ElementsAre(27, 81), ElementsAre(81)));
  EXPECT_EQ(spec.trials, 143);
}

// Table 1, by n_i and r_i: what in fact trains, over all brackets.
TEST(HyperBandPaper, Section3EachRungHasSoManyTrials) {
  World world(SearchOf("method = 'hyperband'\nsteps = 81\nsteps_min = 1"),
              ByChance);
  // Nobody fails here.
  World sound(SearchOf("method = 'hyperband'\nsteps = 81\nsteps_min = 1"),
              ByNumber);
  sound.RunToEnd();
  EXPECT_THAT(
      sound.Rungs(),
      ElementsAre(Pair(1, 81), Pair(3, 27 + 34), Pair(9, 9 + 11 + 15),
                  Pair(27, 3 + 3 + 5 + 8), Pair(81, 1 + 1 + 1 + 2 + 5)));
  world.RunToEnd();
  for (const auto& [steps, trials] : world.Rungs()) {
    EXPECT_LE(trials, sound.Rungs()[steps]);
  }
}

// Algorithm 1, line 9: "T = top_k(T, L, floor(n_i / eta))".
TEST(HyperBandPaper, Algorithm1TheBestOfEachRungGoOn) {
  World world(SearchOf("method = 'successive_halving'\ntrials = 9\nsteps = 9\n"
                       "steps_min = 1\ngoal = 'max'"),
              [](const Segment& one) { return one.trial % 5 + 0.5; });
  world.RunToEnd();
  std::vector<int> to_3;
  std::vector<int> to_9;
  for (const auto& [key, segment] : world.Segments()) {
    if (key.second == 3) to_3.push_back(key.first);
    if (key.second == 9) to_9.push_back(key.first);
  }
  // 4 has the most, then 3 and 8 have as much; of equal ones the first.
  EXPECT_THAT(to_3, ElementsAre(3, 4, 8));
  EXPECT_THAT(to_9, ElementsAre(4));
}

// Golovin et al.: Google Vizier (KDD 2017).

// Section 3.2.2: "stops a pending trial x_t at step s if the trial's best
// objective value by step s is strictly worse than the median value of the
// running averages of all completed trials' objectives reported up to step s".
TEST(VizierPaper, Section322ATrialWorseThanTheMedianStops) {
  // By trial, the metric at 1, 2 and 3 steps.
  const std::vector<std::vector<double>> losses = {
      {4, 2, 0},      // running averages 4, 3, 2
      {6, 6, 6},      // worse than 4 at once
      {5, 3, 3},      // equal to the median of {4, 6} at 1; 3 is equal at 2
      {5.5, 9, 9},    // worse than the median of {4, 6, 5} at 1
      {4.5, 4.5, 1},  // better at 1; at 2 worse than the median of {3, 4}
  };
  World world(SearchOf("method = 'median'\ntrials = 5\nsteps = 3\n"
                       "steps_min = 1"),
              [&](const Segment& one) {
                return losses[static_cast<size_t>(one.trial)][one.to_steps - 1];
              });
  world.RunToEnd();
  std::map<int, uint64_t> reached;
  for (const auto& [key, segment] : world.Segments()) {
    reached[key.first] = std::max(reached[key.first], key.second);
  }
  EXPECT_THAT(reached, ElementsAre(Pair(0, 3), Pair(1, 1), Pair(2, 3),
                                   Pair(3, 1), Pair(4, 2)));
}

// Jaderberg et al.: Population Based Training of Neural Networks (2017).

// Section 4.1, truncation selection: "if the current agent is in the bottom 20%
// of the population, we sample another agent uniformly from the top 20% of the
// population, and copy its weights and hyperparameters".
TEST(PopulationPaper, Section41TheWorstFifthContinuesFromTheBestFifth) {
  const SearchSpec spec =
      SearchOf("method = 'population'\ntrials = 10\nsteps = 2\nsteps_min = 1");
  World world(spec, ByNumber);
  world.RunToEnd();
  for (const auto& [key, segment] : world.Segments()) {
    const auto& [trial, steps] = key;
    if (steps == 2 && trial >= 8) {
      EXPECT_THAT(segment.source, AnyOf(0, 1));
      EXPECT_NE(segment.values, DrawTrial(spec, trial));
    } else {
      EXPECT_EQ(segment.source, trial);
      EXPECT_EQ(segment.values, DrawTrial(spec, trial));
    }
  }
}

// Section 4.1: "each hyperparameter independently is randomly perturbed by a
// factor of 1.2 or 0.8".
TEST(PopulationPaper, Section41ExploringMultipliesBy12Or08) {
  SearchSpec spec = SearchOf("method = 'random'\ntrials = 1\nsteps = 1");
  spec.space = {{.name = "a", .min = 0, .max = 1000},
                {.name = "b", .min = 0, .max = 1000}};
  std::set<std::vector<std::string>> seen;
  for (int trial = 0; trial < 40; ++trial) {
    seen.insert(Perturb(spec, std::vector<std::string>{"100", "10"}, trial, 5));
  }
  EXPECT_THAT(seen, UnorderedElementsAre(
                        ElementsAre("80", "8"), ElementsAre("80", "12"),
                        ElementsAre("120", "8"), ElementsAre("120", "12")));
}

}  // namespace
}  // namespace gavel::tune
