// Everything that a hostile client may send: job files, messages, bytes.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <variant>

#include "coordinator/workload/file_keys.h"
#include "core/codec.h"
#include "core/text.h"
#include "tests/reliability/hostile_tenant_fixture.h"

namespace gavel::testing {
namespace {

// TOML values that some keys do not expect.
std::vector<std::string> ExtremeValues() {
  std::vector<std::string> values = {"0",
                                     "-1",
                                     "4096",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "1e308",
                                     "-1e308",
                                     "5e-324",
                                     "1e-300",
                                     "0.001",
                                     "1e9",
                                     "nan",
                                     "inf",
                                     "true",
                                     "1979-05-27T07:32:00Z",
                                     "\"\"",
                                     R"("../../../../etc/passwd")",
                                     R"("/")",
                                     R"("a/../b//./c")",
                                     R"("\u0000")",
                                     R"("\u001B[2J\u202E")",
                                     "[]",
                                     R"(["", "a"])",
                                     R"(["/bin/true", "\u0000"])",
                                     R"([["/bin/true"]])",
                                     "{}",
                                     R"({ "" = 1 })",
                                     R"({ cpu = 1e308 })",
                                     R"({ "A=B" = "c", LD_PRELOAD = "/x" })"};
  values.push_back("\"" + std::string(40'000, 'x') + "\"");
  std::string many = "[\"/bin/true\"";
  for (int i = 0; i < 10'000; ++i) many += ",\"\"";
  values.push_back(many + "]");
  values.push_back(std::string(1000, '[') + std::string(1000, ']'));
  std::string deep = "\"";
  for (int i = 0; i < 9'000; ++i) deep += i % 3 == 2 ? "../" : "x/";
  values.push_back(deep + "\"");
  return values;
}

// Whether the error is short enough to be shown.
bool IsShort(const std::string& error) { return error.size() < 60'000; }

TEST_F(HostileTenantTest, ExtremeValuesInEachKeyOfAJobFileHarmNobody) {
  // Without quotas, all of these job files reach the engine and the solver.
  StartCluster({"--quota-submissions", "0", "--quota-requests", "0"});
  Tenant mallory = Mallory();
  std::vector<JobId> accepted;
  int number = 0;
  for (const FileTable& table : JobFileTables()) {
    for (const FileKey& key : table.keys) {
      for (const std::string& value : ExtremeValues()) {
        std::string text;
        if (key.name != "name") StrAppend(&text, "name = \"m", number, "\"\n");
        if (key.name != "command") text += "command = [\"/bin/true\"]\n";
        if (!table.heading.empty()) StrAppend(&text, table.heading, "\n");
        const SubmitReply reply =
            Submit(mallory, StrCat(text, key.name, " = ", value, "\n"));
        ++number;
        EXPECT_NE(reply.error, "no answer came") << key.name << " = " << value;
        EXPECT_TRUE(IsShort(reply.error)) << key.name;
        if (reply.job.valid()) accepted.push_back(reply.job);
      }
    }
  }
  EXPECT_GT(number, 500);
  // Weights, deadlines and throughputs at both extremes, all at once.
  for (const char* extremes :
       {"weight = 1000.0\ndeadline_s = 5e-324\n[throughputs]\ncpu = 1e-300\n",
        "weight = 0.001\ndeadline_s = 1e308\n[throughputs]\ncpu = 1e9\n",
        "steps_total = 9223372036854775807\nresume_s = 1e308\n",
        "pause_s = 1e308\nmove_s = 1e308\nhang_timeout_s = 1e308\n"}) {
    const SubmitReply reply = Submit(
        mallory, StrCat("name = \"e", ++number,
                        "\"\ncommand = [\"/bin/sleep\", \"60\"]\n", extremes));
    if (reply.job.valid()) accepted.push_back(reply.job);
  }
  const auto status = [&] {
    return nlohmann::json::parse(
        Run({"status", "--json", "--coordinator", endpoint()}).output, nullptr,
        false);
  };
  EXPECT_TRUE(Eventually([&] { return status()["outcome"] == "optimal"; }))
      << status();
  CancelAll(accepted);
  ExpectOthersUnharmed();
}

// An encoded message of each kind, and damaged variants of it.
class Frames {
 public:
  Frames() {
    Add(std::make_index_sequence<std::variant_size_v<MessageVariant>>());
  }

  std::vector<std::string> operator()(size_t number) {
    std::string frame = messages_[number % messages_.size()];
    switch (number / messages_.size() % 6) {
      case 0:
        break;
      case 1:  // cut off
        frame.resize(random_() % (frame.size() + 1));
        break;
      case 2:  // some bytes are others
        for (int i = 0; i < 4 && !frame.empty(); ++i) {
          frame[random_() % frame.size()] = static_cast<char>(random_());
        }
        break;
      case 3:  // more behind it
        frame += std::string(kFrameBytesMax - frame.size(), '\xdd');
        break;
      case 4:
        return {frame, frame, std::string(1000, '\0')};
      default:
        frame = std::string(random_() % 2000, static_cast<char>(random_()));
    }
    return {frame};
  }

 private:
  template <size_t... I>
  void Add(std::index_sequence<I...>) {
    (messages_.push_back(
         EncodeMessage(std::variant_alternative_t<I, MessageVariant>())
             .value()),
     ...);
  }

  std::vector<std::string> messages_;
  std::mt19937 random_{1};
};

TEST_F(HostileTenantTest, MalformedMessagesOfEachKindHarmNobody) {
  StartCluster();
  Frames frames;
  Flood flood(endpoint(), MallorysKeys(), /*connections=*/16, /*reads=*/true);
  EXPECT_GT(flood.Run(3, [&](size_t number) { return frames(number); }), 1000U);
  // ZeroMQ itself ends these connections.
  const std::string huge(kFrameBytesMax + 1, 'x');
  Flood oversized(endpoint(), MallorysKeys(), 16, true);
  oversized.Run(1, [&](size_t) { return std::vector<std::string>{huge}; });
  // The message of many parts has no end.
  const std::vector<std::string> parts(500, std::string(60'000, 'x'));
  Flood endless(endpoint(), MallorysKeys(), 2, true);
  endless.Run(1, [&](size_t) { return parts; });
  ExpectOthersUnharmed();
}

TEST_F(HostileTenantTest, FloodsOfRequestsHarmNobody) {
  StartCluster();
  Tenant mallory = Mallory();
  std::vector<JobId> jobs;
  // She submits as many jobs as she may have, each as large as it may be.
  std::string error;
  for (int i = 0; i < 300; ++i) {
    std::string text =
        StrCat("name = \"m", i, "\"\ncommand = [\"/bin/sleep\", \"60\", \"");
    text += std::string(40'000, 'x') + "\"]\n";
    const SubmitReply reply = Submit(mallory, text);
    if (reply.job.valid()) jobs.push_back(reply.job);
    error = reply.error;
  }
  EXPECT_THAT(error, HasSubstr("jobs within a minute"));
  EXPECT_LE(jobs.size(), 60U);
  const std::vector<QueryKind> kinds = {
      QueryKind::kQueue, QueryKind::kWhy,     QueryKind::kStatus,
      QueryKind::kNodes, QueryKind::kHistory, QueryKind::kForecast};
  const auto query = [&](size_t number) {
    QueryRequest request;
    request.request = number;
    request.kind = kinds[number % kinds.size()];
    request.job = number % 4 == 0 ? JobId(1) : JobId();
    // Later pages of a listing cost less.
    request.cursor = number % 3;
    if (request.kind == QueryKind::kHistory) {
      request.filter = R"({"table":"jobs"})";
    }
    return std::vector<std::string>{EncodeMessage(request).value()};
  };
  const auto log = [&](size_t number) {
    LogRequest request;
    request.request = number;
    request.worker = {jobs.front(), 0};
    request.offset = number % 2 == 0 ? 0 : kMost;
    return std::vector<std::string>{EncodeMessage(request).value()};
  };
  for (const bool reads : {false, true}) {
    Flood(endpoint(), MallorysKeys(), 64, reads).Run(2, query);
    Flood(endpoint(), MallorysKeys(), 16, reads).Run(1, log);
  }
  ExpectOthersUnharmed();
}

TEST_F(HostileTenantTest, CommandsWithoutEndFillNoJournal) {
  StartCluster();
  const JobId job = SubmitCommand("mine", {"/bin/sleep", "300"});
  Tenant mallory = Mallory();
  const uint64_t before = BytesUnder(state());
  int done = 0;
  int refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    for (const CommandKind kind :
         {CommandKind::kRequeue, CommandKind::kHold, CommandKind::kRelease}) {
      CommandRequest request;
      request.kind = kind;
      request.job = job;
      ++(mallory.Ask<CommandReply>(request).error.empty() ? done : refused);
    }
  }
  std::printf("%d commands done, %d refused\n", done, refused);
  EXPECT_GT(done, 10);
  EXPECT_LT(done, 400 + 5 * 40 + 100);  // docs/security.md
  EXPECT_LT(BytesUnder(state()) - before, 4U << 20);
  ExpectOthersUnharmed();
}

TEST_F(HostileTenantTest, WhatIsAnothersIsNotHers) {
  StartCluster();
  const auto victim = QueueRow(endpoint(), "victim")["id"].get<uint64_t>();
  Tenant mallory = Mallory();
  for (const uint64_t id : {victim, uint64_t{0}, victim + 1, kMost}) {
    for (int kind = 0; kind < 256; ++kind) {
      CommandRequest request;
      request.kind = static_cast<CommandKind>(kind);
      request.job = JobId(id);
      // Only the kinds that exist can be decoded.
      if (!DecodeMessage(EncodeMessage(request).value()).ok()) break;
      EXPECT_NE(mallory.Ask<CommandReply>(request).error, "")
          << kind << " of job " << id;
    }
    for (const int rank : {0, 1, -1, 1 << 30}) {
      LogRequest request;
      request.worker = {JobId(id), rank};
      EXPECT_NE(mallory.Ask<LogReply>(request).error, "") << id << " " << rank;
    }
  }
  for (const char* command : {"cancel", "logs", "release"}) {
    EXPECT_THAT(RunAsMallory({command, "victim"}).errors,
                AnyOf(HasSubstr("not yours"), HasSubstr("not held")));
  }
  // Any user may know why a job waits or runs, but not its command.
  const std::string why = RunAsMallory({"why", "victim", "--json"}).output;
  EXPECT_THAT(why, HasSubstr("running"));
  EXPECT_THAT(why, Not(HasSubstr("fake_worker")));
  ExpectOthersUnharmed();
}

// The default checkpoint directory is beside the job file. Here it and the
// others lead to directories that are not hers.
TEST_F(HostileTenantTest, LinksAndPathsLeadToNothingOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "jobs of two Unix users need root";
  StartCluster();
  const std::string hers = keys().JobsOf(kMallory);
  ASSERT_EQ(symlink(keys().jobs().c_str(), (hers + "/gavel-state").c_str()), 0);
  ASSERT_EQ(symlink("/etc", (hers + "/etc").c_str()), 0);
  const std::string touch =
      "mkdir -p \"$GAVEL_CHECKPOINT_DIRECTORY\" && "
      "echo stolen > \"$GAVEL_CHECKPOINT_DIRECTORY/loot\"";
  const std::vector<std::string> directories = {
      "", "etc", "../jobs", "gavel-state/gavel-state", agent_state(), state()};
  std::vector<std::string> names;
  for (size_t i = 0; i < directories.size(); ++i) {
    std::string more = "retries_max = 1\n";
    if (!directories[i].empty()) {
      StrAppend(&more, "checkpoint_directory = \"", directories[i], "\"\n");
    }
    names.push_back(StrCat("m", i));
    SubmitCommand(names.back(), {"/bin/sh", "-c", touch}, more);
  }
  names.push_back("keys");
  SubmitCommand("keys", {"/bin/sh", "-c", "cat *"},
                StrCat("retries_max = 1\nworking_directory = \"", agent_state(),
                       "/keys-here\"\n"));
  for (const std::string& name : names) {
    EXPECT_TRUE(ReachesState(endpoint(), name, "F")) << name;
    EXPECT_THAT(RunAsMallory({"logs", name}).output,
                AnyOf(HasSubstr("denied"), HasSubstr("No such file")));
  }
  for (const std::string& folder : {keys().jobs(), agent_state(), state()}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder)) {
      EXPECT_NE(entry.path().filename(), "loot") << entry.path();
    }
  }
  EXPECT_FALSE(std::filesystem::exists("/etc/loot"));
  ExpectOthersUnharmed();
}

}  // namespace
}  // namespace gavel::testing
