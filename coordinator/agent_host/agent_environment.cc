#include "coordinator/agent_host/agent_environment.h"

#include <unistd.h>

#include <string_view>

#include "core/text.h"

namespace gavel {
namespace {

// What a program needs to find its files and libraries; nothing else of the
// agent's is a job's business.
constexpr const char* kPassedOn[] = {"LANG", "LC_ALL", "TZ", "SSL_CERT_FILE"};
// Of these only what is the job's user's own.
constexpr const char* kPassedOnToSame[] = {"PATH",    "HOME",  "USER",
                                           "LOGNAME", "SHELL", "TMPDIR"};

using Variables = std::map<std::string, std::string>;

void PassOn(const Variables& own, const std::string& name, Variables* to) {
  if (const auto it = own.find(name); it != own.end()) (*to)[name] = it->second;
}

void AddKept(const WorkerPlace& place, const Variables& own, Variables* to) {
  for (const std::string_view kept : place.keep_environment) {
    const bool is_prefix = kept.ends_with('*');
    const std::string_view begin = kept.substr(0, kept.size() - is_prefix);
    for (const auto& [name, value] : own) {
      if (is_prefix ? name.starts_with(begin) : name == begin) {
        (*to)[name] = value;
      }
    }
  }
}

void AddUser(const WorkerPlace& place, const Variables& own, Variables* to) {
  if (!place.account.has_value()) {
    for (const char* name : kPassedOnToSame) PassOn(own, name, to);
    return;
  }
  (*to)["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  (*to)["HOME"] = place.account->home;
  (*to)["USER"] = place.account->name;
  (*to)["LOGNAME"] = place.account->name;
  (*to)["SHELL"] = place.account->shell;
}

void AddGpus(const WorkerPlace& place, const Variables& own, Variables* to) {
  if (!place.has_gpus) {
    (*to)["CUDA_VISIBLE_DEVICES"] = "";
    return;
  }
  // "cuda:N" is counted as the agent counts: by bus, of those it sees.
  (*to)["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  PassOn(own, "CUDA_VISIBLE_DEVICES", to);
  // Where NVIDIA's MPS daemon listens, if not at its usual place: with it the
  // kernels of a packed pair run beside each other, else they take turns.
  PassOn(own, "CUDA_MPS_PIPE_DIRECTORY", to);
}

// The kinds' own variables that choose devices, by uuid where there is one.
void HideOthers(const AcceleratorInfo& info, Variables* to) {
  const size_t colon = info.device.find(':');
  if (!info.alone_visible || colon == std::string::npos) return;
  const std::string kind = info.device.substr(0, colon);
  const std::string index = info.device.substr(colon + 1);
  if (kind == "cuda") (*to)["CUDA_VISIBLE_DEVICES"] = info.uuid;
  if (kind == "xpu") (*to)["ZE_AFFINITY_MASK"] = index;
  if (kind == "hpu") (*to)["HABANA_VISIBLE_MODULES"] = index;
}

void AddProtocol(const LaunchWorker& launch, const WorkerPlace& place,
                 Variables* to) {
  const std::string rank = StrCat(launch.worker.rank);
  const std::string world_size = StrCat(launch.world_size);
  (*to)["GAVEL_ADDRESS"] = place.address;
  // The first makes a training program a worker; the second is the default of
  // clients, and what runtimes of earlier versions go by.
  (*to)["GAVEL_WORKER_COORDINATOR"] = place.coordinator;
  (*to)["GAVEL_COORDINATOR"] = place.coordinator;
  if (!place.key_file.empty()) {
    (*to)["GAVEL_KEY_FILE"] = place.key_file;
    (*to)["GAVEL_COORDINATOR_KEY"] = place.coordinator_key;
  }
  if (!place.cluster.empty()) (*to)["GAVEL_CLUSTER"] = place.cluster;
  (*to)["GAVEL_JOB"] = StrCat(launch.worker.job.value());
  (*to)["GAVEL_JOB_NAME"] = launch.job_name;
  (*to)["GAVEL_RANK"] = rank;
  (*to)["GAVEL_INCARNATION"] = StrCat(launch.worker.incarnation);
  if (!place.end_file.empty()) (*to)["GAVEL_END_FILE"] = place.end_file;
  (*to)["GAVEL_SERVER"] = launch.server;
  (*to)["GAVEL_RUN_DIRECTORY"] = place.run_directory;
  (*to)["GAVEL_CHECKPOINT_DIRECTORY"] = launch.checkpoint_directory;
  (*to)["GAVEL_WORLD_SIZE"] = world_size;
  (*to)["RANK"] = rank;
  (*to)["WORLD_SIZE"] = world_size;
}

}  // namespace

std::vector<std::string> WorkerEnvironment(const LaunchWorker& launch,
                                           const WorkerPlace& place,
                                           const Variables& own) {
  Variables variables;
  for (const char* name : kPassedOn) PassOn(own, name, &variables);
  AddUser(place, own, &variables);
  AddKept(place, own, &variables);
  AddGpus(place, own, &variables);
  variables["OMP_NUM_THREADS"] = StrCat(launch.accelerator.threads);
  // Threads of libgomp that spin take the cores of the jobs beside them.
  variables["OMP_WAIT_POLICY"] = "PASSIVE";
  // Its output is a terminal (output_channel.h), and then a file.
  variables["TERM"] = "dumb";
  variables["NO_COLOR"] = "1";
  for (const auto& [name, value] : launch.environment) variables[name] = value;
  HideOthers(launch.accelerator, &variables);
  // The agent's mark of what this worker starts, which it adds itself.
  variables.erase("GAVEL_PROCESS");
  AddProtocol(launch, place, &variables);
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) {
    entries.push_back(StrCat(name, "=", value));
  }
  return entries;
}

Variables OwnEnvironment() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace gavel
