// A cluster with keys, set up with the real commands as a team does it. No
// secret may show anywhere.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "coordinator/cli/daemon_options.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/checkpoint_directory.h"
#include "tests/support/files.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kUser[] = "nobody";

// The rest of the line behind the first NAME in `text`, without the "=" of
// "NAME = VALUE".
std::string ValueOf(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  if (at == std::string::npos) return "";
  // A key may itself begin with "=", and has no blanks.
  size_t from = text.find_first_not_of(' ', at + name.size());
  if (text.compare(from, 2, "= ") == 0) from += 2;
  return text.substr(from, text.find('\n', from) - from);
}

class SecurityTest : public GavelTest {
 protected:
  SecurityTest() {
    // The tests must not use the keys of the user who runs them.
    setenv("HOME", folder().c_str(), 1);
    unsetenv("GAVEL_KEY_FILE");
    unsetenv("GAVEL_COORDINATOR_KEY");
  }
  // Makes a key pair in DIRECTORY/FILE. Returns the public key.
  std::string Keygen(const std::vector<std::string>& whose,
                     const std::string& directory, const std::string& file) {
    std::vector<std::string> arguments = {"keygen", "--directory",
                                          Path(directory)};
    arguments.insert(arguments.end(), whose.begin(), whose.end());
    const Ended made = Run(arguments);
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    const std::string secret =
        ValueOf(ReadText(Path(directory + "/" + file)), "secret_key");
    EXPECT_EQ(secret.size(), 40U);
    EXPECT_THAT(made.output, Not(HasSubstr(secret)));
    secrets_.push_back(secret);
    return ValueOf(made.output, "public key");
  }
  Ended User(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"user", "--principals", Path("principals.toml")});
    return Run(arguments);
  }
  void Allow(const std::string& name, const std::string& role,
             const std::string& key) {
    std::vector<std::string> arguments = {"add", name,           "--role",
                                          role,  "--public-key", key};
    if (role == "user" || role == "operator") {
      arguments.insert(arguments.end(), {"--unix-user", kUser});
    }
    const Ended added = User(arguments);
    EXPECT_EQ(added.exit_code, 0) << added.errors;
  }
  // Runs a command with the client key in `directory`.
  Ended As(const std::string& directory, std::vector<std::string> arguments) {
    arguments.insert(
        arguments.begin() + 1,
        {"--coordinator", endpoint_, "--key", Path(directory + "/client.key"),
         "--coordinator-key", Path("head/coordinator.pub")});
    return Run(arguments);
  }
  // The command lines and environments of all processes of this machine.
  static std::string AllArguments() {
    std::string all;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      for (const char* name : {"cmdline", "environ"}) {
        all += ReadText(entry.path() / name);
      }
    }
    return all;
  }
  void ExpectNoSecretIn(const std::string& text, const std::string& where) {
    for (const std::string& secret : secrets_) {
      EXPECT_THAT(text, Not(HasSubstr(secret))) << where;
    }
  }

  std::vector<std::string> secrets_;
  std::string endpoint_;
};

TEST_F(SecurityTest, BeyondThisMachineNothingStartsWithoutKeys) {
  WriteCluster(1, 60, 30);
  const Ended coordinator =
      Run({"coordinator", "--listen", "tcp://0.0.0.0:0", "--state", state()});
  EXPECT_EQ(coordinator.exit_code, 2);
  EXPECT_THAT(coordinator.errors, HasSubstr("gavel keygen --coordinator"));
  const Ended local = Run({"local", "--cluster", Path("cluster.toml"),
                           "--state", state(), "--listen", "tcp://0.0.0.0:0"});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors, HasSubstr("keygen"));
  const Ended agent =
      Run({"agent", "--coordinator", "192.0.2.1:7077", "--cluster",
           Path("cluster.toml"), "--state", state()});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_THAT(agent.errors, HasSubstr("gavel keygen"));
  const Ended client = Run({"queue", "--coordinator", "192.0.2.1:7077"});
  EXPECT_EQ(client.exit_code, 1);
  EXPECT_THAT(client.errors, HasSubstr("gavel keygen"));
}

TEST_F(SecurityTest, RootsLocksOfGpusLieWhereNobodyElseMakesADirectory) {
  AcceleratorInfo gpu;
  gpu.device = "cuda:0";
  setenv("XDG_RUNTIME_DIR", "/elsewhere", 1);
  EXPECT_EQ(DefaultRunDirectory({gpu}),
            geteuid() == 0 ? "/run/gavel" : "/elsewhere/gavel");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultRunDirectory({gpu}),
            geteuid() == 0 ? "/run/gavel" : StrCat("/tmp/gavel-", getuid()));
}

TEST_F(SecurityTest, WithoutKeysRootStartsAnAgentOnlyWhenItSaysSo) {
  WriteCluster(1, 60, 30);
  const std::vector<std::string> arguments = {
      "agent",     "--coordinator",      "127.0.0.1:1",
      "--cluster", Path("cluster.toml"), "--state",
      state()};
  const auto others = Start(arguments);
  std::vector<std::string> said = arguments;
  said.push_back("--jobs-as-root");
  if (geteuid() == 0) {
    EXPECT_EQ(others->Wait(), 2);
    EXPECT_THAT(others->errors(), HasSubstr("--jobs-as-root"));
  } else {
    others->Signal(SIGTERM);
    EXPECT_EQ(others->Wait(), 0);
  }
  const auto agent = Start(said);
  EXPECT_TRUE(Eventually([&] {
    return agent->errors().find("no coordinator answers") != std::string::npos;
  })) << agent->errors();
  agent->Signal(SIGTERM);
  EXPECT_EQ(agent->Wait(), 0);
}

TEST_F(SecurityTest, ChangesToThePrincipalsAtOnceAreAllKept) {
  std::vector<std::string> keys;
  for (int i = 0; i < 8; ++i) {
    keys.push_back(Keygen({"--user", "v"}, StrCat("v-", i), "client.key"));
  }
  std::vector<std::unique_ptr<Process>> changes;
  for (const std::string& key : keys) {
    changes.push_back(Start({"user", "--principals", Path("principals.toml"),
                             "add", StrCat("viewer-", changes.size()), "--role",
                             "viewer", "--public-key", key}));
  }
  for (const auto& change : changes) {
    EXPECT_EQ(change->Wait(), 0) << change->errors();
  }
  const std::string list = User({"list"}).output;
  for (const std::string& key : keys) EXPECT_THAT(list, HasSubstr(key));
}

TEST_F(SecurityTest, KeysAreMadeOnceAndPrincipalsAreChecked) {
  const std::string key = Keygen({"--user", "alice"}, "alice", "client.key");
  const Ended again =
      Run({"keygen", "--directory", Path("alice"), "--user", "alice"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.errors, HasSubstr("is there already"));
  Allow("alice", "user", key);
  EXPECT_THAT(
      User({"add", "alice", "--unix-user", kUser, "--public-key", key}).errors,
      HasSubstr("already"));
  EXPECT_THAT(
      User({"add", "eve", "--unix-user", "root", "--public-key", key}).errors,
      HasSubstr("jobs do not run as root"));
  EXPECT_THAT(
      User({"add", "eve", "--role", "king", "--public-key", key}).errors,
      HasSubstr("no role"));
  EXPECT_THAT(User({"add", "../eve", "--public-key", key}).errors,
              HasSubstr("is no name"));
  EXPECT_THAT(User({"list"}).output, HasSubstr("alice"));
  EXPECT_EQ(User({"revoke", "alice"}).exit_code, 0);
  EXPECT_THAT(User({"revoke", "alice"}).errors, HasSubstr("is not in"));
  EXPECT_THAT(User({"list"}).output, Not(HasSubstr("alice")));
}

TEST_F(SecurityTest, WhoRunsJobsNeedsAUnixUserAndIsToldTheFlag) {
  const std::string key = Keygen({"--user", "bob"}, "bob", "client.key");
  for (const std::string role : {"user", "operator"}) {
    const Ended added =
        User({"add", "bob", "--role", role, "--public-key", key});
    EXPECT_EQ(added.exit_code, 1);
    EXPECT_THAT(added.errors, AllOf(HasSubstr("--unix-user bob"),
                                    Not(HasSubstr("principals.toml:"))));
  }
  EXPECT_EQ(
      User({"add", "bob", "--role", "viewer", "--public-key", key}).exit_code,
      0);
}

// Jobs do not run as root, so root can't be proposed for --unix-user.
TEST_F(SecurityTest, KeygenForAUserCalledRootProposesAnOrdinaryAccount) {
  const Ended made =
      Run({"keygen", "--directory", Path("root"), "--user", "root"});
  EXPECT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_THAT(made.output, AllOf(HasSubstr("--unix-user ACCOUNT"),
                                 Not(HasSubstr("--unix-user root"))));
  const Ended added =
      User({"add", "root", "--public-key", ValueOf(made.output, "public key")});
  EXPECT_THAT(added.errors, HasSubstr("--unix-user ACCOUNT"));
}

TEST_F(SecurityTest, RevokingAUserSaysWhatBecomesOfItsJobs) {
  Allow("alice", "user", Keygen({"--user", "alice"}, "alice", "client.key"));
  Allow("vera", "viewer", Keygen({"--user", "vera"}, "vera", "client.key"));
  EXPECT_THAT(User({"revoke", "alice"}).output,
              HasSubstr("run on until an operator cancels them: gavel queue "
                        "--user alice"));
  EXPECT_THAT(User({"revoke", "vera"}).output, Not(HasSubstr("jobs")));
}

TEST_F(SecurityTest, ANameOfSeveralUsersIsNotGuessedByAnOperator) {
  Keygen({"--coordinator"}, "head", "coordinator.key");
  for (const std::string name : {"alice", "bob"}) {
    Allow(name, "user", Keygen({"--user", name}, name, "client.key"));
  }
  Allow("olga", "operator", Keygen({"--user", "olga"}, "olga", "client.key"));
  const auto coordinator =
      Start({"coordinator", "--listen", "tcp://127.0.0.1:0", "--state", state(),
             "--key", Path("head/coordinator.key"), "--principals",
             Path("principals.toml")});
  endpoint_ = EndpointOf(*coordinator);
  Write("job.toml", "name = \"train\"\ncommand = [\"sleep\", \"1\"]\n");
  EXPECT_EQ(As("alice", {"submit", Path("job.toml")}).exit_code, 0);
  EXPECT_EQ(As("alice", {"hold", "train"}).exit_code, 0);
  EXPECT_EQ(As("bob", {"submit", Path("job.toml")}).exit_code, 0);
  const auto states = [&] {
    std::vector<std::string> letters;
    const Ended listed = As("olga", {"queue", "--json"});
    for (const auto& row : nlohmann::json::parse(listed.output)) {
      letters.push_back(row["state"]);
    }
    return letters;
  };
  const Ended cancelled = As("olga", {"cancel", "train"});
  EXPECT_EQ(cancelled.exit_code, 1);
  EXPECT_THAT(cancelled.errors,
              HasSubstr("name one by its id, or as alice/train or bob/train"));
  EXPECT_THAT(states(), ::testing::ElementsAre("F", "PD"));
  // A name alone means the user's own job, even while another user's job of
  // that name runs.
  EXPECT_EQ(As("alice", {"cancel", "train"}).exit_code, 0);
  EXPECT_EQ(As("alice", {"cancel", "train"}).exit_code, 1);
  EXPECT_THAT(states(), ::testing::ElementsAre("CA", "PD"));
  EXPECT_EQ(As("olga", {"cancel", "bob/train"}).exit_code, 0);
  EXPECT_THAT(As("bob", {"why", "train"}).output,
              HasSubstr("cancelled by operator olga"));
}

TEST_F(SecurityTest, AKeyElsewhereIsToldWithTheCommandsThatTakeIt) {
  for (const char* whose : {"--node", "--user"}) {
    const Ended made =
        Run({"keygen", "--directory", Path("elsewhere"), whose, "gpu-1"});
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    EXPECT_THAT(made.output,
                HasSubstr(std::string("--key ") + Path("elsewhere/")));
    EXPECT_THAT(made.output, HasSubstr("as the user that it runs as"));
    // The command that keygen suggests works, even where its folder did not
    // exist.
    std::vector<std::string> add = {
        "user",    "--principals", Path(std::string(whose + 2) + "/p.toml"),
        "add",     "gpu-1",        "--role",
        whose + 2, "--public-key", ValueOf(made.output, "public key")};
    if (whose + 2 == std::string("user")) {
      EXPECT_THAT(made.output, HasSubstr("--unix-user gpu-1"));
      add.insert(add.end(), {"--unix-user", "gpu-1"});
    }
    const Ended added = Run(add);
    EXPECT_EQ(added.exit_code, 0) << added.errors;
  }
  const Ended head =
      Run({"keygen", "--directory", Path("head"), "--coordinator"});
  EXPECT_THAT(head.output, HasSubstr("give `gavel coordinator` --key " +
                                     Path("head/coordinator.key")));
}

TEST_F(SecurityTest, AUsersJobsWeighAndCountForWhatItsPrincipalAllows) {
  Keygen({"--coordinator"}, "head", "coordinator.key");
  const std::string key = Keygen({"--user", "alice"}, "alice", "client.key");
  const Ended added =
      User({"add", "alice", "--unix-user", kUser, "--public-key", key,
            "--entity", "vision", "--weight", "2", "--weight-max", "10"});
  ASSERT_EQ(added.exit_code, 0) << added.errors;
  EXPECT_THAT(User({"list", "--json"}).output, HasSubstr("\"vision\""));
  const auto coordinator =
      Start({"coordinator", "--listen", "tcp://127.0.0.1:0", "--state", state(),
             "--key", Path("head/coordinator.key"), "--principals",
             Path("principals.toml")});
  endpoint_ = EndpointOf(*coordinator);
  const auto submit = [&](const std::string& keys) {
    Write("job.toml", "name = \"a\"\ncommand = [\"sleep\", \"1\"]\n" + keys);
    return As("alice", {"submit", Path("job.toml")});
  };
  for (const char* weight : {"1e308", "1e-300", "2000.0", "0.0001"}) {
    EXPECT_THAT(submit(std::string("weight = ") + weight + "\n").errors,
                HasSubstr("is not between 0.001 and 1000"))
        << weight;
  }
  EXPECT_THAT(submit("weight = 11.0\n").errors,
              HasSubstr("exceeds your largest, 10"));
  EXPECT_THAT(submit("entity = \"finance\"\n").errors,
              HasSubstr("choose vision"));
  const Ended submitted = submit("weight = 10.0\nclass = \"interactive\"\n");
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  EXPECT_THAT(submit("budget = 3.0\n").errors,
              HasSubstr("budget is not supported"));
  EXPECT_THAT(As("alice", {"queue", "--json"}).output,
              HasSubstr("\"entity\": \"vision\""));
}

TEST_F(SecurityTest, ATeamsJobRunsAsItsOwnerAndNoSecretShows) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can run jobs of others";
  ASSERT_EQ(chmod(folder().c_str(), 0711), 0);
  Keygen({"--coordinator"}, "head", "coordinator.key");
  Allow("here", "node", Keygen({"--node", "here"}, "node", "node.key"));
  Allow("alice", "user", Keygen({"--user", "alice"}, "alice", "client.key"));
  Allow("bob", "user", Keygen({"--user", "bob"}, "bob", "client.key"));
  WriteCluster(1, 60, 30);
  const auto coordinator =
      Start({"coordinator", "--listen", "tcp://127.0.0.1:0", "--state", state(),
             "--key", Path("head/coordinator.key"), "--principals",
             Path("principals.toml")});
  endpoint_ = EndpointOf(*coordinator);
  ASSERT_NE(endpoint_, "");
  const auto agent = Start({"agent", "--coordinator", endpoint_, "--cluster",
                            Path("cluster.toml"), "--state", Path("agent"),
                            "--key", Path("node/node.key"), "--coordinator-key",
                            Path("head/coordinator.pub")});

  // The job's owner can write to this folder, and run the worker from it.
  ASSERT_EQ(mkdir(Path("jobs").c_str(), 0755), 0);
  fs::copy_file(GAVEL_BINARY_DIR "/tests/fake_worker", Path("jobs/worker"));
  ASSERT_EQ(chown(Path("jobs").c_str(), 65534, 65534), 0);
  Write("jobs/a.toml",
        "name = \"a\"\ncommand = [\"./worker\", \"--steps\", \"400\"]\n");
  Write("jobs/b.toml",
        "name = \"b\"\ncommand = [\"sh\", \"-c\", \"id -un; env; sleep 0\"]\n");
  const Ended submitted = As("alice", {"submit", Path("jobs/a.toml")});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  ASSERT_TRUE(Eventually([&] { return !LogUnder(Path("agent"), 1).empty(); }))
      << agent->errors();
  // The worker's own key, which its agent made for it, is a secret, too.
  size_t of_workers = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(Path("agent/keys-here"))) {
    if (!entry.is_regular_file()) continue;
    secrets_.push_back(ValueOf(ReadText(entry.path()), "secret_key"));
    EXPECT_EQ(secrets_.back().size(), 40U) << entry.path();
    ++of_workers;
  }
  EXPECT_EQ(of_workers, 1U);
  ExpectNoSecretIn(AllArguments(), "a process's arguments or environment");
  // Other users can't touch the job while it runs.
  EXPECT_THAT(As("bob", {"cancel", "a"}).errors, HasSubstr("not yours"));
  EXPECT_THAT(As("bob", {"logs", "a"}).errors, HasSubstr("not yours"));
  std::string queue;
  EXPECT_TRUE(Eventually([&] {
    queue = As("alice", {"queue", "--json"}).output;
    return queue.find("\"finished\"") != std::string::npos;
  })) << queue
      << agent->errors() << LogUnder(Path("agent"), 1);
  struct stat info {};
  const std::string saved =
      CheckpointDirectory(Path("jobs/gavel-state"), "1-a");
  ASSERT_EQ(stat(saved.c_str(), &info), 0) << saved;
  EXPECT_EQ(info.st_uid, 65534U);

  EXPECT_EQ(As("alice", {"submit", Path("jobs/b.toml")}).exit_code, 0);
  std::string log;
  EXPECT_TRUE(Eventually([&] {
    log = As("alice", {"logs", "b"}).output;
    return log.find("GAVEL_KEY_FILE") != std::string::npos;
  })) << log;
  EXPECT_THAT(log, HasSubstr(kUser));
  EXPECT_THAT(log, Not(HasSubstr("\nLD_")));
  ExpectNoSecretIn(log, "the output of a job");

  const Ended audit = Run({"audit", "--state", state()});
  EXPECT_THAT(audit.output, HasSubstr("submit job 1 a: done"));
  EXPECT_THAT(audit.output, HasSubstr("job 1 is not yours"));
  EXPECT_EQ(User({"revoke", "alice"}).exit_code, 0);
  EXPECT_TRUE(
      Eventually([&] { return As("alice", {"queue"}).exit_code != 0; }));

  agent->Signal(SIGTERM);
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(agent->Wait(), 0);
  EXPECT_EQ(coordinator->Wait(), 0);
  EXPECT_TRUE(fs::is_empty(Path("agent/keys-here")));
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    if (!entry.is_regular_file() || entry.path().extension() == ".key")
      continue;
    ExpectNoSecretIn(ReadText(entry.path()), entry.path());
  }
}

// A job file may hold secrets, too. They lie in the journal, but no command
// shows them to anybody. Needs no root.
class JobSecretTest : public SecurityTest {
 protected:
  JobSecretTest() {
    secrets_ = {"canary-4b1f9c7d20e8"};
    UseKeys({"here"});
  }
  // Runs a command and looks for secrets in its output.
  Ended Look(const std::vector<std::string>& arguments, int exit_code = 0) {
    const Ended ended = Run(arguments);
    std::string command = "gavel";
    for (const std::string& argument : arguments) command += " " + argument;
    EXPECT_EQ(ended.exit_code, exit_code) << command << ended.errors;
    ExpectNoSecretIn(ended.output, command);
    ExpectNoSecretIn(ended.errors, command);
    return ended;
  }
  Ended Ask(std::vector<std::string> arguments, int exit_code = 0) {
    Append({"--coordinator", endpoint_}, &arguments);
    return Look(arguments, exit_code);
  }
  std::string Secret() const {
    return StrCat("[environment]\nTOKEN = \"", secrets_.front(), "\"\n");
  }
};

TEST_F(JobSecretTest, NoCommandShowsTheEnvironmentOfJobs) {
  WriteCluster(1, 2, 1);
  std::vector<std::string> arguments = {"coordinator", "--listen",
                                        "tcp://127.0.0.1:0", "--state", state(),
                                        // A snapshot holds the job, too.
                                        "--snapshot-rows", "5"};
  Append(keys().OfCoordinator(), &arguments);
  const auto coordinator = Start(arguments);
  endpoint_ = EndpointOf(*coordinator);
  arguments = {"agent",
               "--coordinator",
               endpoint_,
               "--cluster",
               Path("cluster.toml"),
               "--server",
               "here",
               "--state",
               Path("agent")};
  Append(keys().OfAgent("here"), &arguments);
  const auto agent = Start(arguments);

  const std::string known = "steps_total = 500\n[throughputs]\ncpu = 100\n";
  const std::string job = WriteJob("job", {"--steps", "500"}, known + Secret());
  Ask({"submit", job});
  Ask({"submit", WriteCommand("lost", {"no-such-program"},
                              "retries_max = 0\n" + Secret())});
  // These job files can't be parsed, each for another reason.
  for (const char* value :
       {"canary-4b1f9c7d20e8", "\"canary-4b1f9c7d20e8",
        "1 # canary-4b1f9c7d20e8", "[\"canary-4b1f9c7d20e8\"]",
        "\"\\q canary-4b1f9c7d20e8\""}) {
    Ask({"submit", WriteCommand("bad", {"./train"},
                                StrCat("[environment]\nTOKEN = ", value))},
        1);
  }
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 20)) << agent->errors();
  ASSERT_TRUE(ReachesState(endpoint_, "lost", "F"));
  for (const char* command : {"queue", "nodes", "status", "history"}) {
    Ask({command});
    Ask({command, "--json"});
  }
  for (const char* show : {"leases", "rounds", "steps"}) {
    Ask({"history", "--show", show, "--json"});
  }
  Ask({"why", "job"});
  Ask({"why", "lost", "--json"});
  Ask({"logs", "job"});
  Ask({"logs", "lost"});
  Ask({"what-if", job});
  Ask({"what-if", job, "--json"});
  EXPECT_TRUE(ReachesState(endpoint_, "job", "CD"));
  Ask({"cancel", "job"}, 1);

  // These commands read the files, which may be in use.
  const std::string journal = state() + "/journal.db";
  EXPECT_THAT(Look({"replay", journal}).output, HasSubstr("JobSubmitted"));
  Look({"history", "--file", journal, "--json"});
  Look({"audit", "--state", state()});
  Look({"simulate", "--replay", journal, "--policy", "fifo", "--record-rounds",
        "--output", Path("simulated.json")});
  agent->Signal(SIGTERM);
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(agent->Wait(), 0);
  EXPECT_EQ(coordinator->Wait(), 0);

  // On disk the secret is only where docs/security.md says so, and only its
  // owner can read it.
  bool journaled = false;
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    if (!entry.is_regular_file() || entry.path().extension() == ".toml")
      continue;
    const std::string text = ReadText(entry.path());
    if (entry.path().filename().string().starts_with("journal.db")) {
      journaled |= text.find(secrets_.front()) != std::string::npos;
      EXPECT_EQ(entry.status().permissions() & fs::perms(077), fs::perms::none)
          << entry.path();
    } else {
      ExpectNoSecretIn(text, entry.path());
    }
  }
  EXPECT_TRUE(journaled);
}

}  // namespace
}  // namespace gavel::testing
