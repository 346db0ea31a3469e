#include "coordinator/server/principals.h"

#include <sys/stat.h>

#include <fstream>

#include "coordinator/server/gatekeeper.h"
#include "coordinator/server/limits.h"
#include "core/text.h"
#include "runtime/transport/curve.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

std::string NewKey() { return NewCurveKeyPair().value().public_key; }

Principals Two() {
  return {{"alice", {Role::kUser, "alice", NewKey()}},
          {"gpu-1", {Role::kNode, "", NewKey()}}};
}

TEST(Principals, AreReadAsTheyWereWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/principals.toml";
  const Principals principals = Two();
  ASSERT_OK(WritePrincipals(path, principals));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  ASSERT_OK_AND_ASSIGN(const Principals read, ReadPrincipals(path));
  EXPECT_EQ(read, principals);
}

TEST(Principals, KeepTheirEntitiesAndWeights) {
  Principals principals = Two();
  principals.at("alice").allowance = {{"vision", "speech"}, 2.5, 10};
  ASSERT_OK_AND_ASSIGN(const Principals read,
                       ParsePrincipals(FormatPrincipals(principals), "p.toml"));
  EXPECT_EQ(read, principals);
}

TEST(Allowance, BoundsWeights) {
  for (const double weight : {0.001, 1.0, 1000.0}) {
    EXPECT_OK(CheckWeight("job \"a\"", weight, {}));
  }
  for (const double weight : {1e308, 1000.1, 0.0009, 1e-300}) {
    EXPECT_THAT(CheckWeight("job \"a\"", weight, {}),
                IsInvalid("between 0.001 and 1000"));
  }
}

TEST(Allowance, BindsAUserToItsEntitiesAndLargestWeight) {
  const Allowance allowance{{"vision", "speech"}, 1, 10};
  std::string entity;
  EXPECT_OK(CheckAllowance("job \"a\"", allowance, 10, &entity));
  EXPECT_EQ(entity, "vision");
  entity = "speech";
  EXPECT_OK(CheckAllowance("job \"a\"", allowance, 1, &entity));
  EXPECT_EQ(entity, "speech");
  const auto denied = absl::StatusCode::kPermissionDenied;
  EXPECT_THAT(CheckAllowance("job \"a\"", allowance, 11, &entity),
              StatusIs(denied, "exceeds your largest, 10"));
  entity = "finance";
  EXPECT_THAT(CheckAllowance("job \"a\"", allowance, 1, &entity),
              StatusIs(denied, "choose vision or speech"));
  EXPECT_THAT(CheckAllowance("job \"a\"", Allowance(), 1, &entity),
              StatusIs(denied, "leave it out"));
}

TEST(Principals, AFileThatOthersMayWriteIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/principals.toml";
  EXPECT_THAT(ReadPrincipals(path), StatusIs(kNotFound, "gavel user add"));
  ASSERT_OK(WritePrincipals(path, Two()));
  for (const mode_t mode : {0620, 0602, 0666}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(ReadPrincipals(path), StatusIs(kPermissionDenied, "chmod 600"));
  }
}

TEST(Principals, WhatIsWrongIsNamedWithItsPlace) {
  const std::string key = StrCat("public_key = \"", NewKey(), "\"\n");
  const auto refused = [](const std::string& toml, const std::string& why) {
    EXPECT_THAT(ParsePrincipals(toml, "p.toml"), IsInvalid(why)) << toml;
  };
  refused("[a]\nrole = \"king\"\n" + key, "no role \"king\"");
  refused("[a]\nrole = \"worker\"\n" + key, "no role \"worker\"");
  refused("[a]\nrole = \"viewer\"\n", "public_key");
  refused("[a]\nrole = \"viewer\"\npublic_key = \"short\"\n", "40 characters");
  refused("[a]\nrole = \"user\"\n" + key, "unix_user");
  refused("[a]\nrole = \"user\"\nunix_user = \"root\"\n" + key,
          "jobs do not run as root");
  refused("[\"../a\"]\nrole = \"viewer\"\n" + key, "is no name");
  refused("[a]\nrole = \"viewer\"\n" + key + "[b]\nrole = \"node\"\n" + key,
          "key of another principal");
  refused("[a]\nrole = \"viewer\"\ncolour = \"red\"\n" + key, "colour");
  refused("[a", "p.toml:1:");
}

TEST(AccessList, FollowsItsFileAndKeepsTheListWhenTheFileBreaks) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/principals.toml";
  Principals principals = Two();
  const std::string alice = principals["alice"].public_key;
  ASSERT_OK(WritePrincipals(path, principals));
  ASSERT_OK_AND_ASSIGN(const auto list, AccessList::Open(path));
  EXPECT_TRUE(list->Knows(alice));
  EXPECT_FALSE(list->Knows(NewKey()));
  EXPECT_FALSE(list->Knows(""));
  ASSERT_TRUE(list->Find(alice).has_value());
  EXPECT_EQ(list->Find(alice)->name, "alice");
  EXPECT_EQ(list->Find(alice)->unix_user, "alice");
  EXPECT_FALSE(list->Reload().has_value());

  std::ofstream(path) << "rubbish";
  const auto broken = list->Reload();
  ASSERT_TRUE(broken.has_value());
  EXPECT_FALSE(broken->ok());
  EXPECT_TRUE(list->Knows(alice));
  EXPECT_FALSE(list->Reload().has_value());  // told once

  principals.erase("alice");
  ASSERT_OK(WritePrincipals(path, principals));
  const auto reloaded = list->Reload();
  ASSERT_TRUE(reloaded.has_value());
  ASSERT_OK(reloaded->status());
  EXPECT_THAT(**reloaded, ElementsAre("alice (user) revoked"));
  EXPECT_FALSE(list->Knows(alice));
  EXPECT_EQ(list->principals(), 1U);
}

TEST(AccessList, TellsWhoCameWentAndChanged) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/principals.toml";
  const auto user = [](const std::string& unix_user) {
    return Principal{Role::kUser, unix_user, NewKey()};
  };
  Principals principals = {{"alice", user("alice")},
                           {"bob", user("bob")},
                           {"carol", user("carol")},
                           {"dave", user("dave")}};
  ASSERT_OK(WritePrincipals(path, principals));
  ASSERT_OK_AND_ASSIGN(const auto list, AccessList::Open(path));
  principals.erase("alice");
  principals["bob"].role = Role::kOperator;
  principals["bob"].unix_user = "robert";
  principals["carol"].public_key = NewKey();
  principals["gpu-9"] = {Role::kNode, "", NewKey()};
  ASSERT_OK(WritePrincipals(path, principals));
  const auto reloaded = list->Reload();
  ASSERT_TRUE(reloaded.has_value());
  ASSERT_OK(reloaded->status());
  EXPECT_THAT(
      **reloaded,
      ElementsAre("alice (user) revoked",
                  "bob (operator) changed: was user, runs as robert instead of "
                  "bob",
                  "carol (user) changed: has another key",
                  "gpu-9 (node) added"));
}

TEST(AccessList, AWorkersKeyIsItsOwnAsLongAsItRuns) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/principals.toml";
  const Principals principals = Two();
  ASSERT_OK(WritePrincipals(path, principals));
  ASSERT_OK_AND_ASSIGN(const auto list, AccessList::Open(path));
  const WorkerKey worker{JobId(3), 1, 2};
  const std::string key = NewKey();
  list->AddWorker("gpu-1", worker, key);
  ASSERT_TRUE(list->Find(key).has_value());
  EXPECT_EQ(list->Find(key)->role, Role::kWorker);
  EXPECT_EQ(list->Find(key)->worker, worker);
  // Nobody takes it over, nor becomes a worker by a principal's key.
  list->AddWorker("gpu-2", {JobId(4), 0, 1}, key);
  EXPECT_EQ(list->Find(key)->worker, worker);
  const std::string alice = principals.at("alice").public_key;
  list->AddWorker("gpu-1", {JobId(4), 0, 1}, alice);
  EXPECT_EQ(list->Find(alice)->role, Role::kUser);
  list->RemoveWorker("gpu-2", worker);
  EXPECT_TRUE(list->Knows(key));
  list->RemoveWorker("gpu-1", worker);
  EXPECT_FALSE(list->Knows(key));
  list->AddWorker("gpu-1", worker, key);
  ASSERT_OK(WritePrincipals(path, {{"alice", principals.at("alice")}}));
  list->Reload();
  EXPECT_FALSE(list->Knows(key)) << "its server was revoked";
}

class QuotaTest : public Test {
 protected:
  void Add(uint64_t id, const std::string& owner, int scale_factor) {
    Job& job = jobs_[JobId(id)];
    job.spec.owner = owner;
    job.spec.scale_factor = scale_factor;
  }
  static JobSpec Spec(int scale_factor) {
    JobSpec spec;
    spec.scale_factor = scale_factor;
    return spec;
  }
  std::map<JobId, Job> jobs_;
};

TEST_F(QuotaTest, CountsTheJobsOfTheUserThatHaveNotEnded) {
  Quota quota({2, 0, 0});
  Add(1, "alice", 1);
  Add(2, "bob", 1);
  EXPECT_OK(quota.Take(0, "alice", Spec(1), jobs_));
  Add(3, "alice", 1);
  EXPECT_THAT(quota.Take(0, "alice", Spec(1), jobs_),
              StatusIs(kResourceExhausted,
                       "has 2 jobs that have not ended, the quota is 2"));
  EXPECT_OK(quota.Take(0, "bob", Spec(1), jobs_));
  jobs_[JobId(1)].state = JobState::kFinished;
  EXPECT_OK(quota.Take(0, "alice", Spec(1), jobs_));
}

TEST_F(QuotaTest, CountsEachElementOfAnArray) {
  Quota quota({10, 0, 0});
  Add(1, "alice", 1);
  JobSpec array = Spec(1);
  array.array = "0-8";
  EXPECT_OK(quota.Take(0, "alice", array, jobs_));
  array.array = "0-9";
  EXPECT_THAT(quota.Take(0, "alice", array, jobs_),
              StatusIs(kResourceExhausted,
                       "has 1 jobs that have not ended, and would have 11, the "
                       "quota is 10"));
}

TEST_F(QuotaTest, AnArrayAsksForTheAcceleratorsOfThoseThatMayRunAtOnce) {
  Quota quota({0, 8, 0});
  JobSpec array = Spec(2);
  array.array = "0-99%4";
  EXPECT_OK(quota.Take(0, "alice", array, jobs_));
  array.array = "0-99%5";
  EXPECT_THAT(quota.Take(0, "alice", array, jobs_),
              StatusIs(kResourceExhausted, "the quota is 8"));
  for (uint64_t id = 2; id < 12; ++id) {
    Add(id, "alice", 2);
    Job& element = jobs_[JobId(id)];
    element.array = JobId(1);
    element.array_at_once = 2;
  }
  // Two of them at once.
  EXPECT_OK(quota.Take(0, "alice", Spec(4), jobs_));
  EXPECT_THAT(quota.Take(0, "alice", Spec(5), jobs_),
              StatusIs(kResourceExhausted, "would ask for 9 accelerators"));
}

TEST_F(QuotaTest, CountsTheAcceleratorsThatTheyAskFor) {
  Quota quota({0, 8, 0});
  Add(1, "alice", 5);
  EXPECT_OK(quota.Take(0, "alice", Spec(3), jobs_));
  EXPECT_THAT(quota.Take(0, "alice", Spec(4), jobs_),
              StatusIs(kResourceExhausted, "would ask for 9 accelerators"));
}

TEST_F(QuotaTest, CountsSubmissionsOfTheLastMinute) {
  Quota quota({0, 0, 2});
  EXPECT_OK(quota.Take(0, "alice", Spec(1), jobs_));
  EXPECT_OK(quota.Take(30, "alice", Spec(1), jobs_));
  EXPECT_THAT(quota.Take(59, "alice", Spec(1), jobs_),
              StatusIs(kResourceExhausted, "wait a minute"));
  EXPECT_OK(quota.Check("alice", Spec(1), jobs_));
  EXPECT_OK(quota.Take(59, "bob", Spec(1), jobs_));
  EXPECT_OK(quota.Take(60, "alice", Spec(1), jobs_));
}

}  // namespace
}  // namespace gavel
