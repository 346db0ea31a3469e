#include "coordinator/workload/cluster_spec.h"

#include "core/codec.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr std::string_view kExample = R"([scheduling]
policy = "max_min_fairness"
round_duration_s = 5
lease_duration_s = 2
[[server]]
name = "here"
[[server.accelerator]]
type = "cpu_fast"
count = 2
threads = 3
[[server.accelerator]]
type = "cpu_slow"
slow_down_factor = 2.0
[[server]]
name = "there"
[[server.accelerator]]
type = "h200"
device = "cuda:0"
[[server.accelerator]]
type = "h200"
device = "cuda:1"
)";

absl::StatusOr<ClusterSpec> Parse(std::string_view toml) {
  return ParseClusterSpec(toml, "cluster.toml");
}

// A cluster of one server with one accelerator of these lines, from line 5.
absl::StatusOr<ClusterSpec> ParseAccelerator(std::string_view lines) {
  return Parse("[[server]]\nname = \"a\"\n[[server.accelerator]]\n" +
               std::string("type = \"v100\"\n") + std::string(lines));
}

TEST(ClusterSpec, ReadsTheExample) {
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec, Parse(kExample));
  EXPECT_EQ(spec.scheduling.policy, "max_min_fairness");
  EXPECT_EQ(spec.scheduling.round_duration_s, 5);
  EXPECT_EQ(spec.scheduling.lease_duration_s, 2);
  const ServerSpec here = {
      "here",
      {{.type = "cpu_fast", .uuid = "here-0", .device = "cpu", .threads = 3},
       {.type = "cpu_fast", .uuid = "here-1", .device = "cpu", .threads = 3},
       {.type = "cpu_slow", .uuid = "here-2", .slow_down_factor = 2}}};
  const ServerSpec there = {
      "there",
      {{.type = "h200", .uuid = "there-0", .device = "cuda:0"},
       {.type = "h200", .uuid = "there-1", .device = "cuda:1"}}};
  EXPECT_THAT(spec.servers, ElementsAre(here, there));
}

TEST(ClusterSpec, SizesOfMemoryAreTextWithAUnit) {
  const auto parse = [](std::string_view host, std::string_view memory,
                        std::string_view context) {
    return ParseClusterSpec(
        StrCat("[[server]]\nname = \"here\"\nhost_memory_bytes = ", host,
               "\n[[server.accelerator]]\ntype = \"h200\"\nmemory_bytes = ",
               memory, "\ncontext_bytes = ", context, "\n"),
        "cluster.toml");
  };
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec,
                       parse("\"1.5TiB\"", "\"141 GiB\"", "\"500MiB\""));
  constexpr uint64_t kMiB = 1024 * 1024;
  const ServerSpec& server = spec.servers.at(0);
  EXPECT_EQ(server.host_memory_bytes, 1536 * 1024 * kMiB);
  EXPECT_EQ(server.accelerators.at(0).memory_bytes, 141 * 1024 * kMiB);
  EXPECT_EQ(server.accelerators.at(0).context_bytes, 500 * kMiB);
  for (const char* wrong : {"\"64\"", "\"GiB\"", "\"-1GiB\"", "\"64GB\"",
                            "\"2000TiB\"", "\"0KiB\"", "\"nanGiB\""}) {
    EXPECT_THAT(parse(wrong, "\"2GiB\"", "\"1GiB\""),
                IsInvalid("cluster.toml:3:"))
        << wrong;
  }
  EXPECT_THAT(parse("64", "\"2GiB\"", "\"1GiB\""),
              IsInvalid("host_memory_bytes"));
  EXPECT_THAT(parse("\"64GiB\"", "\"1GiB\"", "\"2GiB\""),
              IsInvalid("part of memory_bytes"));
}

TEST(ClusterSpec, VisibilityIsOfAServerAndItsGpus) {
  const auto parse = [](std::string_view visibility) {
    return Parse(
        StrCat("[[server]]\nname = \"here\"\nvisibility = ", visibility,
               "\n[[server.accelerator]]\ntype = \"a\"\ndevice = "
               "\"cuda:0\"\nexclusive = true\n"
               "[[server.accelerator]]\ntype = \"cpu\"\n"));
  };
  ASSERT_OK_AND_ASSIGN(const ClusterSpec leased, parse("\"leased\""));
  const auto& accelerators = leased.servers.at(0).accelerators;
  EXPECT_TRUE(accelerators.at(0).alone_visible);
  EXPECT_TRUE(accelerators.at(0).exclusive);
  EXPECT_FALSE(accelerators.at(1).alone_visible) << "a CPU slot hides nothing";
  EXPECT_FALSE(accelerators.at(1).exclusive);
  ASSERT_OK_AND_ASSIGN(const ClusterSpec all, parse("\"all\""));
  EXPECT_FALSE(all.servers.at(0).accelerators.at(0).alone_visible);
  EXPECT_THAT(parse("\"none\""), IsInvalid("visibility is \"none\""));
}

TEST(ClusterSpec, AGpuIsDeclaredByItsUuidOrItsDevice) {
  const auto parse = [](std::string_view keys) {
    return Parse(
        StrCat("[[server]]\nname = \"here\"\n"
               "[[server.accelerator]]\ntype = \"a\"\n",
               keys));
  };
  ASSERT_OK_AND_ASSIGN(
      const ClusterSpec spec,
      parse("uuid = \"MIG-8a1b2c3d\"\n"
            "[[server.accelerator]]\ntype = \"a\"\nuuid = \"GPU-8a1b2c3d\""));
  const auto& accelerators = spec.servers.at(0).accelerators;
  EXPECT_EQ(accelerators.at(0).uuid, "MIG-8a1b2c3d");
  EXPECT_EQ(accelerators.at(1).uuid, "GPU-8a1b2c3d");
  EXPECT_EQ(accelerators.at(1).device, "cuda:1");
  EXPECT_THAT(parse("uuid = \"8a1b2c3d\""), IsInvalid("as `nvidia-smi -L`"));
  EXPECT_THAT(parse("uuid = \"GPU-1\""), IsInvalid("as `nvidia-smi -L`"));
  EXPECT_THAT(parse("uuid = \"GPU-8a1b2c3d\"\ndevice = \"cuda:0\""),
              IsInvalid("uuid and device both say which GPU it is"));
  EXPECT_THAT(parse("uuid = \"GPU-8a1b2c3d\"\ncount = 2"),
              IsInvalid("leave it out for \"GPU-8a1b2c3d\""));
}

TEST(ClusterSpec, AnEmptyFileIsAllDefaults) {
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec, Parse(""));
  EXPECT_THAT(spec.servers, IsEmpty());
  EXPECT_EQ(spec.scheduling.policy, "max_min_fairness_perf");
  EXPECT_EQ(spec.scheduling.round_duration_s, 360);
  EXPECT_EQ(spec.scheduling.lease_duration_s, 60);
}

TEST(ClusterSpec, AShortRoundShortensTheDefaultLease) {
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec,
                       Parse("[scheduling]\nround_duration_s = 5"));
  EXPECT_EQ(spec.scheduling.lease_duration_s, 5);
}

TEST(ClusterSpec, ALeaseLongerThanTheRoundIsRefused) {
  EXPECT_EQ(Parse("[scheduling]\nlease_duration_s = 400").status().message(),
            "cluster.toml:2:20: lease_duration_s 400 exceeds round_duration_s "
            "360; lower it, or lengthen the round");
}

TEST(ClusterSpec, UnknownKeysAreRefusedAtEveryLevel) {
  EXPECT_THAT(Parse("[[servers]]\nname = \"a\""),
              IsInvalid("unknown key \"servers\"; did you mean \"server\"?"));
  EXPECT_THAT(Parse("[scheduling]\nround_duration = 5"),
              IsInvalid("cluster.toml:2:1: unknown key \"round_duration\"; did "
                        "you mean \"round_duration_s\"?"));
  EXPECT_THAT(Parse("[[server]]\nnmae = \"a\""),
              IsInvalid("did you mean \"name\"?"));
  EXPECT_THAT(ParseAccelerator("thread = 2"),
              IsInvalid("5:1: unknown key \"thread\"; did"));
}

TEST(ClusterSpec, AKeyBehindATableIsToldWhereItBelongs) {
  EXPECT_EQ(
      Parse("[scheduling]\npolicy = \"fifo\"\n[prices]\nv100 = 2\n"
            "round_duration_s = 60")
          .status()
          .message(),
      "cluster.toml:5:1: \"round_duration_s\" belongs to [scheduling], not to "
      "[prices]; move it there, or write prices = { round_duration_s = ... } "
      "for a TYPE that is called so");
  EXPECT_OK(Parse("prices = { round_duration_s = 2 }"));
  EXPECT_THAT(ParseAccelerator("host_memory_bytes = \"64GiB\""),
              IsInvalid("5:1: \"host_memory_bytes\" belongs to [[server]], not "
                        "to [[server.accelerator]]; move it there"));
  EXPECT_THAT(ParseAccelerator("name = \"b\""),
              IsInvalid("\"name\" belongs to [[server]]"));
  EXPECT_THAT(Parse("[[entity]]\nname = \"a\"\nqueue = \"global\""),
              IsInvalid("3:1: \"queue\" belongs to [scheduling]"));
}

TEST(ClusterSpec, ServersNeedANameAndAccelerators) {
  EXPECT_THAT(Parse("[[server]]\n[[server.accelerator]]\ntype = \"a\""),
              IsInvalid("1:1: there is no \"name\"; add e.g. name = \"node-1"));
  EXPECT_THAT(Parse("[[server]]\nname = \"a\""),
              IsInvalid("there is no \"accelerator\"; add"));
  EXPECT_THAT(Parse("[[server]]\nname = \"a\"\n[[server.accelerator]]"),
              IsInvalid("there is no \"type\"; add"));
  EXPECT_THAT(Parse("[[server]]\nname = \"a b\"\n"
                    "[[server.accelerator]]\ntype = \"a\""),
              IsInvalid("2:8: name is \"a b\"; write 1 to"));
}

TEST(ClusterSpec, TablesWrittenAsSomethingElseAreNamed) {
  EXPECT_THAT(Parse("[server]\nname = \"a\""),
              IsInvalid("server is a table; write tables, each as [[server]]"));
  EXPECT_THAT(Parse("server = []"), IsInvalid("each as [[server]]"));
  EXPECT_THAT(Parse("scheduling = 3"), IsInvalid("write a table [scheduling]"));
  EXPECT_THAT(Parse("[[server]]\nname = \"a\"\naccelerator = [1]"),
              IsInvalid("each as [[accelerator]]"));
}

TEST(ClusterSpec, TwoServersOfOneNameAreRefused) {
  const std::string server =
      "[[server]]\nname = \"a\"\n[[server.accelerator]]\ntype = \"v100\"\n";
  EXPECT_THAT(Parse(server + server),
              IsInvalid("cluster.toml:6:8: server \"a\" is named twice; give"));
}

TEST(ClusterSpec, OneGpuTwiceOnAServerIsRefused) {
  EXPECT_THAT(ParseAccelerator("device = \"cuda:0\"\n"
                               "[[server.accelerator]]\n"
                               "type = \"v100\"\ndevice = \"cuda:0\""),
              IsInvalid("8:10: server \"a\" has \"cuda:0\" twice; remove"));
}

TEST(ClusterSpec, DevicesAreCpuOrAKindWithANumber) {
  for (const char* device :
       {"cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:x", "cuda:+1", "cuda: 1",
        "cuda:99999999999", "gpu:0", "", "CPU"}) {
    EXPECT_THAT(ParseAccelerator("device = \"" + std::string(device) + "\""),
                IsInvalid("write \"cpu\" or KIND:N"))
        << device;
  }
  EXPECT_THAT(ParseAccelerator("device = \"cuda:15\""), IsOk());
  EXPECT_THAT(ParseAccelerator("device = \"cpu\""), IsOk());
  EXPECT_THAT(ParseAccelerator("device = \"hpu:1\""), IsOk());
}

TEST(ClusterSpec, VariablesThatWorkersKeepAreNamesOrPrefixes) {
  const auto parse = [](const std::string& list) {
    return ParseClusterSpec(
        "[[server]]\nname = \"a\"\nkeep_environment = " + list +
            "\naccelerator = [{ type = \"v100\" }]\n",
        "cluster.toml");
  };
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec,
                       parse("[\"LD_LIBRARY_PATH\", \"NCCL_*\"]"));
  EXPECT_THAT(spec.servers[0].keep_environment,
              ElementsAre("LD_LIBRARY_PATH", "NCCL_*"));
  for (const char* bad : {"[\"\"]", "[\"*\"]", "[\"A=B\"]", "[\"1A\"]"}) {
    EXPECT_THAT(parse(bad), IsInvalid("is no variable's name")) << bad;
  }
  EXPECT_THAT(parse("[\"GAVEL_*\"]"), IsInvalid("the agent's own"));
}

TEST(ClusterSpec, PeopleAreToldByAProgramOrAnAddress) {
  ASSERT_OK_AND_ASSIGN(
      const ClusterSpec spec,
      Parse("[notify]\ncommand = [\"/bin/tell\", \"--all\"]\n"));
  EXPECT_THAT(spec.notify.command, ElementsAre("/bin/tell", "--all"));
  EXPECT_THAT(spec.notify.events, ElementsAre("ended", "at_risk", "node_lost"));
  EXPECT_FALSE(spec.notify.empty());
  ASSERT_OK_AND_ASSIGN(const ClusterSpec nobody, Parse(kExample));
  EXPECT_TRUE(nobody.notify.empty());
  const std::pair<const char*, const char*> cases[] = {
      {"command = []", "2:11: command names no program by its whole path"},
      {"command = [\"tell\"]", "command names no program by its whole path"},
      {"webhook = \"ftp://a\"", "2:11: webhook is no address; write"},
      {"webhook = \"https://a b\"", "webhook is no address"},
      {"webhook = \"https://a\\nurl = b\"", "webhook is no address"},
      {"command = [\"/a\"]\nwebhook = \"http://a\"",
       "3:11: command and webhook both say how people are told; leave one out"},
      {"events = []", "2:10: the list of events is empty"},
      {"events = [\"ends\"]", "\"ends\" is no event; write started"},
      {"events = [\"none\", \"failed\"]", "\"none\" stands beside other"},
  };
  for (const auto& [lines, error] : cases) {
    EXPECT_THAT(Parse(std::string("[notify]\n") + lines), IsInvalid(error))
        << lines;
  }
}

TEST(ClusterSpec, GpusAreWrittenOneByOne) {
  EXPECT_THAT(ParseAccelerator("device = \"cuda:0\"\ncount = 8"),
              IsInvalid("6:9: count is for CPU slots; leave it out for "
                        "\"cuda:0\" and write one entry per GPU"));
  EXPECT_THAT(ParseAccelerator("device = \"cuda:0\"\nthreads = 8"),
              IsInvalid("threads is for CPU slots"));
}

TEST(ClusterSpec, ACpuSlotIsNotExclusive) {
  EXPECT_THAT(ParseAccelerator("exclusive = true"),
              IsInvalid("exclusive is for GPUs and the like, and this is a CPU "
                        "slot; leave it out"));
  EXPECT_THAT(ParseAccelerator("exclusive = false"), IsOk());
  EXPECT_THAT(ParseAccelerator("device = \"hpu:0\"\nexclusive = true"), IsOk());
}

TEST(ClusterSpec, ASizeThatIsNoTextHasAnExample) {
  EXPECT_THAT(ParseAccelerator("memory_bytes = 67108864"),
              IsInvalid("memory_bytes is an integer; write a string such as "
                        "\"141GiB\""));
}

TEST(ClusterSpec, ValuesOutOfRangeAreNamedWithTheRange) {
  const std::pair<const char*, const char*> cases[] = {
      {"count = 0", "5:9: count is 0; write an integer from 1 to 256"},
      {"threads = 0", "threads is 0; write an integer from 1 to 1024"},
      {"slow_down_factor = 0.5",
       "slow_down_factor is 0.5; write a number from 1 to 1000"},
      {"slow_down_factor = nan", "slow_down_factor is nan; write"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_THAT(ParseAccelerator(line), IsInvalid(error));
  }
  for (const char* value : {"0", "0.05", "-1", "inf", "nan", "1e9"}) {
    EXPECT_THAT(Parse("[scheduling]\nround_duration_s = " + std::string(value)),
                IsInvalid("write a number from 0.1 to 2592000"))
        << value;
  }
}

TEST(ClusterSpec, AFullServerFitsAFrame) {
  const std::string name(64, 'n');
  std::string toml = "[[server]]\nname = \"" + name + "\"\n";
  for (int i = 0; i < 2; ++i) {
    toml += "[[server.accelerator]]\ntype = \"" + name + "\"\ncount = 128\n" +
            "group = \"" + name + "\"\n";
  }
  ASSERT_OK_AND_ASSIGN(const ClusterSpec spec, Parse(toml));
  AgentHello hello;
  hello.server = hello.rack = name;
  hello.accelerators = spec.servers[0].accelerators;
  EXPECT_EQ(hello.accelerators.size(), size_t{kAcceleratorsPerServerMax});
  EXPECT_THAT(EncodeMessage(hello), IsOk());
  EXPECT_THAT(Parse(toml + "[[server.accelerator]]\ntype = \"one-more\"\n"),
              IsInvalid("has more than 256 accelerators"));
}

TEST(ClusterSpec, ServersHaveARackAndGroupsOfAccelerators) {
  ASSERT_OK_AND_ASSIGN(
      const ClusterSpec spec,
      Parse("[[server]]\nname = \"a\"\nrack = \"r1\"\n"
            "[[server.accelerator]]\ntype = \"v100\"\ncount = 2\n"
            "group = \"a-0\"\n"
            "[[server.accelerator]]\ntype = \"v100\"\n"));
  EXPECT_EQ(spec.servers[0].rack, "r1");
  EXPECT_EQ(spec.servers[0].accelerators[1].group, "a-0");
  EXPECT_EQ(spec.servers[0].accelerators[2].group, "");
}

TEST(ClusterSpec, LevelsThatDoNotNestAreRefused) {
  const auto server = [](std::string_view name, std::string_view lines) {
    return StrCat("[[server]]\nname = \"", name, "\"\n", lines,
                  "[[server.accelerator]]\ntype = \"v100\"\n");
  };
  EXPECT_THAT(Parse(server("a", "") + "group = \"g\"\n" + server("b", "") +
                    "group = \"g\"\n"),
              IsInvalid("group \"g\" is on servers \"a\" and \"b\"; a group "
                        "joins accelerators of one server"));
  EXPECT_THAT(Parse(server("a", "") + "group = [\"g\", \"h\"]\n"),
              IsInvalid("group"));
  EXPECT_THAT(Parse(server("a", "") + "group = \"g\"\ngroup = \"h\"\n"),
              IsInvalid("group"));
  EXPECT_THAT(Parse(server("a", "rack = \"r1\"\nrack = \"r2\"\n")),
              IsInvalid("rack"));
  EXPECT_THAT(Parse(server("a", "rack = \"r 1\"\n")), IsInvalid("rack"));
}

}  // namespace
}  // namespace gavel
