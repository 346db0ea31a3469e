#include "coordinator/tune/search_spec.h"

#include "core/text.h"
#include "tests/tune/searches.h"

namespace gavel::tune {
namespace {

constexpr char kWhole[] = R"(name = "digits"
method = "hyperband"
metric = "loss"
goal = "max"
trials_at_once = 4
best_weight = 3
steps = 81
steps_min = 1
seed = 5
[[parameter]]
name = "lr"
kind = "log_uniform"
min = 1e-5
max = 0.1
[[parameter]]
name = "depth"
kind = "integer"
min = 2
max = 5
[[parameter]]
name = "loss_kind"
kind = "choice"
values = ["l1", "l2"]
[job]
scale_factor = 2
environment = { DATA = "/data" }
)";

absl::StatusOr<SearchSpec> Parse(const std::string& text) {
  return ParseSearchSpec(text, "search.toml");
}

// The whole file with `from` replaced.
absl::StatusOr<SearchSpec> ParseWith(const std::string& from,
                                     const std::string& to) {
  std::string text = kWhole;
  text.replace(text.find(from), from.size(), to);
  return Parse(text);
}

TEST(SearchSpec, AFileIsRead) {
  ASSERT_OK_AND_ASSIGN(const SearchSpec spec, Parse(kWhole));
  EXPECT_EQ(spec.name, "digits");
  EXPECT_EQ(spec.method, Method::kHyperBand);
  EXPECT_TRUE(spec.maximise);
  EXPECT_EQ(spec.trials_at_once, 4);
  EXPECT_EQ(spec.best_weight, 3);
  EXPECT_EQ(spec.trials, 143);
  EXPECT_EQ(spec.eta, 3);
  ASSERT_EQ(spec.space.size(), 3);
  EXPECT_EQ(spec.space[1].kind, Parameter::Kind::kInteger);
  EXPECT_THAT(spec.space[2].values, ElementsAre("l1", "l2"));
  EXPECT_THAT(spec.job, HasSubstr("scale_factor = 2"));
  EXPECT_THAT(spec.job, HasSubstr("DATA"));
}

TEST(SearchSpec, AMistakeIsNamedWithItsRemedy) {
  EXPECT_THAT(Parse("name = 's'\nmethod = 'random'\nmetric = 'loss'\n"
                    "trials = 3\nsteps = 9\n"),
              IsInvalid("there is no \"parameter\""));
  EXPECT_THAT(ParseWith("best_weight = 3", "best_weight = 0.5"),
              IsInvalid("best_weight"));
  EXPECT_THAT(ParseWith("[\"l1\", \"l2\"]", "[]"),
              IsInvalid("the space of loss_kind is empty"));
  EXPECT_THAT(ParseWith("max = 0.1", "max = 1e-5"),
              IsInvalid("the space of lr is empty: max is not above min"));
  EXPECT_THAT(ParseWith("min = 1e-5", "min = 0"),
              IsInvalid("not above 0; write a larger one"));
  EXPECT_THAT(ParseWith("min = 2", "min = 2.5"), IsInvalid("whole numbers"));
  EXPECT_THAT(ParseWith("\"l2\"", "\"l1\""), IsInvalid("two values are equal"));
  EXPECT_THAT(ParseWith("\"depth\"", "\"lr\""),
              IsInvalid("two parameters are named lr"));
  EXPECT_THAT(ParseWith("\"depth\"", "\"trial\""), IsInvalid("can't name"));
  EXPECT_THAT(ParseWith("\"depth\"", "\"a-b\""), IsInvalid("can't name"));
  EXPECT_THAT(ParseWith("hyperband", "hyperbend"),
              IsInvalid("write \"random\", "));
  EXPECT_THAT(ParseWith("seed = 5", "trials = 5"),
              IsInvalid("trials has no effect with method = \"hyperband\""));
  EXPECT_THAT(ParseWith("seed = 5", "program = ['x']"),
              IsInvalid("program has no effect"));
  EXPECT_THAT(ParseWith("steps_min = 1", "steps_min = 82"),
              IsInvalid("steps_min is above steps"));
  EXPECT_THAT(ParseWith("steps = 81", "steps = 1000000000000"),
              IsInvalid("more than 10000 trials"));
  EXPECT_THAT(ParseWith("scale_factor = 2", "name = 'x'"),
              IsInvalid("[job] has name, which the search sets"));
  EXPECT_THAT(ParseWith("seed = 5", "sede = 5"), IsInvalid("seed"));
  EXPECT_THAT(ParseWith("hyperband", "median"), IsInvalid("trials"));
  EXPECT_THAT(ParseWith("method = \"hyperband\"",
                        "method = \"population\"\ntrials = 1"),
              IsInvalid("nobody to learn from"));
}

TEST(SearchSpec, AMistakeInTheJobIsAtItsLine) {
  EXPECT_THAT(ParseWith("scale_factor = 2", "weight = -1"),
              IsInvalid("search.toml:25:10: weight is -1"));
  EXPECT_THAT(ParseWith("scale_factor = 2", "scale_facter = 2"),
              IsInvalid("search.toml:25:1: unknown key"));
  EXPECT_THAT(ParseWith("scale_factor = 2", "name = 'x'"),
              IsInvalid("search.toml:25:8: [job] has name"));
  EXPECT_THAT(ParseWith("environment = { DATA = \"/data\" }",
                        "\n[job.environment]\nDATA = 5"),
              IsInvalid("search.toml:28:8: DATA is an integer"));
  EXPECT_THAT(ParseWith("scale_factor = 2", "class = \"opaque\""),
              IsInvalid("search.toml:25:9: a job of class \"opaque\" has no "
                        "checkpoint"));
}

TEST(SearchSpec, AGridIsTheProductOfItsPoints) {
  ASSERT_OK_AND_ASSIGN(
      const SearchSpec spec,
      Parse("name = 'g'\nmethod = 'grid'\nmetric = 'loss'\nsteps = 9\n"
            "[[parameter]]\nname = 'lr'\nkind = 'log_uniform'\nmin = 0.01\n"
            "max = 1\npoints = 3\n"
            "[[parameter]]\nname = 'n'\nkind = 'integer'\nmin = 1\nmax = 2\n"));
  EXPECT_EQ(spec.trials, 6);
  EXPECT_THAT(GridTrial(spec, 0), ElementsAre("0.01", "1"));
  EXPECT_THAT(GridTrial(spec, 1), ElementsAre("0.01", "2"));
  EXPECT_NEAR(std::stod(GridTrial(spec, 2)[0]), 0.1, 1e-12);
  EXPECT_THAT(GridTrial(spec, 5), ElementsAre("1", "2"));
}

TEST(SearchSpec, AGridOfTooManyPointsIsRefused) {
  EXPECT_THAT(Parse("name = 'g'\nmethod = 'grid'\nmetric = 'loss'\nsteps = 9\n"
                    "[[parameter]]\nname = 'n'\nkind = 'integer'\nmin = 1\n"
                    "max = 100001\n"),
              IsInvalid("the grid has more than 10000 points"));
}

TEST(SearchSpec, DrawnTrialsAreInTheSpaceAndTheSameForASeed) {
  ASSERT_OK_AND_ASSIGN(SearchSpec spec, Parse(kWhole));
  std::set<std::vector<std::string>> different;
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<std::string> values = DrawTrial(spec, trial);
    EXPECT_EQ(values, DrawTrial(spec, trial));
    different.insert(values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_OK(CheckValue(spec.space[i], values[i]));
    }
    const std::vector<std::string> next = Perturb(spec, values, trial, 9);
    for (size_t i = 0; i < next.size(); ++i) {
      EXPECT_OK(CheckValue(spec.space[i], next[i]));
    }
  }
  EXPECT_GT(different.size(), 190);
  spec.seed = 6;
  EXPECT_FALSE(different.contains(DrawTrial(spec, 0)));
}

TEST(SearchSpec, LogUniformHasAsMuchInEachDecade) {
  ASSERT_OK_AND_ASSIGN(const SearchSpec spec, Parse(kWhole));
  int below = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    if (std::stod(DrawTrial(spec, trial)[0]) < 1e-3) ++below;
  }
  EXPECT_NEAR(below, 2000, 150);
}

TEST(SearchSpec, ArgumentsAreFilledIn) {
  ASSERT_OK_AND_ASSIGN(const SearchSpec spec, Parse(kWhole));
  const std::vector<std::string> values = {"0.01", "3", "l2"};
  const auto fill = [&](const std::string& argument) {
    return FillIn(argument, spec.space, values, 7);
  };
  EXPECT_EQ(fill("--lr={lr},{depth}").value(), "--lr=0.01,3");
  EXPECT_EQ(fill("out-{trial}").value(), "out-7");
  EXPECT_EQ(fill("{\"a\": {lr}} {} {").value(), "{\"a\": 0.01} {} {");
  EXPECT_THAT(fill("{rate}"), IsInvalid("{rate} in the program's arguments"));
  const std::vector<std::string> some = {"./train", "{lr}"};
  EXPECT_THAT(CheckArguments(some, spec.space),
              IsInvalid("no argument of the program has {depth}"));
  // Neither of these is the parameter.
  const std::vector<std::string> literal = {"./train", "{lr}", "${depth}",
                                            "{{depth}}"};
  EXPECT_THAT(CheckArguments(literal, spec.space),
              IsInvalid("no argument of the program has {depth}"));
  EXPECT_THAT(CheckArguments({}, spec.space), IsInvalid("no program to train"));
}

}  // namespace
}  // namespace gavel::tune
