// Fuzz targets for texts that people write (jobs, clusters, traces,
// throughputs, prices, principals) and for the JSON that a client gets from a
// coordinator.
#include <nlohmann/json.hpp>

#include "coordinator/cli/table.h"
#include "coordinator/server/principals.h"
#include "coordinator/tune/optimiser.h"
#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/json_fields.h"
#include "coordinator/workload/price_series.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "tests/fuzz/targets.h"

namespace gavel::fuzz {

void RunJob(std::string_view bytes) {
  const absl::StatusOr<JobSpec> spec = ParseJobSpec(bytes, "job.toml");
  if (!spec.ok()) return;
  const std::string written = FormatJobSpec(*spec);
  const absl::StatusOr<JobSpec> again = ParseJobSpec(written, "again.toml");
  // The canonical form may be longer than the text, and so exceed the bound.
  if (written.size() > kJobSpecBytesMax) return;
  Require(again.ok(), "a job that was written can be read");
  Require(*again == *spec, "a job comes back the same");
}

void RunCluster(std::string_view bytes) {
  const absl::StatusOr<ClusterSpec> spec =
      ParseClusterSpec(bytes, "cluster.toml");
  if (!spec.ok()) return;
  for (const ServerSpec& server : spec->servers) {
    Require(IsValidName(server.name), "servers have names");
    Require(server.accelerators.size() <= kAcceleratorsPerServerMax,
            "an agent can declare a server's accelerators");
  }
}

void RunTrace(std::string_view bytes) {
  const absl::StatusOr<Trace> trace = ParseTrace(bytes, "trace");
  if (!trace.ok()) return;
  double arrival_s = 0;
  for (const TraceJob& job : trace->jobs) {
    Require(job.job_template < trace->templates.size(), "jobs have a template");
    Require(job.entity == TraceJob::kNoEntity ||
                job.entity < trace->entities.size(),
            "jobs have an entity, or none");
    Require(job.arrival_s >= arrival_s, "jobs are in the order of arrival");
    arrival_s = job.arrival_s;
  }
  FormatTrace(*trace);
}

void RunThroughputs(std::string_view bytes) {
  const auto table = ThroughputTable::Parse(bytes, "throughputs.json");
  if (!table.ok()) return;
  for (size_t row = 0; row < table->rows(); ++row) {
    const auto& [job_type, scale_factor] = table->NameOf(row);
    Require(table->FindRow(job_type, scale_factor) == row, "rows are found");
    for (size_t type = 0; type < table->types().size(); ++type) {
      const double steps_per_s = table->Alone(row, type).value_or(0);
      Require(steps_per_s >= 0 && steps_per_s <= kStepsPerSecondMax,
              "throughputs are within their bounds");
      table->Together(row, 0, type, /*consolidated=*/false);
    }
  }
}

void RunPrices(std::string_view bytes) {
  PriceSeries::Constant(bytes).IgnoreError();
  const auto prices = PriceSeries::Parse(bytes, "prices.csv");
  if (!prices.ok()) return;
  Require(prices->At("v100", 0) >= 0, "prices are not negative");
  prices->NextChange(0);
}

void RunPrincipals(std::string_view bytes) {
  const absl::StatusOr<Principals> principals =
      ParsePrincipals(bytes, "principals.toml");
  if (!principals.ok()) return;
  const absl::StatusOr<Principals> again =
      ParsePrincipals(FormatPrincipals(*principals), "again.toml");
  Require(again.ok(), "principals that were written can be read");
  Require(*again == *principals, "principals come back the same");
}

void RunReply(std::string_view bytes) {
  const auto json = ParseJson(bytes);
  if (!json.ok()) return;
  for (const QueueRow& row : ParseQueue(*json)) StateWord(row.state);
  ParseNodes(*json);
  ParseStatus(*json);
  ParseWhy(*json);
  ParseForecast(*json);
}

void RunSearch(std::string_view bytes) {
  const auto spec = tune::ParseSearchSpec(bytes, "search.toml");
  if (!spec.ok()) return;
  Require(spec->trials > 0 && spec->trials <= tune::kTrialsMax,
          "the number of trials is bounded");
  const std::vector<std::string> values =
      spec->method == tune::Method::kGrid
          ? tune::GridTrial(*spec, spec->trials - 1)
          : tune::DrawTrial(*spec, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    Require(tune::CheckValue(spec->space[i], values[i]).ok(),
            "what is drawn is in the space");
  }
  tune::Perturb(*spec, values, 0, spec->steps);
  const tune::Plan plan = tune::Decide(*spec, {});
  Require(plan.question || !plan.next.empty(), "a search begins");
}

void RunAnswer(std::string_view bytes) {
  static const auto spec = tune::ParseSearchSpec(SearchSeeds()[0], "seed");
  const auto values = tune::ParseAnswer(*spec, {1, 0, {}}, bytes);
  if (values.ok() && !values->stop) {
    Require(values->values.size() == spec->space.size(),
            "each parameter has a value");
  }
  tune::ParseAnswer(*spec, {1, 9, 0.5}, bytes).IgnoreError();
  tune::DecodeState(bytes).IgnoreError();
}

std::vector<std::string> SearchSeeds() {
  constexpr char kSpace[] = R"(
[[parameter]]
name = "lr"
kind = "log_uniform"
min = 1e-5
max = 0.1
points = 3
[[parameter]]
name = "depth"
kind = "integer"
min = 2
max = 5
[[parameter]]
name = "act"
kind = "choice"
values = ["relu", "tanh"]
)";
  const auto search = [&](const char* keys) {
    return StrCat("name = \"s\"\nmetric = \"loss\"\nsteps = 81\n", keys,
                  kSpace);
  };
  return {search("method = \"program\"\ntrials = 9\nprogram = [\"x\"]"),
          search("method = \"hyperband\"\nsteps_min = 1\neta = 3\nseed = 1"),
          search("method = \"population\"\ntrials = 9\nsteps_min = 9"),
          search("method = \"median\"\ntrials = 9\nsteps_min = 9\n"
                 "goal = \"max\""),
          search("method = \"grid\"\ntrials_at_once = 2") +
              "[job]\nscale_factor = 2\n"};
}

std::vector<std::string> AnswerSeeds() {
  tune::SearchState state;
  state.id = "abc123";
  state.file = "x";
  state.command = {"./train", "{lr}"};
  state.segments.emplace_back();
  state.answers = {{0, 0, false, {"0.1"}}};
  return {R"({"values": {"lr": 0.01, "depth": 3, "act": "relu"}})",
          R"({"done": true})", R"({"continue": false})",
          tune::EncodeState(state)};
}

std::vector<std::string> JobSeeds() {
  JobSpec spec;
  spec.name = "resnet-1";
  spec.argv = {"./train", "--epochs", "3", "a \"b\" \\ \n \x01"};
  spec.working_directory = "/home/a";
  spec.environment = {{"DATA", "/data/cifar10"}};
  spec.app = "ResNet-18 (batch size 64)";
  spec.scale_factor = 2;
  spec.scale_factor_min = 1;
  spec.scale_factor_max = 4;
  spec.weight = 0.1;
  spec.steps_total = 100000;
  spec.deadline_s = 86400;
  spec.budget = 1e-3;
  spec.throughputs = {{"v100", 45.5}, {"k80", 6}};
  spec.pause_s = 0.5;
  return {FormatJobSpec(spec), "name = \"a\"\ncommand = [\"x\"]\n",
          "name = 'a'\ncommand = ['''x''']\n[throughputs]\nk80 = inf\n"};
}

std::vector<std::string> ClusterSeeds() {
  return {R"([scheduling]
policy = "max_min_fairness_perf"
round_duration_s = 5
lease_duration_s = 2
mechanism = "move_aware"
[prices]
cpu_fast = 0.74
[[entity]]
name = "vision"
weight = 2
policy = "fairness"
[[server]]
name = "here"
host_memory_bytes = "64GiB"
[[server.accelerator]]
type = "cpu_fast"
count = 2
threads = 1
[[server.accelerator]]
type = "h200"
device = "cuda:0"
memory_bytes = "141GiB"
context_bytes = "500MiB"
slow_down_factor = 2.0
)"};
}

std::vector<std::string> TraceSeeds() {
  Trace trace;
  trace.templates = {{"ResNet-18 (batch size 64)", "python3 main.py",
                      "image_classification", "--num_steps", true, true}};
  trace.jobs = {{0, 2, 1, 1000, 0}, {0, 1, 5, 500, 12.5, 1.2}};
  return {FormatTrace(trace), "type\tcmd\t--steps\t1\t100\t0\t1\n",
          "arrival_s,type,duration_s,num_gpus,weight\n0,a,100,2,1\n"
          "1.5,\"b,\"\"c\",20,1,2\n",
          R"([[entity]]
name = "vision"
weight = 2
[[job]]
type = "a"
count = 3
steps_total = 100
arrival_s = 5
entity = "vision"
)"};
}

std::vector<std::string> ThroughputSeeds() {
  return {R"json({
"v100": {"('A', 1)": {"null": 10, "('B', 1)": [4, 5.5]},
         "('B', 1)": {"null": 20, "('A', 1)": [5.5, 4]}},
"v100_unconsolidated": {"('A', 2)": {"null": 3e1}}})json"};
}

std::vector<std::string> PriceSeeds() {
  return {"v100=0.74,p100=0.43", "gcp",
          "time_s,type,price\n0,v100,1.5\n3600,v100,0.5\n"};
}

std::vector<std::string> PrincipalSeeds() {
  return {R"([alice]
role = "user"
unix_user = "alice"
public_key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
[node-1]
role = "node"
public_key = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
)"};
}

std::vector<std::string> ReplySeeds() {
  return {R"([{"id": 1, "name": "a", "state": "R", "accelerators": [{"server":)"
          R"( "here", "type": "v100", "uuid": "here-0"}], "steps_done": 5,)"
          R"( "scalars": {"loss": 0.5, "bad": NaN}, "share_got": -1e300,)"
          R"( "last_generation": [1, 2], "reason": "waits"}])",
          R"([{"server": "here", "state": "idle", "accelerators": [{"type":)"
          R"( "v100", "jobs": [1, 2], "kept_jobs": [3]}]}])",
          R"({"term": 1, "seq": 2, "policy": "fifo", "round_ends_in_s": 1.5,)"
          R"( "jobs": {"R": 1, "PD": -2}})"};
}

}  // namespace gavel::fuzz
