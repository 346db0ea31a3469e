#include "coordinator/cli/live_workloads.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWorkloadFileBytesMax = size_t{1} << 20;
constexpr char kForever[] = "1000000000";

ProfileWorkload Example(std::string type, std::vector<std::string> argv) {
  ProfileWorkload workload;
  workload.type = std::move(type);
  workload.argv = std::move(argv);
  return workload;
}

bool IsProgram(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::vector<ProfileWorkload> ExampleWorkloads() {
  return {
      Example("ResNet-18",
              {"train_image", "--synthetic", "--epochs", kForever}),
      Example("ResNet-50", {"train_imagenet", "--synthetic", "--batch-size",
                            "4", "--epochs", kForever}),
      Example("Transformer",
              {"train_translation", "--synthetic", "--width", "128",
               "--feed-forward", "512", "--layers", "2", "--heads", "4",
               "--beam", "1", "--epochs", kForever}),
      Example("LM",
              {"train_language_model", "--synthetic", "--epochs", kForever}),
      Example("Recommendation",
              {"train_recommendation", "--synthetic", "--epochs", kForever}),
      Example("A3C", {"train_a3c", "--actors", "1"}),
      Example("CycleGAN", {"train_cyclegan", "--synthetic", "--width", "16",
                           "--blocks", "2", "--epochs", kForever}),
      Example("GPT", {"train_gpt", "--synthetic", "--width", "128", "--layers",
                      "2", "--heads", "4", "--epochs", kForever}),
  };
}

absl::StatusOr<std::vector<ProfileWorkload>> ChooseWorkloads(
    std::vector<ProfileWorkload> workloads,
    const std::vector<std::string>& types) {
  if (types.empty()) return workloads;
  std::vector<std::string> names;
  for (const ProfileWorkload& workload : workloads) {
    names.push_back(workload.type);
  }
  std::vector<ProfileWorkload> chosen;
  for (const std::string& type : types) {
    const auto found =
        std::ranges::find(workloads, type, &ProfileWorkload::type);
    if (found == workloads.end()) {
      return absl::NotFoundError(StrCat("there is no workload \"", type,
                                        "\"; choose of ",
                                        absl::StrJoin(names, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

absl::Status FindPrograms(std::vector<ProfileWorkload>* workloads) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (ProfileWorkload& workload : *workloads) {
    std::string& program = workload.argv.front();
    if (workload.working_directory.empty()) {
      workload.working_directory = fs::current_path(error).string();
    }
    std::vector<std::string> places;
    if (program.find('/') == std::string::npos) {
      places.push_back((here / program).string());
    }
    ProcessSpec spec;
    spec.argv = workload.argv;
    spec.working_directory = workload.working_directory;
    for (const auto& [name, value] : OwnEnvironment()) {
      spec.environment.push_back(StrCat(name, "=", value));
    }
    for (const std::string& candidate : ProgramCandidates(spec)) {
      places.push_back(
          (fs::path(workload.working_directory) / candidate).string());
    }
    const auto found = std::ranges::find_if(places, IsProgram);
    if (found == places.end()) {
      return absl::NotFoundError(
          StrCat(workload.type, ": the program ", program,
                 " is neither beside gavel (", here.string(),
                 ") nor in the PATH; build the examples, or name other "
                 "programs with --workloads FILE.toml"));
    }
    program = fs::path(*found).lexically_normal().string();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ProfileWorkload>> ReadWorkloads(
    const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(path, kWorkloadFileBytesMax));
  GAVEL_ASSIGN_OR_RETURN(auto workloads, ParseWorkloads(text, path));
  const fs::path folder = fs::absolute(path).parent_path();
  for (ProfileWorkload& workload : workloads) {
    workload.working_directory = (folder / workload.working_directory).string();
  }
  return workloads;
}

absl::StatusOr<std::vector<ProfileWorkload>> FindWorkloads(
    const std::string& path, const std::vector<std::string>& types) {
  std::vector<ProfileWorkload> workloads = ExampleWorkloads();
  if (!path.empty()) {
    GAVEL_ASSIGN_OR_RETURN(workloads, ReadWorkloads(path));
  }
  GAVEL_ASSIGN_OR_RETURN(workloads,
                         ChooseWorkloads(std::move(workloads), types));
  GAVEL_RETURN_IF_ERROR(FindPrograms(&workloads));
  return workloads;
}

absl::Status StartWorkload(const ProfileWorkload& workload, LiveLaunch launch,
                           LiveProcesses* processes) {
  LaunchWorker& worker = launch.worker;
  worker.argv = workload.argv;
  worker.environment.insert(worker.environment.begin(),
                            workload.environment.begin(),
                            workload.environment.end());
  worker.world_size = static_cast<int>(launch.places.size());
  WorkerPlace place;
  place.coordinator = launch.endpoint;
  place.run_directory = DefaultRunDirectory(launch.places);
  if (place.run_directory.empty()) place.run_directory = launch.run_directory;
  place.has_gpus = std::ranges::any_of(
      launch.places, [](const auto& info) { return info.device != "cpu"; });
  ProcessSpec spec;
  spec.argv = workload.argv;
  spec.working_directory = workload.working_directory;
  spec.output_path = launch.output_path;
  for (const AcceleratorInfo& accelerator : launch.places) {
    worker.accelerator = accelerator;
    spec.environment = WorkerEnvironment(worker, place, OwnEnvironment());
    GAVEL_ASSIGN_OR_RETURN(const pid_t pid, SpawnProcess(spec));
    processes->push_back(std::make_unique<ChildProcess>(pid));
    ++worker.worker.rank;
  }
  return absl::OkStatus();
}

// ---- the traces of workers

namespace {

constexpr size_t kTraceFileBytesMax = size_t{256} << 20;
constexpr double kMicrosecond_s = 1e-6;

double NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

absl::StatusOr<std::vector<TracedStep>> ParseWorkerTrace(
    std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_trace = json.is_object() && json.contains("traceEvents") &&
                        json["traceEvents"].is_array() &&
                        json.contains("otherData") &&
                        json["otherData"].contains("monotonic_origin_us");
  if (!is_trace) {
    return absl::InvalidArgumentError(StrCat(
        source,
        ": is no trace of this version's runtime; build the program with it"));
  }
  if (NumberOf(json["otherData"], "dropped_events") > 0) {
    return absl::InvalidArgumentError(
        StrCat(source,
               ": the first steps were dropped, there were too many; let the "
               "program train for a shorter time"));
  }
  const double origin_us = NumberOf(json["otherData"], "monotonic_origin_us");
  std::vector<TracedStep> steps;
  for (const Json& event : json["traceEvents"]) {
    if (!event.is_object() || event.value("ph", Json()) != "X" ||
        event.value("name", Json()) != "step") {
      continue;
    }
    const double begin_us = origin_us + NumberOf(event, "ts");
    steps.push_back({begin_us * kMicrosecond_s,
                     (begin_us + NumberOf(event, "dur")) * kMicrosecond_s});
  }
  std::ranges::sort(steps, {}, &TracedStep::begin_s);
  return steps;
}

absl::StatusOr<std::vector<TracedStep>> ReadWorkerTrace(
    const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::FailedPreconditionError(StrCat(
        path,
        ": the program has written no trace; is its loop a gavel::Iterator?"));
  }
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kTraceFileBytesMax));
  return ParseWorkerTrace(text, path);
}

}  // namespace gavel
