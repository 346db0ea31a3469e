// Runs the scenarios of tests/golden: a command in each line that starts with
// "> ", and under it what the coordinator decided because of it. To write the
// decisions anew (and then read the diff):
//   GAVEL_REWRITE_GOLDEN=1 build/bin/tests/engine_golden_test
//
//   > server NAME TYPE:COUNT ...
//   > submit NAME [key=value ...]   (scale, least, most, speedup.N,
//                                    weight, steps, speed.TYPE, fail_at,
//                                    fail_times, given.TYPE, stuck)
//   > run SECONDS
//   > kill worker JOB RANK | kill agent NAME | kill coordinator
//   > start agent NAME | start coordinator
//   > partition NAME | heal NAME
//   > cancel JOB | release JOB
//   > show                          (state of every job, and why)
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/engine/describe.h"
#include "tests/simulation/world/virtual_cluster.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

VirtualClusterOptions Options() {
  VirtualClusterOptions options;
  options.engine.round_duration_s = 10;
  options.engine.lease_duration_s = 4;
  options.engine.plan_lead_s = 1;
  options.engine.pause_grace_s = 5;
  options.engine.stop_grace_s = 2;
  return options;
}

class Scenario {
 public:
  Scenario() : cluster_(Options()) {
    cluster_.set_observer([this](Time now, const Action& action) {
      const std::string words = Describe(action);
      // Rows, welcomes and denials would hide what matters.
      for (const char* noise : {"persist", "deny", "welcome", "notice"}) {
        if (words.rfind(noise, 0) == 0) return;
      }
      // Renewals too: of each lease only the first grant.
      if (words.rfind("grant", 0) == 0) {
        const std::string lease = words.substr(0, words.find(':'));
        if (!granted_.insert(lease).second) return;
      }
      decisions_.push_back(absl::StrFormat("%8.3f %s", now, words));
    });
  }

  std::vector<std::string> Run(const std::string& command) {
    decisions_.clear();
    std::istringstream words(command);
    std::string verb;
    words >> verb;
    const std::map<std::string, std::function<void(std::istream&)>> verbs = {
        {"server", [this](auto& in) { Server(in); }},
        {"submit", [this](auto& in) { Submit(in); }},
        {"run",
         [this](auto& in) { cluster_.RunUntil(cluster_.now() + Number(in)); }},
        {"kill", [this](auto& in) { Kill(in); }},
        {"start", [this](auto& in) { Start(in); }},
        {"partition",
         [this](auto& in) { cluster_.SetPartitioned(Word(in), true); }},
        {"heal",
         [this](auto& in) { cluster_.SetPartitioned(Word(in), false); }},
        {"cancel", [this](auto& in) { Command(in, CommandKind::kCancel); }},
        {"release", [this](auto& in) { Command(in, CommandKind::kRelease); }},
        {"show", [this](auto&) { Show(); }}};
    const auto it = verbs.find(verb);
    if (it == verbs.end()) {
      ADD_FAILURE() << "unknown command: " << command;
    } else {
      it->second(words);
    }
    for (const std::string& broken : cluster_.violations()) {
      ADD_FAILURE() << command << ": " << broken;
    }
    return decisions_;
  }

 private:
  static std::string Word(std::istream& in) {
    std::string word;
    in >> word;
    return word;
  }
  static double Number(std::istream& in) { return std::stod(Word(in)); }

  void Server(std::istream& in) {
    const std::string name = Word(in);
    std::vector<AcceleratorInfo> accelerators;
    for (std::string word = Word(in); !word.empty(); word = Word(in)) {
      const size_t colon = word.find(':');
      for (int i = std::stoi(word.substr(colon + 1)); i > 0; --i) {
        AcceleratorInfo info;
        info.type = word.substr(0, colon);
        info.uuid = StrCat(name, "-", accelerators.size());
        accelerators.push_back(info);
      }
    }
    cluster_.AddServer(name, accelerators);
  }

  void Submit(std::istream& in) {
    JobSpec spec;
    spec.name = Word(in);
    spec.argv = {"./train"};
    VirtualTraining training;
    for (std::string word = Word(in); !word.empty(); word = Word(in)) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const double value =
          equals == std::string::npos ? 1 : std::stod(word.substr(equals + 1));
      Set(key, value, spec, training);
    }
    cluster_.Submit(spec, training);
  }

  static void Set(const std::string& key, double value, JobSpec& spec,
                  VirtualTraining& training) {
    const size_t dot = key.find('.');
    if (key == "scale") {
      spec.scale_factor = static_cast<int>(value);
    } else if (key == "weight") {
      spec.weight = value;
    } else if (key == "steps") {
      training.steps_total = static_cast<uint64_t>(value);
    } else if (key == "fail_at") {
      training.fail_at_step = static_cast<uint64_t>(value);
      training.fail_code = 3;
    } else if (key == "fail_times") {
      training.fail_incarnations = static_cast<int>(value);
    } else if (key == "stuck") {
      training.ignores_pauses = true;
    } else if (key == "least") {
      spec.scale_factor_min = static_cast<int>(value);
    } else if (key == "most") {
      spec.scale_factor_max = static_cast<int>(value);
    } else if (key.rfind("speedup.", 0) == 0) {
      training.speed_up[std::stoi(key.substr(dot + 1))] = value;
    } else if (key.rfind("speed.", 0) == 0) {
      training.steps_per_s[key.substr(dot + 1)] = value;
    } else if (key.rfind("given.", 0) == 0) {
      spec.throughputs[key.substr(dot + 1)] = value;
    } else {
      ADD_FAILURE() << "unknown key " << key;
    }
  }

  void Kill(std::istream& in) {
    const std::string what = Word(in);
    if (what == "coordinator") return cluster_.KillCoordinator();
    if (what == "agent") return cluster_.KillAgent(Word(in));
    const auto job = static_cast<uint64_t>(Number(in));
    cluster_.KillWorker({JobId(job), static_cast<int>(Number(in))});
  }

  void Start(std::istream& in) {
    const std::string what = Word(in);
    what == "coordinator" ? cluster_.StartCoordinator()
                          : cluster_.StartAgent(Word(in));
  }

  void Command(std::istream& in, CommandKind kind) {
    cluster_.Command(JobId(static_cast<uint64_t>(Number(in))), kind);
  }

  void Show() {
    for (const auto& [id, job] : cluster_.engine().jobs()) {
      const std::string size = job.active() ? RenderResize(job) : "";
      decisions_.push_back(absl::StrFormat(
          "         job %d %s: %s, %d steps; %s%s%s", id.value(), job.spec.name,
          std::string(JobStateName(job.state)), cluster_.StepsDone(id),
          RenderReason(cluster_.engine().Why(id, cluster_.now())),
          size.empty() ? "" : "; ", size));
    }
  }

  std::set<std::string> granted_;
  std::vector<std::string> decisions_;
  VirtualCluster cluster_;
};

std::string Play(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  Scenario scenario;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("> ", 0) == 0) {
      StrAppend(&out, line, "\n");
      for (const std::string& decision : scenario.Run(line.substr(2))) {
        StrAppend(&out, decision, "\n");
      }
    } else if (line.empty() || line[0] == '#') {
      StrAppend(&out, line, "\n");
    }
  }
  return out;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class GoldenTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenTest, DecidesAsWritten) {
  const std::string expected = Read(GetParam());
  const std::string played = Play(expected);
  if (std::getenv("GAVEL_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(GetParam()) << played;
    return;
  }
  EXPECT_EQ(played, expected) << GetParam();
}

std::vector<std::filesystem::path> Scenarios() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(GAVEL_SOURCE_DIR) / "tests" / "golden")) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, GoldenTest, testing::ValuesIn(Scenarios()),
    [](const testing::TestParamInfo<std::filesystem::path>& scenario) {
      return scenario.param.stem().string();
    });

}  // namespace
}  // namespace gavel
