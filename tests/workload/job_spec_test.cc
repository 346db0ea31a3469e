#include "coordinator/workload/job_spec.h"

#include <cmath>
#include <random>

#include "absl/strings/str_join.h"
#include "coordinator/workload/file_keys.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr std::string_view kEveryKey = R"toml(# all keys
name = "resnet-1"
command = ["./train", "--epochs", "3"]
working_directory = "/home/ada/resnet"
checkpoint_directory = "checkpoints"
app = "ResNet-18 (batch size 64)"
entity = "vision"
class = "training"
scale_factor = 4
scale_factor_min = 2
scale_factor_max = 8
weight = 2.5
steps_total = 100000
deadline_s = 86400
retries_max = 0
hang_timeout_s = 900
start_timeout_s = 300
pause_grace_s = 90.5
visibility = "leased"

[environment]
OMP_NUM_THREADS = "2"
_DATA = "/data with \"quotes\""

[throughputs]
v100 = 45.5
k80 = 0
)toml";

// A job with `line` as its third line.
absl::StatusOr<JobSpec> ParseSpecWith(std::string_view line) {
  return ParseJobSpec(
      "name = \"a\"\ncommand = [\"./train\"]\n" + std::string(line) + "\n",
      "job.toml");
}

absl::Status ErrorOf(std::string_view toml) {
  return ParseJobSpec(toml, "job.toml").status();
}

// A small job with these flags, each "FLAG|KEY|VALUE" or the text of a --set.
absl::StatusOr<JobSpec> ParseWithFlags(const std::vector<std::string>& flags) {
  std::vector<JobSetting> settings;
  for (const std::string& flag : flags) {
    absl::StatusOr<JobSetting> setting = ParseSetting(flag);
    if (!setting.ok()) return setting.status();
    settings.push_back(*std::move(setting));
  }
  return ParseJobSpec(
      "name = \"a\"\ncommand = [\"./train\"]\nweight = 3\n"
      "[environment]\nDATA = \"/data\"\n",
      "job.toml", settings);
}

std::string ErrorWithFlag(const std::string& flag) {
  return std::string(ParseWithFlags({flag}).status().message());
}

TEST(JobSettings, OverrideTheFileAndTheLastOneCounts) {
  const absl::StatusOr<JobSpec> spec =
      ParseWithFlags({"weight=2", "name=b", "types=v100,p100", "class = opaque",
                      "steps_total=7", "environment.SEED=12", "weight=2.5",
                      "throughputs.v100=4", "app=\"my app\""});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->weight, 2.5);
  EXPECT_EQ(spec->name, "b");
  EXPECT_EQ(spec->app, "my app");
  EXPECT_EQ(spec->steps_total, 7u);
  EXPECT_THAT(spec->types, ElementsAre("v100", "p100"));
  EXPECT_EQ(spec->job_class, JobClass::kOpaque);
  EXPECT_THAT(spec->environment,
              ElementsAre(Pair("DATA", "/data"), Pair("SEED", "12")));
  EXPECT_EQ(spec->throughputs.at("v100"), 4);
  EXPECT_EQ(*ParseJobSpec(FormatJobSpec(*spec), "again"), *spec);
}

TEST(JobSettings, OverrideAKeyByAnotherOfTheSameMeaning) {
  for (const char* key : {"after", "after_success"}) {
    const std::vector<JobSetting> settings = {{"--after", key, "b,c"}};
    ASSERT_OK_AND_ASSIGN(
        const JobSpec spec,
        ParseJobSpec("name = \"a\"\ncommand = [\"./t\"]\nafter = [\"x\"]\n",
                     "job.toml", settings));
    EXPECT_THAT(spec.after_success, ElementsAre("b", "c"));
  }
}

TEST(JobSettings, OfOneMeaningAreRefusedUnderTwoNames) {
  EXPECT_THAT(ParseWithFlags({"after=b", "after_success=c"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--set after and --set after_success mean the same"));
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ParseWithFlags({"after=b", "after=c", "after_any=d"}));
  EXPECT_THAT(spec.after_success, ElementsAre("c"));
}

TEST(JobSettings, ReplaceAWholeTableInBraces) {
  const absl::StatusOr<JobSpec> spec =
      ParseWithFlags({"environment={ A = \"1\", name = \"x\" }"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->environment,
              ElementsAre(Pair("A", "1"), Pair("name", "x")));
}

TEST(JobSettings, TakeAProgramWithAnyArguments) {
  const std::vector<std::string> argv = {"./train", "[a,b]", "it's \"so\"", "",
                                         "a\nb"};
  const std::vector<JobSetting> settings = {ProgramSetting(argv),
                                            {"--name", "name", "lm"}};
  const absl::StatusOr<JobSpec> spec = ParseJobSpec("", "-- x", settings);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->argv, argv);
}

TEST(JobSettings, ErrorsNameTheFlagAndTheKey) {
  EXPECT_EQ(ErrorWithFlag("weight=-1"),
            "--set weight: weight is -1; write a number above 0");
  EXPECT_EQ(ErrorWithFlag("weight=heavy"),
            "--set weight: \"heavy\" is no value; write e.g. weight = 2.5");
  EXPECT_EQ(ErrorWithFlag("wieght=2"),
            "--set wieght: unknown key \"wieght\"; did you mean \"weight\"?");
  EXPECT_EQ(ErrorWithFlag("tipes=v100"),
            "--set tipes: unknown key \"tipes\"; did you mean \"types\"?");
  EXPECT_THAT(ErrorWithFlag("class=batch"),
              HasSubstr("--set class: class is \"batch\"; write \"training\""));
  EXPECT_THAT(ErrorWithFlag("environment.2A=x"),
              HasSubstr("--set environment.2A: \"2A\" is not the name"));
  EXPECT_EQ(ErrorWithFlag("weight=1\nname=\"b\""),
            "--set weight: give one key, as --set KEY=VALUE");
  EXPECT_THAT(ErrorWithFlag("weight"), HasSubstr("names no key and value"));
  EXPECT_THAT(ErrorWithFlag("=2"), HasSubstr("names no key and value"));
  // An error of the file itself still has its line.
  EXPECT_THAT(ErrorWithFlag("scale_factor_min=2"),
              HasSubstr("--set scale_factor_min: scale_factor_min 2 exceeds"));
  const std::vector<JobSetting> name = {{"--name", "name", "b"}};
  EXPECT_THAT(ParseJobSpec("name = \"a\"\nwieght = 2\n", "job.toml", name)
                  .status()
                  .message(),
              HasSubstr("job.toml:2:1: unknown key"));
}

TEST(JobSpec, AServerIsWantedOrExcluded) {
  EXPECT_EQ(ParseSpecWith("servers = [\"a\", \"b\"]\nexclude_servers = [\"b\"]")
                .status()
                .message(),
            "job.toml:4:19: servers and exclude_servers both name \"b\"; leave "
            "it out of one of them");
  EXPECT_THAT(ParseSpecWith("servers = [\"\"]").status().message(),
              HasSubstr("servers has an empty name"));
}

TEST(JobSpec, RefusesWhatIsNotActedOnWithARemedy) {
  EXPECT_EQ(ParseSpecWith("budget = 12.5").status().message(),
            "job.toml:3:10: budget is not supported: the coordinator does not "
            "count what a job costs; leave it out, and limit the job's running "
            "time with time_limit");
  EXPECT_THAT(ParseSpecWith("class = \"inference\""),
              IsInvalid("has no meaning yet; write \"opaque\""));
}

TEST(JobSpec, AnInteractiveJobHasAnIdleLimit) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseSpecWith("class = \"interactive\"\nidle_limit = 60"));
  EXPECT_EQ(spec.IdleLimit(), 60);
  EXPECT_TRUE(spec.opaque());
  EXPECT_EQ(ParseSpecWith("class = \"interactive\"")->IdleLimit(), 3600);
  ASSERT_OK_AND_ASSIGN(const JobSpec read,
                       ParseJobSpec(FormatJobSpec(spec), "b"));
  EXPECT_EQ(read, spec);
  EXPECT_THAT(ParseSpecWith("idle_limit = 60"),
              IsInvalid("idle_limit is for jobs of class \"interactive\""));
  EXPECT_THAT(ParseSpecWith("class = \"interactive\"\nidle_limit = 0"),
              IsInvalid("idle_limit"));
}

TEST(JobSpec, ReadsEveryKey) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec, ParseJobSpec(kEveryKey, "job.toml"));
  EXPECT_EQ(spec.name, "resnet-1");
  EXPECT_THAT(spec.argv, ElementsAre("./train", "--epochs", "3"));
  EXPECT_EQ(spec.working_directory, "/home/ada/resnet");
  EXPECT_EQ(spec.checkpoint_directory, "checkpoints");
  EXPECT_THAT(spec.environment,
              ElementsAre(Pair("OMP_NUM_THREADS", "2"),
                          Pair("_DATA", "/data with \"quotes\"")));
  EXPECT_EQ(spec.app, "ResNet-18 (batch size 64)");
  EXPECT_EQ(spec.entity, "vision");
  EXPECT_EQ(spec.job_class, JobClass::kTraining);
  EXPECT_EQ(spec.scale_factor, 4);
  EXPECT_EQ(spec.scale_factor_min, 2);
  EXPECT_EQ(spec.scale_factor_max, 8);
  EXPECT_EQ(spec.weight, 2.5);
  EXPECT_EQ(spec.steps_total, 100000U);
  EXPECT_EQ(spec.deadline_s, 86400);
  EXPECT_THAT(spec.throughputs,
              ElementsAre(Pair("k80", 0), Pair("v100", 45.5)));
  EXPECT_EQ(spec.retries_max, 0);
  EXPECT_EQ(spec.hang_timeout_s, 900);
  EXPECT_EQ(spec.start_timeout_s, 300);
  EXPECT_EQ(spec.pause_grace_s, 90.5);
  EXPECT_TRUE(spec.leased_visibility);
}

TEST(JobSpec, VisibilityIsAllOrLeased) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ParseSpecWith("visibility = \"all\""));
  EXPECT_FALSE(spec.leased_visibility);
  EXPECT_THAT(
      ParseSpecWith("visibility = \"some\""),
      IsInvalid("visibility is \"some\"; write \"all\", or \"leased\""));
}

TEST(JobSpec, NameAndCommandAreEnough) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec, ParseSpecWith(""));
  JobSpec expected;
  expected.name = "a";
  expected.argv = {"./train"};
  EXPECT_EQ(spec, expected);
}

TEST(JobSpec, ReadsEveryClass) {
  EXPECT_EQ(ParseSpecWith("class = \"training\"")->job_class,
            JobClass::kTraining);
  EXPECT_EQ(ParseSpecWith("class = \"interactive\"")->job_class,
            JobClass::kInteractive);
  EXPECT_EQ(ParseSpecWith("class = \"opaque\"")->job_class, JobClass::kOpaque);
}

TEST(JobSpec, HasATimeLimitAndATimeToStart) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ParseSpecWith("time_limit = 7200\nnot_before_s = 60"));
  EXPECT_EQ(spec.not_before_s, 60);
  EXPECT_EQ(spec.time_limit_s, 7200);
  ASSERT_OK_AND_ASSIGN(const JobSpec read,
                       ParseJobSpec(FormatJobSpec(spec), "b"));
  EXPECT_EQ(read, spec);
  EXPECT_EQ(ParseSpecWith("time_limit = \"1h30m\"")->time_limit_s, 5400);
  EXPECT_EQ(ParseWithFlags({"time_limit=2d"})->time_limit_s, 172800);
  EXPECT_EQ(ParseWithFlags({"time_limit=60"})->time_limit_s, 60);
  for (const char* bad : {"0", "\"0s\"", "\"1:30:00\"", "\"60\"", "true"}) {
    EXPECT_THAT(ParseSpecWith(StrCat("time_limit = ", bad)),
                IsInvalid("time_limit"));
  }
  EXPECT_THAT(ParseSpecWith("not_before_s = -1"), IsInvalid("not_before_s"));
}

TEST(JobSpec, AnOpaqueJobDoesNotGrow) {
  EXPECT_THAT(ParseSpecWith("class = \"opaque\"\nscale_factor_max = 2"),
              IsInvalid("can't grow and shrink"));
  EXPECT_THAT(ErrorOf("name = \"a\"\ncommand = [\"x\"]\n"
                      "class = \"opaque\"\nscale_factor_max = 2"),
              IsInvalid("job.toml:4:20: a job of class \"opaque\""));
}

TEST(JobSpec, MissingKeysAreNamedWithAnExample) {
  EXPECT_EQ(ErrorOf("command = [\"./train\"]").message(),
            "job.toml:1:1: there is no \"name\"; add e.g. name = \"resnet-1\"");
  EXPECT_THAT(ErrorOf("name = \"a\""),
              IsInvalid("job.toml:1:1: there is no \"command\"; add e.g. "
                        "command = [\"./train\", "));
}

TEST(JobSpec, AMisspeltKeyIsToldTheRightOne) {
  EXPECT_EQ(ParseSpecWith("\nscale_facter = 2").status().message(),
            "job.toml:4:1: unknown key \"scale_facter\"; did you mean "
            "\"scale_factor\"?");
  EXPECT_THAT(ParseSpecWith("wieght = 2"),
              IsInvalid("did you mean \"weight\"?"));
  EXPECT_THAT(
      ParseSpecWith("[throughput]\nv100 = 1"),
      IsInvalid("job.toml:3:2: unknown key \"throughput\"; did you mean "
                "\"throughputs\"?"));
}

TEST(JobSpec, AKeyLikeNoOtherIsToldAllOfThem) {
  EXPECT_THAT(ParseSpecWith("gpu = 2"),
              IsInvalid("job.toml:3:1: unknown key \"gpu\"; the keys here are "
                        "name, command, working_directory"));
}

TEST(JobSpec, AKeyBehindATableIsToldWhereItBelongs) {
  EXPECT_EQ(
      ParseSpecWith("[throughputs]\ncpu = 3\nscale_factor = 2")
          .status()
          .message(),
      "job.toml:5:1: \"scale_factor\" belongs above [throughputs]; move it "
      "there, or write throughputs = { scale_factor = ... } for a TYPE that is "
      "called so");
  EXPECT_EQ(
      ParseSpecWith("[environment]\nA = \"1\"\nentity = \"x\"")
          .status()
          .message(),
      "job.toml:5:1: \"entity\" belongs above [environment]; move it there, or "
      "write environment = { entity = ... } for a NAME that is called so");
  for (const FileKey& key : KeysOf(JobFileTables(), "")) {
    for (const char* table : {"environment", "throughputs"}) {
      EXPECT_THAT(ParseSpecWith(StrCat("[", table, "]\n", key.name, " = 1")),
                  IsInvalid(StrCat("4:1: \"", key.name, "\" belongs above [")));
    }
  }
}

TEST(JobSpec, BracesLeaveNoDoubtAboutAKeysTable) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseSpecWith("environment = { entity = \"x\", WEIGHT = \"2\" }\n"
                    "throughputs = { weight = 3 }"));
  EXPECT_THAT(spec.environment,
              ElementsAre(Pair("WEIGHT", "2"), Pair("entity", "x")));
  EXPECT_EQ(spec.throughputs.at("weight"), 3);
  EXPECT_EQ(spec.weight, 1);
  EXPECT_EQ(spec.entity, "");
  ASSERT_OK_AND_ASSIGN(const JobSpec read,
                       ParseJobSpec(FormatJobSpec(spec), "b"));
  EXPECT_EQ(read, spec);
}

TEST(JobSpec, WrongTypesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"scale_factor = \"2\"",
       "3:16: scale_factor is a string; write an integer"},
      {"scale_factor = 2.0",
       "3:16: scale_factor is a floating-point number; write an integer"},
      {"weight = true", "3:10: weight is a boolean; write a number"},
      {"entity = 7", "3:10: entity is an integer; write a string"},
      {"environment = \"A=1\"",
       "3:15: environment is a string; write a table [environment]"},
      {"throughputs = [1, 2]", "3:15: throughputs is an array; write a table"},
      {"deadline_s = 2024-01-01", "deadline_s is a date or time; write a num"},
      {"[environment]\nA = 1", "4:5: A is an integer; write a string"},
      {"[throughputs]\nv100 = \"fast\"", "4:8: v100 is a string; write a num"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_THAT(ParseSpecWith(line), IsInvalid(error)) << line;
  }
}

TEST(JobSpec, TheEventsThatPeopleAreToldOfAreNamed) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ParseSpecWith("notify = [\"ended\", \"at_risk\"]"));
  for (const char* event :
       {"finished", "failed", "held", "cancelled", "at_risk"}) {
    EXPECT_TRUE(WantsNotice(spec.notify, event)) << event;
  }
  EXPECT_FALSE(WantsNotice(spec.notify, "started"));
  EXPECT_FALSE(WantsNotice({"none"}, "failed"));
  EXPECT_THAT(ParseSpecWith("notify = [\"node_lost\"]"),
              IsInvalid("\"node_lost\" is no event of a job; write started"));
  EXPECT_THAT(ParseSpecWith("notify = [\"failure\"]"),
              IsInvalid("3:10: \"failure\" is no event of a job"));
  EXPECT_THAT(ParseSpecWith("notify = []"), IsInvalid("[\"none\"]"));
  EXPECT_THAT(ParseSpecWith("notify = [\"none\", \"ended\"]"),
              IsInvalid("\"none\" stands beside other events"));
}

TEST(JobSpec, TheCommandIsAnArrayOfStrings) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"./train --x\"", "2:11: command is a string; write an array of str"},
      {"[]", "2:11: command names no program"},
      {"[\"\"]", "2:11: command names no program"},
      {"[\"./train\", 3]",
       "2:23: element 2 of command is an integer; write a string"},
      {"[\"./train\", \"a\\u0000b\"]", "element 2 of command contains a NUL"},
  };
  for (const auto& [command, error] : cases) {
    EXPECT_THAT(ErrorOf(std::string("name = \"a\"\ncommand = ") + command),
                IsInvalid(error))
        << command;
  }
}

TEST(JobSpec, ValuesOutOfRangeAreNamedWithTheRange) {
  const std::pair<const char*, const char*> cases[] = {
      {"scale_factor = 0",
       "3:16: scale_factor is 0; write an integer from 1 to 4096"},
      {"scale_factor = 4097", "scale_factor is 4097; write"},
      {"scale_factor = 4294967297", "scale_factor is 4294967297; write"},
      {"scale_factor_min = -1",
       "scale_factor_min is -1; write an integer from 0"},
      {"weight = 0", "3:10: weight is 0; write a number above 0"},
      {"weight = -1.5", "weight is -1.5; write a number above 0"},
      {"weight = nan", "weight is nan; write a number above 0"},
      {"weight = inf", "weight is inf; write a number above 0"},
      {"steps_total = -5", "steps_total is -5; write an integer from 0"},
      {"deadline_s = 0", "deadline_s is 0; write a number above 0"},
      {"retries_max = -1", "retries_max is -1; write an integer from 0"},
      {"[throughputs]\nv100 = -1",
       "4:8: v100 is -1; write a number from 0 to 1e+09"},
      {"[throughputs]\nv100 = inf",
       "v100 is inf; write a number from 0 to 1e+09"},
      {"[throughputs]\nv100 = 1e-200",
       "4:8: v100 is 1e-200 steps/s; write 0, where the job can't run, or"},
      {"working_directory = \"\"", "working_directory is empty; write a path"},
      {"app = \"\"", "app has 0 bytes; write 1 to 256"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_THAT(ParseSpecWith(line), IsInvalid(error)) << line;
  }
}

TEST(JobSpec, WorkersMustEncloseTheScaleFactor) {
  EXPECT_THAT(
      ParseSpecWith("scale_factor_min = 2"),
      IsInvalid("3:20: scale_factor_min 2 exceeds scale_factor 1; lower it"));
  EXPECT_THAT(
      ParseSpecWith("scale_factor = 4\nscale_factor_max = 3"),
      IsInvalid("4:20: scale_factor_max 3 is below scale_factor 4; raise"));
  EXPECT_THAT(
      ParseSpecWith(
          "scale_factor = 4\nscale_factor_min = 4\nscale_factor_max = 4"),
      IsOk());
}

TEST(JobSpec, BadNamesAreRefused) {
  for (const char* line :
       {"entity = \"a b\"", "entity = \"\"", "class = \"batch\"",
        "[environment]\n\"A=B\" = \"1\"", "[environment]\n\"\" = \"1\"",
        "[environment]\n1A = \"1\"", "[environment]\nA-B = \"1\"",
        "[environment]\nA = \"x\\u0000\"", "[throughputs]\n\"a b\" = 1",
        "[throughputs]\n\"\" = 1"}) {
    EXPECT_THAT(ParseSpecWith(line), IsInvalid("; ")) << line;
  }
  EXPECT_THAT(ErrorOf("name = \"a/../b\"\ncommand = [\"x\"]"),
              IsInvalid("job.toml:1:8: name is \"a/../b\"; write 1 to 64"));
}

TEST(JobSpec, WhatIsNotTomlIsPointedAt) {
  EXPECT_THAT(ErrorOf("name = resnet\n"),
              IsInvalid("job.toml:1:8: not TOML: "));
  EXPECT_THAT(ParseSpecWith("name = \"b\""), IsInvalid("job.toml:3:"));
  EXPECT_THAT(ErrorOf("name = \"a\xff\""), IsInvalid("not TOML"));
}

TEST(JobSpec, NamesTheJobsThatItWaitsFor) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ParseSpecWith("after = [\"prepare\", \"12\"]\nafter_any = [\"b\"]"));
  EXPECT_THAT(spec.after_success, ElementsAre("prepare", "12"));
  EXPECT_THAT(spec.after_any, ElementsAre("b"));
  EXPECT_THAT(FormatJobSpec(spec),
              HasSubstr("after_success = [\"prepare\", \"12\"]\n"));
  EXPECT_THAT(ParseSpecWith("after_success = [\"a b\"]"),
              IsInvalid("after_success names \"a b\", which is no job"));
  EXPECT_THAT(ParseSpecWith("after_any = [\"\"]"),
              IsInvalid("after_any names \"\""));
  EXPECT_THAT(ParseSpecWith("after = [\"a\"]\nafter_success = [\"b\"]"),
              IsInvalid("after and after_success mean the same"));
  std::vector<std::string> most(kParentsMax - 1, "\"a\"");
  const std::string any = "\nafter_any = [\"b\"]";
  const auto list = [&] {
    return StrCat("after_success = [", absl::StrJoin(most, ", "), "]", any);
  };
  EXPECT_OK(ParseSpecWith(list()));
  most.push_back("\"a\"");
  EXPECT_THAT(ParseSpecWith(list()),
              IsInvalid("name 65 jobs; write 64 at most"));
}

TEST(JobSpec, TooMuchIsRefused) {
  EXPECT_THAT(ParseSpecWith("#" + std::string(kJobSpecBytesMax, 'x')),
              IsInvalid("bytes exceed the 49152 allowed"));
  std::string command = "\"./train\"";
  std::string environment = "[environment]\n";
  for (int i = 0; i < 1025; ++i) {
    command += ",\"\"";
    environment += "A" + std::to_string(i) + " = \"\"\n";
  }
  EXPECT_THAT(ErrorOf("name = \"a\"\ncommand = [" + command + "]"),
              IsInvalid("command has 1026 elements"));
  EXPECT_THAT(ParseSpecWith(environment),
              IsInvalid("3:1: environment has 1025 var"));
}

TEST(JobSpec, TheSourceMayBeAnything) {
  EXPECT_THAT(ParseJobSpec("", "<stdin>"),
              IsInvalid("<stdin>:1:1: there is no \"name\""));
}

TEST(IsValidName, TakesLettersDigitsDashAndUnderscore) {
  EXPECT_TRUE(IsValidName("a"));
  EXPECT_TRUE(IsValidName("Az09_-"));
  EXPECT_TRUE(IsValidName(std::string(64, 'x')));
  EXPECT_FALSE(IsValidName(std::string(65, 'x')));
  for (const char* name : {"", "a b", "a/b", ".", "a.b", "ä", "a\n"}) {
    EXPECT_FALSE(IsValidName(name)) << name;
  }
}

TEST(FormatJobSpec, IsReadBackAsTheSameSpec) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec, ParseJobSpec(kEveryKey, "a"));
  ASSERT_OK_AND_ASSIGN(const JobSpec read,
                       ParseJobSpec(FormatJobSpec(spec), "b"));
  EXPECT_EQ(read, spec);
  EXPECT_EQ(FormatJobSpec(read), FormatJobSpec(spec));
}

class RandomSpecs {
 public:
  explicit RandomSpecs(uint64_t seed) : random_(seed) {}

  JobSpec Next() {
    JobSpec spec;
    spec.name = Name();
    for (int n = Int(1, 4); n > 0; --n) spec.argv.push_back(Text());
    if (Int(0, 1) == 1) spec.working_directory = Text();
    if (Int(0, 1) == 1) spec.app = Text();
    if (Int(0, 1) == 1) spec.entity = Name();
    do {
      spec.job_class = static_cast<JobClass>(Int(0, 3));
    } while (spec.job_class == JobClass::kInference);
    if (spec.interactive() && Int(0, 1) == 1) spec.idle_limit_s = Positive();
    spec.scale_factor = Int(1, 4096);
    if (Int(0, 1) == 1) spec.time_limit_s = Positive();
    if (Int(0, 1) == 1) spec.not_before_s = Positive();
    if (Int(0, 1) == 1) spec.env_file = Text();
    for (int n = Int(0, 2); n > 0; --n) spec.servers.push_back(Name() + "-a");
    if (Int(0, 1) == 1) spec.exclude_servers = {"b"};
    for (int n = Int(0, 2); n > 0; --n) spec.after_success.push_back(Name());
    if (Int(0, 1) == 1) spec.after_any = {"12"};
    if (!spec.opaque()) {
      spec.scale_factor_min = Int(0, spec.scale_factor);
      spec.scale_factor_max = Int(0, 1) * Int(spec.scale_factor, 4096);
    }
    spec.weight = Positive();
    spec.steps_total = random_() >> Int(1, 63);
    if (Int(0, 1) == 1) spec.deadline_s = Positive();
    for (int n = Int(0, 3); n > 0; --n) {
      spec.environment.emplace_back("V" + std::to_string(9 - n), Text());
    }
    for (int n = Int(0, 3); n > 0; --n) spec.throughputs[Name()] = Speed();
    for (int n = Int(0, 3); n > 0; --n) spec.types.push_back(Name());
    spec.retries_max = Int(0, 1000);
    return spec;
  }

  int Int(int min, int max) {
    return std::uniform_int_distribution<int>(min, max)(random_);
  }

 private:
  std::string Name() {
    return "n-" + std::to_string(random_()).substr(0, 10) + "_X";
  }
  // Any ASCII but NUL, and some of UTF-8.
  std::string Text() {
    std::string text = "\xc3\xa4";
    for (int n = Int(0, 20); n > 0; --n) {
      text.push_back(static_cast<char>(Int(1, 127)));
    }
    return text;
  }
  double Speed() { return std::ldexp(1 + Int(0, 999) / 7.0, Int(-29, 22)); }
  double Positive() {
    return std::ldexp(1 + Int(0, 999) / 7.0, Int(-900, 900));
  }

  std::mt19937_64 random_;
};

TEST(FormatJobSpec, IsReadBackAsTheSameSpecForAnySpec) {
  RandomSpecs random(5);
  for (int i = 0; i < 500; ++i) {
    const JobSpec spec = random.Next();
    const std::string toml = FormatJobSpec(spec);
    ASSERT_OK_AND_ASSIGN(const JobSpec read, ParseJobSpec(toml, "job.toml"));
    EXPECT_EQ(read, spec) << toml;
  }
}

TEST(JobSpec, ThroughputsMayBeAtALevelOfLocality) {
  const auto parse = [](std::string_view line) {
    return ParseJobSpec(StrCat("name = \"j\"\ncommand = [\"./t\"]\n"
                               "[throughputs]\n",
                               line),
                        "job.toml");
  };
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       parse("\"v100@group\" = 9\n\"v100@rack\" = 5\n"));
  EXPECT_EQ(spec.throughputs.at("v100@group"), 9);
  EXPECT_EQ(spec.throughputs.at("v100@rack"), 5);
  EXPECT_THAT(parse("\"v100@pod\" = 9\n"),
              IsInvalid("\"v100@pod\" is at an unknown level of locality"));
}

}  // namespace
}  // namespace gavel
