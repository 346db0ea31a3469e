#include "coordinator/agent_host/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";
constexpr unsigned kTextBytesMax = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
// Of NVML's enumerations.
constexpr int kInvalidArgument = 2, kNotFound = 6, kGpuIsLost = 15;
constexpr int kExclusiveProcess = 3;
constexpr int kUncorrected = 1, kVolatile = 0;
constexpr int kGpuSensor = 0;
constexpr unsigned long long kXidEvent = 8;
constexpr unsigned kMigEnabled = 1;

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

  std::string FailureOf(int result) const {
    if (result == kGpuIsLost) {
      return "its driver has lost it; reset it, or restart the machine";
    }
    if (result != kNotFound && result != kInvalidArgument) return "";
    return "it is not there any more; restore the MIG layout, or restart the "
           "agent so that it declares what is there";
  }

  // Of a part: the GPU's, which alone has sensors.
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
    }
  }
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

}  // namespace gavel
