#include "coordinator/workload/job_array.h"

#include <set>

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

absl::StatusOr<JobSpec> ParseWith(std::string_view lines) {
  return ParseJobSpec(
      StrCat("name = \"lm\"\ncommand = [\"./train\", \"--seed={index}\"]\n",
             lines, "\n"),
      "job.toml");
}

std::string ErrorWith(std::string_view lines) {
  return std::string(ParseWith(lines).status().message());
}

std::string Variable(const JobSpec& spec, std::string_view name) {
  for (const auto& [key, value] : spec.environment) {
    if (key == name) return value;
  }
  return "none";
}

TEST(JobArray, IndicesAreRangesStepsAndSingleOnes) {
  ASSERT_OK_AND_ASSIGN(const std::vector<int> indices,
                       ParseIndices("20,0-3,30-40:5"));
  EXPECT_THAT(indices, ElementsAre(0, 1, 2, 3, 20, 30, 35, 40));
  ASSERT_OK_AND_ASSIGN(const ArrayText limited, ParseArray("0-99%10"));
  EXPECT_EQ(limited.indices.size(), 100U);
  EXPECT_EQ(limited.at_once, 10);
  ASSERT_OK_AND_ASSIGN(const ArrayText most, ParseArray("0-9999"));
  EXPECT_EQ(most.indices.size(), kElementsMax);
  EXPECT_EQ(most.at_once, 0);
}

TEST(JobArray, IndicesAreWrittenAsShortAsTheyCanBe) {
  for (const char* text :
       {"7", "0-9", "0-9,20", "0-9,20,30-40:5", "1,3", "1-5:2", "5-6,9,12"}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<int> indices, ParseIndices(text));
    EXPECT_EQ(FormatIndices(indices), text);
  }
}

TEST(JobArray, WhatIsNoArrayIsRefusedWithWhatToWrite) {
  for (const auto& [text, part] : {
           std::pair{"", "array is empty; write indices as 0-99"},
           {"0-9999999", "it has 10000000 elements or more; write 10000 at"},
           {"0-9,100000-199999", "elements or more; write 10000 at most"},
           {"1000000", "index 1000000 is too large; write 999999 at most"},
           {"9-0", "\\\"9-0\\\" is an empty range; write indices as"},
           {"0-9:0", "has steps of 0"},
           {"0-9:99999999999999999999", "has steps that are too large"},
           {"3:2", "is no index and no range"},
           {"1,,2", "\\\"\\\" is no index"},
           {"-3", "is no index"},
           {"3-", "is no index"},
           {"a-b", "is no index"},
           {"99999999999999999999", "is too large"},
           {"0-99999999999999999999", "elements or more; write"},
           {"0-9223372036854775807", "elements or more; write"},
           {"0-9%0", "a number from 1 to 10000, or leave it out"},
           {"0-9%", "write % and a number"},
           {"0-9%ten", "write % and a number"},
           {"%4", "it names no element"},
           {"0-9,5", "index 5 is there twice; name each element once"},
       }) {
    const std::string error = ErrorWith(StrCat("array = \"", text, "\""));
    std::string plain = error;
    EXPECT_THAT(plain, StartsWith("job.toml:3:")) << text;
    std::string wanted = part;
    std::erase(wanted, '\\');
    EXPECT_THAT(plain, HasSubstr(wanted)) << text;
  }
}

TEST(JobArray, TheRefusalOfALongTextIsShort) {
  const std::string text(40'000, 'x');
  for (const std::string& array : {text, "0-9%" + text}) {
    const absl::Status status = ParseWith("array = \"" + array + "\"").status();
    EXPECT_FALSE(status.ok());
    EXPECT_LT(status.message().size(), 1000u);
  }
}

TEST(JobArray, AnElementHasItsNameItsIndexAndADirectoryOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseWith("array = \"0-9%3\"\ncheckpoint_directory = \"/ck/lm\""));
  EXPECT_TRUE(HasElements(spec));
  EXPECT_EQ(AtOnceOf(spec), 3);
  EXPECT_EQ(IndicesOf(spec).size(), 10U);
  const JobSpec element = ElementSpec(spec, 7);
  EXPECT_EQ(element.name, "lm_7");
  EXPECT_EQ(element.app, "lm");
  EXPECT_EQ(element.Workload(), "lm");
  EXPECT_EQ(element.checkpoint_directory, "/ck/lm_7");
  EXPECT_THAT(element.argv, ElementsAre("./train", "--seed=7"));
  EXPECT_EQ(Variable(element, "GAVEL_ARRAY_INDEX"), "7");
  EXPECT_FALSE(HasElements(element));
  // `gavel update` reads it again as a job file.
  ASSERT_OK_AND_ASSIGN(const JobSpec again,
                       ParseJobSpec(FormatJobSpec(element), "again.toml"));
  EXPECT_EQ(again, element);
}

TEST(JobArray, AnElementKeepsTheAppAndTheWorkloadOfTheFile) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseWith("array = \"0-9\"\napp = \"search\"\nworkload = \"LM\""));
  EXPECT_EQ(ElementSpec(spec, 0).app, "search");
  EXPECT_EQ(ElementSpec(spec, 0).Workload(), "LM");
}

TEST(Sweep, ItsElementsAreAllCombinationsOfTheValues) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseJobSpec("name = \"lm\"\n"
                   "command = [\"./train\", \"{lr}\", \"{depth}x\", \"{\"]\n"
                   "at_once = 2\n"
                   "[sweep]\n"
                   "lr = [0.1, 0.01, 1.0, 1e-12]\n"
                   "depth = [2, \"four\", true]\n",
                   "job.toml"));
  EXPECT_EQ(AtOnceOf(spec), 2);
  const std::vector<int> indices = IndicesOf(spec);
  ASSERT_EQ(indices.size(), 12U);
  std::set<std::vector<std::string>> seen;
  for (const int index : indices) seen.insert(ElementSpec(spec, index).argv);
  EXPECT_EQ(seen.size(), 12U);
  // By name, and the last one changes fastest.
  const JobSpec second = ElementSpec(spec, 1);
  EXPECT_THAT(second.argv, ElementsAre("./train", "0.01", "2x", "{"));
  EXPECT_EQ(Variable(second, "GAVEL_SWEEP_LR"), "0.01");
  EXPECT_EQ(Variable(second, "GAVEL_SWEEP_DEPTH"), "2");
  EXPECT_EQ(Variable(second, "GAVEL_ARRAY_INDEX"), "1");
  EXPECT_EQ(ElementSpec(spec, 2).argv[1], "1");
  EXPECT_EQ(ElementSpec(spec, 3).argv[1], "1e-12");
  EXPECT_EQ(ElementSpec(spec, 11).argv[2], "truex");
  ASSERT_OK_AND_ASSIGN(const JobSpec again,
                       ParseJobSpec(FormatJobSpec(spec), "again.toml"));
  EXPECT_EQ(again, spec);
}

TEST(Sweep, WhatIsNoSweepIsRefusedWithWhatToWrite) {
  EXPECT_THAT(ErrorWith("array = \"0-9\"\n[sweep]\nlr = [1]"),
              HasSubstr("both array and [sweep]; leave one of them out"));
  EXPECT_THAT(ErrorWith("[sweep]"), HasSubstr("sweep has no parameters"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = []"), HasSubstr("lr has no values"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = [[1]]"), HasSubstr("element 1 of lr"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = 0.1"), HasSubstr("an array of"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = [nan]"),
              HasSubstr("element 1 of lr is not a finite number; write one"));
  EXPECT_THAT(ErrorWith("[sweep]\nindex = [1]"), HasSubstr("can't name"));
  EXPECT_THAT(ErrorWith("[sweep]\n\"a b\" = [1]"), HasSubstr("can't name"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = [1]\nLR = [2]"),
              HasSubstr("the variable GAVEL_SWEEP_LR"));
  EXPECT_THAT(ErrorWith("array = \"0-9%2\"\nat_once = 2"),
              HasSubstr("at_once is of a job with [sweep]"));
  EXPECT_THAT(ErrorWith("array = \"0-9\"\nenvironment = { GAVEL_ARRAY_INDEX = "
                        "\"1\" }"),
              HasSubstr("can't set GAVEL_ARRAY_INDEX"));
  std::string many = "[sweep]\n";
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    StrAppend(&many, name, " = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n");
  }
  EXPECT_THAT(ErrorWith(many), HasSubstr("more than 10000 combinations"));
}

TEST(Sweep, AnArgumentMayNameNothingElse) {
  EXPECT_THAT(
      ParseJobSpec("name = \"a\"\ncommand = [\"./train\", \"{lr}\"]\n"
                   "array = \"0-3\"\n",
                   "job.toml")
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "{lr} in command names no parameter; write it in [sweep]"));
  // Braces around anything else are the program's own.
  EXPECT_OK(ParseJobSpec("name = \"a\"\n"
                         "command = [\"./train\", '{\"a\": 1}', \"{}\"]\n"
                         "array = \"0-3\"\n",
                         "job.toml")
                .status());
}

TEST(JobArray, NamesAndProgramsStayWithinTheLimitsOfAJob) {
  const std::string name(62, 'n');
  EXPECT_OK(ParseJobSpec(StrCat("name = \"", name,
                                "\"\ncommand = [\"x\"]\narray = \"0-9\"\n"),
                         "job.toml")
                .status());
  EXPECT_THAT(
      ParseJobSpec(StrCat("name = \"", name,
                          "\"\ncommand = [\"x\"]\narray = \"0-10\"\n"),
                   "job.toml")
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "more than 64 characters"));
  const std::string large(10'000, 'x');
  EXPECT_THAT(
      ParseJobSpec(StrCat("name = \"a\"\ncommand = [\"", large,
                          "\"]\narray = \"0-9999\"\n"),
                   "job.toml")
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "write fewer elements"));
}

TEST(JobArray, AMistakeIsAtItsLine) {
  EXPECT_THAT(ErrorWith("at_once = 2"), StartsWith("job.toml:3:11: at_once"));
  EXPECT_THAT(ErrorWith("array = \"0-9%2\"\nat_once = 2"),
              StartsWith("job.toml:4:11: at_once"));
  EXPECT_THAT(ErrorWith("[sweep]\nlr = [1]\ndepth = []"),
              StartsWith("job.toml:5:9: sweep: depth has no values"));
  EXPECT_THAT(ErrorWith("array = \"0-9\"\n[environment]\nA = \"1\"\n"
                        "GAVEL_ARRAY_INDEX = \"1\""),
              StartsWith("job.toml:6:21: [environment] can't set"));
}

TEST(JobArray, AJobWithoutEitherIsOneJob) {
  EXPECT_THAT(ParseWith("at_once = 2").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "at_once is of a job with [sweep]"));
  ASSERT_OK_AND_ASSIGN(const JobSpec spec, ParseWith(""));
  EXPECT_FALSE(HasElements(spec));
  EXPECT_THAT(IndicesOf(spec), IsEmpty());
  EXPECT_EQ(spec.argv[1], "--seed={index}");
}

TEST(JobArray, ByIndexAnElementNamesOneOfTheOtherArray) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ParseWith("array = \"0-9\"\nafter = [\"top\"]\n"
                                 "after_by_index = [\"prep\", \"42\"]"));
  EXPECT_EQ(*ParseJobSpec(FormatJobSpec(spec), "again"), spec);
  const JobSpec element = ElementSpec(spec, 3);
  EXPECT_THAT(element.after_success, ElementsAre("top", "prep_3", "42_3"));
  EXPECT_THAT(element.after_by_index, IsEmpty());
  EXPECT_EQ(ElementIdentity(spec, 3).name, element.name);
  EXPECT_THAT(ErrorWith("after_by_index = [\"prep\"]"),
              HasSubstr("3:18: after_by_index is for a job with array or "
                        "[sweep]; write after_success"));
}

TEST(JobArray, AnElementIsNamedByArrayAndIndex) {
  const std::optional<ElementId> id = ParseElementId("42_7");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->array, 42u);
  EXPECT_EQ(id->index, 7);
  for (const char* other : {"42", "42_", "_7", "lm_7", "42_x", "42_7_1",
                            "42_1000000", "42_[7]", ""}) {
    EXPECT_FALSE(ParseElementId(other).has_value()) << other;
  }
  EXPECT_EQ(ArrayNameOf("a_b_12"), "a_b");
}

// A text of braces that nothing closes is looked at once.
TEST(JobArray, BracesThatAreNotClosedCostNoMoreThanOtherCharacters) {
  const auto none = [](std::string_view) -> absl::StatusOr<std::string> {
    return "value";
  };
  const std::string open(10'000'000, '{');
  EXPECT_EQ(*FillBraces(open, none), open);
  const std::string name(64, 'a');
  EXPECT_EQ(*FillBraces("{" + name + "}", none), "value");
  EXPECT_EQ(*FillBraces("{" + name + "a}", none), "{" + name + "a}");
  EXPECT_EQ(*FillBraces("{{x}", none), "{value");
  EXPECT_EQ(*FillBraces("{x", none), "{x");
  EXPECT_EQ(*FillBraces("{}{x}}{1}", none), "{}value}{1}");
}

TEST(JobArray, BracesOfAShellOrInDoubleBracesStay) {
  const auto value = [](std::string_view) -> absl::StatusOr<std::string> {
    return "7";
  };
  EXPECT_EQ(*FillBraces("{x} ${x} {{x}} ${{x}}", value), "7 ${x} {x} ${x}");
  EXPECT_EQ(*FillBraces("$ {x}{x} {{x} {{1}}", value), "$ 77 {7 {{1}}");

  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseJobSpec("name = \"lm\"\narray = \"0-9\"\ncommand = [\"sh\", "
                   "\"-c\", \"cd ${HOME}; awk '{{print}}' {index}\"]\n",
                   "job.toml"));
  EXPECT_EQ(ElementSpec(spec, 3).argv[2], "cd ${HOME}; awk '{print}' 3");
  EXPECT_THAT(ParseJobSpec("name = \"lm\"\narray = \"0-9\"\ncommand = "
                           "[\"awk\", \"{print}\"]\n",
                           "job.toml")
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "or {{print}} for the program to see {print}"));
}

}  // namespace
}  // namespace gavel
