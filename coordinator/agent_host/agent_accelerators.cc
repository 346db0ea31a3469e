#include "coordinator/agent_host/agent_accelerators.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";
constexpr unsigned kTextBytesMax = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
// Values of NVML's enumerations.
constexpr int kInvalidArgument = 2, kNotFound = 6, kGpuIsLost = 15;
constexpr int kExclusiveProcess = 3;
constexpr int kUncorrected = 1, kVolatile = 0;
constexpr int kGpuSensor = 0;
constexpr unsigned long long kXidEvent = 8;
constexpr unsigned kMigEnabled = 1;
constexpr int kNvLink = 2;     // among what GPUs can do with each other
constexpr int kSameNode = 40;  // of the topology: under one NUMA node

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

// Where the daemon of MPS takes its clients' calls.
bool HasMps() {
  const char* directory = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipe =
      StrCat(directory == nullptr ? "/tmp/nvidia-mps" : directory, "/control");
  return access(pipe.c_str(), F_OK) == 0;
}

constexpr std::string_view kCuda = "cuda:";

std::optional<std::string> VisibleDevices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return std::nullopt;
  return value;
}

int CoresHere() {
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Adds details of the GPU. Declared values are kept.
void FillDetails(const Gpu& gpu, AcceleratorInfo* info) {
  info->exclusive |= gpu.exclusive;
  if (info->group.empty()) info->group = gpu.group;
  if (info->memory_bytes == 0) info->memory_bytes = gpu.memory_bytes;
  if (info->context_bytes == 0 && info->memory_bytes > kContextBytesDefault) {
    info->context_bytes = kContextBytesDefault;
  }
}

// Then a process sees one device only, and never a GPU beside a part.
bool HasParts(const std::vector<Gpu>& gpus) {
  return std::ranges::any_of(
      gpus, [](const Gpu& gpu) { return !gpu.part_of.empty(); });
}

// By index, or by the beginning of the uuid; null when it is neither. A GPU
// with parts is the first of them.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry) {
  int index = 0;
  if (absl::SimpleAtoi(entry, &index)) {
    int before = -1;
    const std::string* last = nullptr;
    for (const Gpu& gpu : gpus) {
      const bool same =
          last != nullptr && !gpu.part_of.empty() && *last == gpu.part_of;
      if (!same && ++before == index) return &gpu;
      last = &gpu.part_of;
    }
    return nullptr;
  }
  const auto it = std::ranges::find_if(gpus, [&](const Gpu& gpu) {
    return !entry.empty() &&
           (gpu.uuid.starts_with(entry) || gpu.part_of.starts_with(entry));
  });
  return it == gpus.end() ? nullptr : &*it;
}

// As somebody wrote it, and not as a CPU slot has it.
bool IsUuidOfGpu(std::string_view uuid) {
  constexpr size_t kLeast = 9;
  return uuid.size() >= kLeast &&
         (uuid.starts_with("GPU-") || uuid.starts_with("MIG-"));
}

absl::Status NoSuchGpu(const AcceleratorInfo& info, std::string_view what,
                       const std::vector<Gpu>& gpus) {
  std::string uuids;
  for (const Gpu& gpu : gpus) {
    StrAppend(&uuids, uuids.empty() ? ": " : ", ", gpu.uuid);
  }
  return absl::NotFoundError(
      StrCat("accelerator ", info.type, " is declared as ", what,
             ", but this machine shows ", gpus.size(), " GPUs", uuids,
             "; correct its device or uuid (or CUDA_VISIBLE_DEVICES)"));
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::string lower;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    lower +=
        std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : ' ';
  }
  std::istringstream stream(lower);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool IsBrand(std::string_view word) {
  return word == "nvidia" || word == "tesla" || word == "geforce" ||
         word == "quadro" || word == "graphics" || word == "device";
}

bool HasDigit(std::string_view word) {
  return std::ranges::any_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// The usual form factor, the kind of memory, and words of marketing.
bool SaysNothing(std::string_view word) {
  return word.starts_with("sxm") || word.starts_with("hbm") ||
         word == "generation" || word == "edition" || word == "gpu" ||
         word == "with" || word == "design";
}

}  // namespace

// The few functions of NVML that are needed, as its documentation has them.
struct Nvml::Library {
  using Device = struct NvmlDevice*;
  using Events = struct NvmlEvents*;
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  struct Utilisation {
    unsigned gpu = 0, memory = 0;
  };
  struct Event {
    Device device = nullptr;
    unsigned long long type = 0, data = 0;
    unsigned gpu_instance = 0, compute_instance = 0;
  };

  std::unique_ptr<void, CloseLibrary> handle;
  bool started = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  const char* (*error)(int) = nullptr;
  // These may be missing.
  int (*memory)(Device, Memory*) = nullptr;
  int (*compute_mode)(Device, int*) = nullptr;
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  int (*part_count)(Device, unsigned*) = nullptr;
  int (*part)(Device, unsigned, Device*) = nullptr;
  int (*whole)(Device, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*can_do)(Device, Device, int, int*) = nullptr;
  int (*common_ancestor)(Device, Device, int*) = nullptr;
  int (*utilisation)(Device, Utilisation*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*memory_errors)(Device, int, int, unsigned long long*) = nullptr;
  int (*new_events)(Events*) = nullptr;
  int (*free_events)(Events) = nullptr;
  int (*watch)(Device, unsigned long long, Events) = nullptr;
  int (*next_event)(Events, Event*, unsigned) = nullptr;

  Events events = nullptr;
  std::map<Device, uint64_t> xids;  // of the GPUs that are watched

  ~Library() {
    if (events != nullptr && free_events != nullptr) free_events(events);
    if (started) shutdown();
  }

  template <class Function>
  bool Load(const char* symbol, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle.get(), symbol));
    return *function != nullptr;
  }

  absl::Status LoadAll() {
    if (!Load("nvmlInit_v2", &init) || !Load("nvmlShutdown", &shutdown) ||
        !Load("nvmlDeviceGetCount_v2", &count) ||
        !Load("nvmlDeviceGetHandleByIndex_v2", &device) ||
        !Load("nvmlDeviceGetName", &name) ||
        !Load("nvmlDeviceGetUUID", &uuid) || !Load("nvmlErrorString", &error)) {
      return absl::UnavailableError(
          StrCat(kLibrary, " is too old; update the NVIDIA driver"));
    }
    Load("nvmlDeviceGetMemoryInfo", &memory);
    Load("nvmlDeviceGetComputeMode", &compute_mode);
    Load("nvmlDeviceGetMigMode", &mig_mode);
    Load("nvmlDeviceGetMaxMigDeviceCount", &part_count);
    Load("nvmlDeviceGetMigDeviceHandleByIndex", &part);
    Load("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &whole);
    Load("nvmlDeviceGetHandleByUUID", &by_uuid);
    Load("nvmlDeviceGetP2PStatus", &can_do);
    Load("nvmlDeviceGetTopologyCommonAncestor", &common_ancestor);
    Load("nvmlDeviceGetUtilizationRates", &utilisation);
    Load("nvmlDeviceGetTemperature", &temperature);
    Load("nvmlDeviceGetTotalEccErrors", &memory_errors);
    Load("nvmlEventSetCreate", &new_events);
    Load("nvmlEventSetFree", &free_events);
    Load("nvmlDeviceRegisterEvents", &watch);
    Load("nvmlEventSetWait_v2", &next_event);
    return absl::OkStatus();
  }

  absl::Status Check(int result, std::string_view what) const {
    if (result == 0) return absl::OkStatus();
    return absl::UnavailableError(StrCat("NVML, ", what, ": ", error(result)));
  }

  bool HasParts(Device gpu) const {
    unsigned current = 0;
    unsigned pending = 0;
    return mig_mode != nullptr && part_count != nullptr && part != nullptr &&
           mig_mode(gpu, &current, &pending) == 0 && current == kMigEnabled;
  }

  absl::StatusOr<Gpu> Read(Device gpu, const std::string& what) const {
    std::array<char, kTextBytesMax> product{};
    std::array<char, kTextBytesMax> id{};
    GAVEL_RETURN_IF_ERROR(
        Check(name(gpu, product.data(), kTextBytesMax), what));
    GAVEL_RETURN_IF_ERROR(Check(uuid(gpu, id.data(), kTextBytesMax), what));
    // GPUs that share the host's memory don't tell: no budget then.
    Memory bytes;
    if (memory != nullptr && memory(gpu, &bytes) != 0) bytes = {};
    return Gpu{product.data(), id.data(), bytes.total};
  }

  bool IsExclusive(Device gpu) const {
    int mode = 0;
    return compute_mode != nullptr && compute_mode(gpu, &mode) == 0 &&
           mode == kExclusiveProcess && !HasMps();
  }

  // Places without a part are passed over.
  absl::Status AddParts(Device gpu, const Gpu& of,
                        std::vector<Gpu>* gpus) const {
    unsigned places = 0;
    const std::string what = StrCat("parts of ", of.uuid);
    GAVEL_RETURN_IF_ERROR(Check(part_count(gpu, &places), what));
    for (unsigned place = 0; place < places; ++place) {
      Device one = nullptr;
      if (part(gpu, place, &one) != 0) continue;
      GAVEL_ASSIGN_OR_RETURN(Gpu found, Read(one, what));
      found.exclusive = of.exclusive;
      found.part_of = of.uuid;
      gpus->push_back(std::move(found));
    }
    return absl::OkStatus();
  }

  bool AreLinked(Device one, Device other) const {
    int status = 0;
    return can_do != nullptr && can_do(one, other, kNvLink, &status) == 0 &&
           status == 0;
  }

  bool AreNear(Device one, Device other) const {
    int level = 0;
    return common_ancestor != nullptr &&
           common_ancestor(one, other, &level) == 0 && level <= kSameNode;
  }

  std::string FailureOf(int result) const {
    if (result == kGpuIsLost) {
      return "its driver has lost it; reset it, or restart the machine";
    }
    if (result != kNotFound && result != kInvalidArgument) return "";
    return "it is not there any more; restore the MIG layout, or restart the "
           "agent so that it declares what is there";
  }

  // A part of a GPU has no sensors of its own: `gpu` is then the whole GPU.
  void ReadSensors(Device gpu, AcceleratorHealth* health) {
    Utilisation rates;
    unsigned degrees = 0;
    unsigned long long errors = 0;
    if (utilisation != nullptr && utilisation(gpu, &rates) == 0) {
      health->utilisation_percent = static_cast<int>(rates.gpu);
    }
    if (temperature != nullptr && temperature(gpu, kGpuSensor, &degrees) == 0) {
      health->temperature_c = static_cast<int>(degrees);
    }
    if (memory_errors != nullptr &&
        memory_errors(gpu, kUncorrected, kVolatile, &errors) == 0) {
      health->uncorrectable_errors = errors;
    }
    health->last_xid = Watch(gpu);
  }

  uint64_t Watch(Device gpu) {
    const auto [known, is_new] = xids.emplace(gpu, 0);
    if (is_new && watch != nullptr && events != nullptr) {
      watch(gpu, kXidEvent, events);
    }
    return known->second;
  }

  void TakeEvents() {
    if (new_events == nullptr || next_event == nullptr) return;
    if (events == nullptr && new_events(&events) != 0) events = nullptr;
    constexpr int kEventsMax = 1000;  // at a time; the rest is for the next
    Event event;
    for (int i = 0; i < kEventsMax && events != nullptr; ++i) {
      if (next_event(events, &event, /*timeout_ms=*/0) != 0) return;
      if (event.type == kXidEvent) xids[event.device] = event.data;
    }
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

absl::StatusOr<Nvml> Nvml::Open() {
  auto library = std::make_unique<Library>();
  library->handle.reset(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL));
  if (library->handle == nullptr) {
    return absl::NotFoundError(
        StrCat("no NVIDIA driver: ", kLibrary, " is not there"));
  }
  GAVEL_RETURN_IF_ERROR(library->LoadAll());
  GAVEL_RETURN_IF_ERROR(library->Check(library->init(), "start"));
  library->started = true;
  return Nvml(std::move(library));
}

absl::StatusOr<std::vector<Gpu>> Nvml::ListGpus() const {
  unsigned count = 0;
  GAVEL_RETURN_IF_ERROR(
      library_->Check(library_->count(&count), "count of GPUs"));
  std::vector<Gpu> gpus;
  std::vector<Library::Device> devices;  // null: a part
  for (unsigned index = 0; index < count; ++index) {
    const std::string what = StrCat("GPU ", index);
    Library::Device device = nullptr;
    GAVEL_RETURN_IF_ERROR(
        library_->Check(library_->device(index, &device), what));
    GAVEL_ASSIGN_OR_RETURN(Gpu gpu, library_->Read(device, what));
    gpu.exclusive = library_->IsExclusive(device);
    if (library_->HasParts(device)) {
      GAVEL_RETURN_IF_ERROR(library_->AddParts(device, gpu, &gpus));
    } else {
      gpus.push_back(std::move(gpu));
      devices.resize(gpus.size());
      devices.back() = device;
    }
  }
  devices.resize(gpus.size());
  const auto both = [&](size_t a, size_t b) {
    return devices[a] != nullptr && devices[b] != nullptr;
  };
  NameGroups(
      [&](size_t a, size_t b) {
        return both(a, b) && library_->AreLinked(devices[a], devices[b]);
      },
      [&](size_t a, size_t b) {
        return both(a, b) && library_->AreNear(devices[a], devices[b]);
      },
      &gpus);
  return gpus;
}

std::vector<AcceleratorHealth> Nvml::ReadHealth(
    const std::vector<std::string>& uuids) {
  std::vector<AcceleratorHealth> all;
  library_->TakeEvents();
  for (const std::string& uuid : uuids) {
    AcceleratorHealth& health = all.emplace_back();
    health.uuid = uuid;
    Library::Device device = nullptr;
    if (library_->by_uuid == nullptr) continue;
    const int result = library_->by_uuid(uuid.c_str(), &device);
    health.failure = library_->FailureOf(result);
    if (result != 0) continue;
    Library::Device whole = nullptr;
    const bool is_part = uuid.starts_with("MIG-") &&
                         library_->whole != nullptr &&
                         library_->whole(device, &whole) == 0;
    library_->ReadSensors(is_part ? whole : device, &health);
  }
  return all;
}

absl::StatusOr<std::vector<Gpu>> ListGpus() {
  GAVEL_ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  return nvml.ListGpus();
}

void NameGroups(const Joined& linked, const Joined& near,
                std::vector<Gpu>* gpus) {
  for (const Joined* joined : {&linked, &near}) {
    std::vector<std::vector<size_t>> groups;
    for (size_t gpu = 0; gpu < gpus->size(); ++gpu) {
      const auto group = std::ranges::find_if(groups, [&](const auto& members) {
        return std::ranges::all_of(
            members, [&](size_t other) { return (*joined)(other, gpu); });
      });
      if (group == groups.end()) {
        groups.push_back({gpu});
      } else {
        group->push_back(gpu);
      }
    }
    std::erase_if(groups,
                  [](const auto& members) { return members.size() < 2; });
    if (groups.empty()) continue;
    if (joined == &near && groups[0].size() == gpus->size()) return;
    for (size_t number = 0; number < groups.size(); ++number) {
      for (const size_t gpu : groups[number]) {
        (*gpus)[gpu].group =
            StrCat(joined == &linked ? "nvlink-" : "numa-", number);
      }
    }
    return;
  }
}

std::string GpuTypeName(std::string_view product) {
  std::vector<std::string> words = WordsOf(product);
  words.erase(words.begin(), std::ranges::find_if_not(words, IsBrand));
  if (words.empty()) return "gpu";
  // A series, not yet a model: "rtx pro 6000".
  const auto model_end = std::ranges::find_if(words, HasDigit);
  const auto end = model_end == words.end() ? model_end : model_end + 1;
  std::string type;
  for (auto word = words.begin(); word != end; ++word) {
    StrAppend(&type, type.empty() ? "" : "_", *word);
  }
  std::string form;
  std::string memory;
  bool is_part = false;  // of a GPU, by MIG
  for (auto word = end; word != words.end(); ++word) {
    is_part |= *word == "mig";
    if (is_part) {
      StrAppend(&memory, "-", *word);
    } else if (*word == "pcie" || *word == "nvl") {
      StrAppend(&form, "-", *word);
    } else if (HasDigit(*word) && word->ends_with("gb")) {
      StrAppend(&memory, "-", *word);
    } else if (!SaysNothing(*word)) {
      StrAppend(&type, "_", *word);
    }
  }
  return type + form + memory;
}

std::vector<Gpu> VisibleGpus(
    const std::vector<Gpu>& gpus,
    const std::optional<std::string>& visible_devices) {
  if (!visible_devices) return gpus;
  std::vector<Gpu> visible;
  std::istringstream entries(*visible_devices);
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    const Gpu* gpu = FindGpu(gpus, entry);
    if (gpu == nullptr) break;
    visible.push_back(*gpu);
  }
  return visible;
}

std::vector<AcceleratorInfo> AcceleratorsOf(const std::vector<Gpu>& gpus) {
  std::vector<AcceleratorInfo> accelerators;
  for (const Gpu& gpu : gpus) {
    AcceleratorInfo info;
    info.type = GpuTypeName(gpu.name);
    info.uuid = gpu.uuid;
    info.device = StrCat(kCuda, accelerators.size());
    FillDetails(gpu, &info);
    info.alone_visible = HasParts(gpus);
    accelerators.push_back(std::move(info));
  }
  return accelerators;
}

absl::Status FillFromGpus(const std::vector<Gpu>& gpus,
                          std::vector<AcceleratorInfo>* accelerators) {
  for (AcceleratorInfo& info : *accelerators) {
    if (!info.device.starts_with(kCuda)) continue;
    const bool by_uuid = IsUuidOfGpu(info.uuid);
    size_t index = 0;
    if (by_uuid) {
      const Gpu* found = FindGpu(gpus, info.uuid);
      if (found == nullptr) return NoSuchGpu(info, info.uuid, gpus);
      index = static_cast<size_t>(found - gpus.data());
      info.device = StrCat(kCuda, index);
    } else if (!absl::SimpleAtoi(info.device.substr(kCuda.size()), &index) ||
               index >= gpus.size()) {
      return NoSuchGpu(info, info.device, gpus);
    }
    info.uuid = gpus[index].uuid;
    FillDetails(gpus[index], &info);
    info.alone_visible |= HasParts(gpus);
  }
  return absl::OkStatus();
}

void ShareCores(int cores, std::vector<AcceleratorInfo>* accelerators) {
  int sharing = 0;
  const auto shares = [](const AcceleratorInfo& info) {
    return info.device != "cpu" && info.threads <= 1;
  };
  for (const AcceleratorInfo& info : *accelerators) {
    if (shares(info)) {
      ++sharing;
    } else {
      cores -= info.threads;
    }
  }
  if (sharing == 0) return;
  const int threads = std::max(1, cores / sharing);
  for (AcceleratorInfo& info : *accelerators) {
    if (shares(info)) info.threads = threads;
  }
}

absl::StatusOr<std::vector<AcceleratorInfo>> DetectAccelerators() {
  const absl::StatusOr<std::vector<Gpu>> gpus = ListGpus();
  std::vector<AcceleratorInfo> found;
  if (gpus.ok()) found = AcceleratorsOf(VisibleGpus(*gpus, VisibleDevices()));
  if (!found.empty()) return ShareCores(CoresHere(), &found), found;
  return absl::NotFoundError(StrCat(
      "no GPU found here (",
      gpus.ok() ? std::string("the driver shows none")
                : std::string(gpus.status().message()),
      "), and CPU slots are not guessed; declare this server's accelerators "
      "in a cluster file and give --cluster FILE --server NAME"));
}

absl::Status FillFromGpus(std::vector<AcceleratorInfo>* accelerators) {
  ShareCores(CoresHere(), accelerators);
  const bool any = std::ranges::any_of(*accelerators, [](const auto& info) {
    return info.device.starts_with(kCuda);
  });
  if (!any) return absl::OkStatus();
  const absl::StatusOr<std::vector<Gpu>> gpus = ListGpus();
  if (!gpus.ok()) {
    // NOT_FOUND: there is no driver. UNAVAILABLE: it fails, perhaps for a while
    // after the boot.
    return absl::Status(
        gpus.status().code(),
        StrCat("GPUs are declared as accelerators, but can't be found: ",
               gpus.status().message(),
               "; mend the driver, or declare what this server has"));
  }
  return FillFromGpus(VisibleGpus(*gpus, VisibleDevices()), accelerators);
}

struct HealthWatch::Shared {
  std::vector<std::string> uuids;
  std::function<void()> notify;
  std::chrono::duration<double> interval;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool stopped = false;
  bool ended = false;  // the thread is done with the driver
  std::vector<AcceleratorHealth> read;
};

HealthWatch::HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
                         std::function<void()> notify, double interval_s)
    : shared_(std::make_shared<Shared>()) {
  shared_->notify = std::move(notify);
  shared_->interval = std::chrono::duration<double>(interval_s);
  for (const AcceleratorInfo& info : accelerators) {
    if (info.device.starts_with("cuda:")) shared_->uuids.push_back(info.uuid);
  }
  if (shared_->uuids.empty()) return;
  thread_ = std::thread([shared = shared_] {
    Watch(*shared);
    const std::lock_guard lock(shared->mutex);
    shared->ended = true;
    shared->changed.notify_all();
  });
}

// A thread that the driver keeps is left to the end of the process.
HealthWatch::~HealthWatch() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  const bool ended =
      shared_->changed.wait_for(lock, std::chrono::duration<double>(kEnd_s),
                                [&] { return shared_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

std::vector<AcceleratorHealth> HealthWatch::Take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->read, {});
}

// A driver that can't be asked now may be asked later.
void HealthWatch::Watch(Shared& shared) {
  std::optional<Nvml> nvml;
  for (;;) {
    if (!nvml) {
      absl::StatusOr<Nvml> opened = Nvml::Open();
      if (opened.ok()) nvml.emplace(*std::move(opened));
    }
    std::vector<AcceleratorHealth> health;
    if (nvml) health = nvml->ReadHealth(shared.uuids);
    std::unique_lock lock(shared.mutex);
    if (nvml && !shared.stopped) {
      shared.read = std::move(health);
      shared.notify();
    }
    if (shared.changed.wait_for(lock, shared.interval,
                                [&] { return shared.stopped; })) {
      return;
    }
  }
}

}  // namespace gavel
