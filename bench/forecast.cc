// How well `gavel submit --dry-run` and `gavel queue --start` predict when a
// job ends: real jobs on CPU slots of a real coordinator and agent, which come
// one after the other. Each forecast is made as the job is submitted. The error
// is that of the predicted end, in percent of the time from the submission to
// the real end.
//
//   bench_forecast [--jobs N] [--slots N] [--load PART] [--policy NAME]
//                  [--seed N] [--out FILE.json]
//
// A forecast knows no jobs that are yet to come. Under `fifo` these change
// nothing for the jobs ahead of them. Under another policy the error is also
// that of not knowing them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/leased_job.h"
#include "bench/live_cluster.h"
#include "bench/table.h"
#include "core/text.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "nlohmann/json.hpp"

namespace gavel::bench {
namespace {

using Json = nlohmann::json;

constexpr double kStep_s = 0.05;
// The jobs' durations are drawn log-uniformly.
constexpr double kShortest_s = 15;
constexpr double kLongest_s = 60;
constexpr std::chrono::milliseconds kLookAgain(500);
constexpr double kError_percent_max = 10;

struct Options {
  int jobs = 50;
  int slots = 4;
  double load = 0.9;  // the work that comes, over what the slots can do
  std::string policy = "fifo";
  int seed = 1;
  bool as_job = false;
  std::string out;
};

// ---- the job

// Sleeps in each step, up to the steps_total of its job file.
int RunJob() {
  const auto session = Session::FromEnvironment();
  int epoch = 0;
  session->Track("epoch", epoch);
  Forever range;
  for (auto&& none : Iterator(*session, range)) {
    static_cast<void>(none);
    std::this_thread::sleep_for(std::chrono::duration<double>(kStep_s));
  }
  return session->Finish();
}

double WallNow() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string WriteJob(const LiveCluster& cluster, int number, uint64_t steps) {
  return cluster.WriteJob(StrCat("job-", number),
                          {cluster.bin() + "/bench_forecast", "--as-job"},
                          steps, 1 / kStep_s);
}

// ---- the forecasts

// Times since 1970.
struct Forecast {
  uint64_t id = 0;
  double submitted_s = 0;
  std::optional<double> by_dry_run_s;
  std::optional<double> by_queue_s;  // only of a job that waits
};

Forecast SubmitOne(LiveCluster& cluster, const std::string& path) {
  Forecast forecast;
  const Json tried = cluster.MustRun({"submit", "--dry-run", "--json", path});
  const Json submitted = cluster.MustRun({"submit", "--json", path});
  forecast.submitted_s = WallNow();
  forecast.id = submitted.at(0).at("id").get<uint64_t>();
  const Json& predicted = tried.at(0).at("forecast");
  if (predicted.is_object()) {
    const Json& finish = predicted.at("job").at("finish_in_s");
    if (finish.is_number()) {
      forecast.by_dry_run_s = forecast.submitted_s + finish.get<double>();
    }
  }
  const double asked_s = WallNow();
  const Json queue = cluster.MustRun({"queue", "--start", "--json"});
  for (const Json& job : queue.at("jobs")) {
    const Json& finish = job.at("finish").at("median_in_s");
    if (job.at("id") == forecast.id && finish.is_number()) {
      forecast.by_queue_s = asked_s + finish.get<double>();
    }
  }
  return forecast;
}

// Submits all jobs, each at its time.
std::vector<Forecast> SubmitAll(LiveCluster& cluster, const Options& options) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::uniform_real_distribution<double> duration(std::log(kShortest_s),
                                                  std::log(kLongest_s));
  const double mean_s =
      (kLongest_s - kShortest_s) / std::log(kLongest_s / kShortest_s);
  std::exponential_distribution<double> between(options.slots * options.load /
                                                mean_s);
  std::vector<Forecast> forecasts;
  double next_s = WallNow();
  for (int i = 0; i < options.jobs; ++i) {
    const double wait_s = std::max(0.0, next_s - WallNow());
    std::this_thread::sleep_for(std::chrono::duration<double>(wait_s));
    next_s += between(random);
    const auto steps =
        static_cast<uint64_t>(std::exp(duration(random)) / kStep_s);
    const std::string path =
        WriteJob(cluster, i + 1, std::max<uint64_t>(1, steps));
    forecasts.push_back(SubmitOne(cluster, path));
  }
  return forecasts;
}

// Waits for the end of all jobs, and returns when each ended, by id.
std::map<uint64_t, double> WaitForEnds(LiveCluster& cluster, size_t jobs) {
  std::map<uint64_t, double> ends;
  while (ends.size() < jobs) {
    std::this_thread::sleep_for(kLookAgain);
    for (const Json& row : cluster.MustRun({"queue", "--json"})) {
      const Json& ended = row.at("ended_at_s");
      const std::string state = row.at("state").get<std::string>();
      if (ended.is_null() && state != "F") continue;
      Demand(state == "CD",
             StrCat("job ", row.at("id").get<uint64_t>(), " finishes; it is ",
                    state, ": ", row.at("reason").get<std::string>()));
      ends[row.at("id").get<uint64_t>()] = ended.get<double>();
    }
  }
  return ends;
}

void AddErrors(const std::string& name, const std::vector<double>& errors,
               std::vector<Row>* rows) {
  if (errors.empty()) Die(name + " predicted no end");
  Add(rows, {.name = name + ", median error of the end",
             .value = Median(errors),
             .unit = "%",
             .goal = ValueAtMost(kError_percent_max)});
  Add(rows, {.name = name + ", worst error of the end",
             .value = *std::ranges::max_element(errors),
             .unit = "%"});
  Add(rows, {.name = name + ", jobs with a forecast",
             .value = static_cast<double>(errors.size()),
             .unit = "jobs"});
}

std::vector<Row> Measure(const Options& options) {
  LiveCluster cluster({.slots = options.slots, .policy = options.policy});
  const std::vector<Forecast> forecasts = SubmitAll(cluster, options);
  const std::map<uint64_t, double> ends =
      WaitForEnds(cluster, forecasts.size());
  std::vector<double> of_dry_run;
  std::vector<double> of_queue;
  for (const Forecast& forecast : forecasts) {
    const double ended_s = ends.at(forecast.id);
    const double took_s = ended_s - forecast.submitted_s;
    const auto percent = [&](double predicted_s) {
      return 100 * std::abs(predicted_s - ended_s) / took_s;
    };
    if (forecast.by_dry_run_s) {
      of_dry_run.push_back(percent(*forecast.by_dry_run_s));
    }
    if (forecast.by_queue_s) of_queue.push_back(percent(*forecast.by_queue_s));
  }
  Demand(of_dry_run.size() == forecasts.size(),
         "`gavel submit --dry-run` predicts the end of every job");
  std::vector<Row> rows;
  AddErrors("submit --dry-run", of_dry_run, &rows);
  AddErrors("queue --start", of_queue, &rows);
  return rows;
}

int Main(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--jobs", &options.jobs},
             {"--slots", &options.slots},
             {"--load", &options.load},
             {"--policy", &options.policy},
             {"--seed", &options.seed},
             {"--as-job", &options.as_job},
             {"--out", &options.out}});
  if (options.as_job) return RunJob();
  if (options.jobs < 1 || options.slots < 1 || !(options.load > 0)) {
    Die("--jobs and --slots have to be 1 or more, and --load above 0");
  }
  return Report(Measure(options), options.out);
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) { return gavel::bench::Main(argc, argv); }
