// How long the user of `gavel shell` waits on a loaded cluster: real processes
// of a coordinator and of two agents with CPU slots, with training jobs
// (examples/train_language_model) on 95 % of the slots, and then on all of
// them, where each shell pauses one. A wait is that of `gavel shell -- true`
// from its start to its end, so it includes the end of the program.
//
//   bench_shell [--slots N] [--shells N] [--check] [--out FILE.json]
//
// Every run asserts that all commands succeed, that each shell on full slots
// pauses a training job, and that no training job fails or remains paused.
// --check has a small cluster and does not judge the goals.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/live_cluster.h"
#include "bench/table.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel::bench {
namespace {

using Json = nlohmann::json;

constexpr int kServers = 2;
constexpr double kHeld = 0.95;
constexpr double kRound_s = 60;
// Only for the simulator: the jobs train to the end of the program.
constexpr double kStepsPerSecond = 10;
constexpr uint64_t kSteps = 100'000'000;
constexpr double kTraining_s_max = 300;  // until all jobs train
constexpr std::chrono::milliseconds kLookAgain(100);
constexpr double kShell_s_max = 2;

struct Options {
  int slots = 20;  // of both servers
  int shells = 100;
  bool check = false;
  std::string out;
};

constexpr char kTrainingName[] = "train-";

// Waits until so many training jobs run, and each has made a step. Returns how
// often they have paused so far.
int WaitUntilTraining(LiveCluster& cluster, int jobs) {
  const auto start = Clock::now();
  while (true) {
    int training = 0;
    int pauses = 0;
    for (const Json& row : cluster.MustRun({"queue", "--json"})) {
      if (!row.at("name").get<std::string>().starts_with(kTrainingName)) {
        continue;
      }
      Demand(row.at("ended_at_s").is_null() && row.at("failures_in_a_row") == 0,
             "training jobs train on; one is " + row.dump());
      training += row.at("state") == "R" && row.at("steps_done") > 0 ? 1 : 0;
      pauses += row.at("pauses").get<int>();
    }
    if (training == jobs) return pauses;
    if (SecondsSince(start) > kTraining_s_max) {
      Die(StrCat("only ", training, " of ", jobs, " jobs train"));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

void SubmitTraining(LiveCluster& cluster, int number) {
  const std::string program = cluster.bin() + "/train_language_model";
  const std::string path = cluster.WriteJob(StrCat(kTrainingName, number),
                                            {program, "--epochs", "1000000"},
                                            kSteps, kStepsPerSecond);
  cluster.MustRun({"submit", "--json", path});
}

void AddShells(LiveCluster& cluster, const Options& options, int training,
               std::vector<Row>* rows) {
  std::vector<double> waits_s;
  for (int i = 0; i < options.shells; ++i) {
    WaitUntilTraining(cluster, training);
    const auto start = Clock::now();
    const bool done = cluster.Run({"shell"}, {"--", "/bin/true"}) == 0;
    waits_s.push_back(SecondsSince(start));
    Demand(done, StrCat("`gavel shell` succeeds: ", cluster.errors()));
  }
  const std::string name = StrCat("gavel shell, jobs on ", training, " of ",
                                  options.slots, " slots, ");
  Add(rows, {name + "p50", Percentile(waits_s, 50), "s"});
  Add(rows, {name + "p99", Percentile(waits_s, 99), "s", "", 0,
             ValueAtMost(kShell_s_max)});
  Add(rows, {name + "max", Percentile(waits_s, 100), "s"});
}

std::vector<Row> Measure(const Options& options) {
  LiveCluster cluster({.servers = kServers,
                       .slots = options.slots / kServers,
                       .policy = "max_min_fairness",
                       .round_s = kRound_s});
  const int held = static_cast<int>(kHeld * options.slots);
  for (int i = 0; i < held; ++i) SubmitTraining(cluster, i);
  std::vector<Row> rows;
  AddShells(cluster, options, held, &rows);
  for (int i = held; i < options.slots; ++i) SubmitTraining(cluster, i);
  const int before = WaitUntilTraining(cluster, options.slots);
  AddShells(cluster, options, options.slots, &rows);
  const int after = WaitUntilTraining(cluster, options.slots);
  Demand(after - before >= options.shells,
         StrCat("each shell pauses a training job; ", after - before, " of ",
                options.shells, " did"));
  return rows;
}

Options ReadOptions(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--slots", &options.slots},
             {"--shells", &options.shells},
             {"--check", &options.check},
             {"--out", &options.out}});
  if (options.check) {
    options.slots = 4;
    options.shells = 3;
  }
  if (options.slots < kServers || options.slots % kServers != 0 ||
      options.shells < 1) {
    Die("--slots has to be even, and --shells at least 1");
  }
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const Options options = ReadOptions(argc, argv);
  const std::vector<Row> rows = Measure(options);
  if (!options.check) return Report(rows, options.out);
  Print(rows);
  return 0;
}
