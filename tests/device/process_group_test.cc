// Tests process groups and gradient averaging between real processes.
#include "runtime/device/process_group.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/test.h"

extern char** environ;

namespace gavel {
namespace {

double Now_s() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs a gang_member process and reads its standard output.
class Member {
 public:
  explicit Member(const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<std::string> all = {GAVEL_GANG_MEMBER};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& one : all) pointers.push_back(one.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, GAVEL_GANG_MEMBER, &actions, nullptr,
                          pointers.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
  }
  ~Member() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    fclose(output_);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  std::string ReadLine() {
    std::string line;
    for (int c = fgetc(output_); c != EOF && c != '\n'; c = fgetc(output_)) {
      line.push_back(static_cast<char>(c));
    }
    return line;
  }
  std::string ReadAll() {
    std::string all;
    for (int c = fgetc(output_); c != EOF; c = fgetc(output_)) {
      all.push_back(static_cast<char>(c));
    }
    return all;
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

std::vector<std::unique_ptr<Member>> Start(const std::string& mode,
                                           int world_size) {
  const std::string size = std::to_string(world_size);
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(
      std::make_unique<Member>(std::vector<std::string>{mode, "0", size}));
  if (world_size == 1) return members;
  const std::string endpoint = members[0]->ReadLine();
  for (int rank = 1; rank < world_size; ++rank) {
    members.push_back(std::make_unique<Member>(
        std::vector<std::string>{mode, std::to_string(rank), size, endpoint}));
  }
  return members;
}

// Expects that all members succeed and print the same. Returns that output.
std::string SameOutput(const std::string& mode, int world_size) {
  auto members = Start(mode, world_size);
  const std::string first = members[0]->ReadAll();
  EXPECT_EQ(members[0]->Wait(), 0) << first;
  for (size_t i = 1; i < members.size(); ++i) {
    EXPECT_EQ(members[i]->ReadAll(), first) << "rank " << i;
    EXPECT_EQ(members[i]->Wait(), 0);
  }
  return first;
}

std::map<std::string, std::vector<double>> Numbers(const std::string& output) {
  std::map<std::string, std::vector<double>> numbers;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (std::string word; words >> word;) {
      numbers[name].push_back(std::strtod(word.c_str(), nullptr));
    }
  }
  return numbers;
}

void ExpectNear(const std::string& output, const std::string& expected) {
  const auto got = Numbers(output);
  const auto want = Numbers(expected);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(got.at(name)[i], values[i], 1e-6) << name << " " << i;
    }
  }
}

TEST(ProcessGroup, AddsUpAndBroadcastsBetweenProcesses) {
  const auto numbers = Numbers(SameOutput("sum", 3));
  EXPECT_EQ(numbers.at("sum"), (std::vector<double>{6, 6}));
  EXPECT_EQ(numbers.at("real"), (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(numbers.at("whole"), (std::vector<double>{7, 7, 7, 7}));
}

TEST(ProcessGroup, AnAbsentRankIsAnErrorWithinTheTimeout) {
  const double begin = Now_s();
  auto members = Start("absent", 2);
  const std::string output = members[0]->ReadAll();
  EXPECT_EQ(members[0]->Wait(), 1) << output;
  EXPECT_THAT(output, HasSubstr("UNAVAILABLE"));
  EXPECT_LT(Now_s() - begin, 10);
}

TEST(ProcessGroup, AStoreThatIsNotThereIsAnErrorWithinTheTimeout) {
  const double begin = Now_s();
  const auto store = GangStore::Connect("127.0.0.1:9", 1);
  EXPECT_TRUE(absl::IsUnavailable(store.status())) << store.status();
  EXPECT_LT(Now_s() - begin, 8);
  for (const char* endpoint :
       {"", "host", ":1", "host:", "host:0", "host:x", "host:70000"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(GangStore::Connect(endpoint, 1).status()))
        << endpoint;
  }
}

TEST(ProcessGroup, TheStoreKeepsWhatIsSet) {
  ASSERT_OK_AND_ASSIGN(auto host, GangStore::Host("127.0.0.1", 0, 5));
  ASSERT_OK_AND_ASSIGN(auto guest, GangStore::Connect(host->endpoint(), 5));
  ASSERT_OK_AND_ASSIGN(auto other, guest->Clone());
  EXPECT_THAT(guest->Has({"a"}),
              ::testing::ResultOf(
                  [](const auto& has) { return has.ok() && !*has; }, true));
  ASSERT_OK(guest->Set("a", "1"));
  ASSERT_OK(host->Set("b", ""));
  ASSERT_OK_AND_ASSIGN(const auto values, other->Get({"b", "a"}));
  EXPECT_EQ(values, (std::vector<std::string>{"", "1"}));
  host.reset();
  EXPECT_TRUE(absl::IsUnavailable(guest->Get({"a"}).status()));
}

TEST(GradientBuckets, GiveTheWeightsOfOneProcessWithTheWholeBatch) {
  const std::string alone = SameOutput("train", 1);
  EXPECT_THAT(alone, HasSubstr("unused has a gradient: 0"));
  for (const int world_size : {2, 3}) {
    SCOPED_TRACE(world_size);
    ExpectNear(SameOutput("train", world_size), alone);
  }
}

TEST(GradientBuckets, AverageOnceForAllMicroBatchesOfAStep) {
  const std::string alone = SameOutput("train", 1);
  ExpectNear(SameOutput("micro", 2), alone);
}

TEST(GradientBuckets, ARankThatDiesFailsTheStepOfTheOthersWithinSeconds) {
  auto members = Start("die", 3);
  EXPECT_EQ(members[2]->Wait(), 9);
  const double begin = Now_s();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string output = members[size_t(rank)]->ReadAll();
    EXPECT_EQ(members[size_t(rank)]->Wait(), 1) << output;
    EXPECT_THAT(output, HasSubstr("UNAVAILABLE"));
  }
  EXPECT_LT(Now_s() - begin, 5);
}

TEST(ProcessGroup, AbortEndsACollectiveThatWaitsForAFrozenRank) {
  const double begin = Now_s();
  auto members = Start("freeze", 3);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string output = members[size_t(rank)]->ReadAll();
    EXPECT_EQ(members[size_t(rank)]->Wait(), 1) << output;
    EXPECT_THAT(output, HasSubstr("UNAVAILABLE"));
  }
  EXPECT_LT(Now_s() - begin, 10);  // the collective's time-out is 20 s
}

TEST(ProcessGroupWithoutCollectives, SaysWhatIsMissing) {
  ASSERT_OK_AND_ASSIGN(auto store, GangStore::Host("127.0.0.1", 0, 10));
  for (const auto& [device, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"cuda:0", "this build has no NCCL (install nccl.h"},
           {"xpu:0", "no collectives for this kind of device"}}) {
    ProcessGroupOptions options;
    options.device = at::Device(device);
    options.prefix = device;
    EXPECT_THAT(ProcessGroup::Create(*store, options).status(),
                testing::StatusIs(absl::StatusCode::kFailedPrecondition, why));
  }
}

}  // namespace
}  // namespace gavel
