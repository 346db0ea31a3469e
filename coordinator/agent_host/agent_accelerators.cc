#include "coordinator/agent_host/agent_accelerators.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";
constexpr std::string_view kCuda = "cuda:";

// The few functions of NVML that are needed, as its documentation has them.
struct Nvml {
  using Device = struct NvmlDevice*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  const char* (*error)(int) = nullptr;
  struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
  };
  // These may be missing.
  int (*memory)(Device, Memory*) = nullptr;
  int (*compute_mode)(Device, int*) = nullptr;
};

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <class Function>
bool Load(const Library& library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library.get(), symbol));
  return *function != nullptr;
}

absl::StatusOr<Nvml> LoadNvml(const Library& library) {
  if (library == nullptr) {
    return absl::UnavailableError(
        StrCat("no NVIDIA driver: ", kLibrary, " is not there"));
  }
  Nvml nvml;
  if (!Load(library, "nvmlInit_v2", &nvml.init) ||
      !Load(library, "nvmlShutdown", &nvml.shutdown) ||
      !Load(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
      !Load(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.device) ||
      !Load(library, "nvmlDeviceGetName", &nvml.name) ||
      !Load(library, "nvmlDeviceGetUUID", &nvml.uuid) ||
      !Load(library, "nvmlErrorString", &nvml.error)) {
    return absl::UnavailableError(
        StrCat(kLibrary, " is too old; update the NVIDIA driver"));
  }
  Load(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
  Load(library, "nvmlDeviceGetComputeMode", &nvml.compute_mode);
  return nvml;
}

absl::Status Check(const Nvml& nvml, int result, std::string_view what) {
  if (result == 0) return absl::OkStatus();
  return absl::UnavailableError(
      StrCat("NVML, ", what, ": ", nvml.error(result)));
}

// Where the daemon of MPS takes its clients' calls.
bool HasMps() {
  const char* directory = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipe =
      StrCat(directory == nullptr ? "/tmp/nvidia-mps" : directory, "/control");
  return access(pipe.c_str(), F_OK) == 0;
}

bool IsExclusive(const Nvml& nvml, Nvml::Device device) {
  constexpr int kExclusiveProcess = 3;  // NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
  int mode = 0;
  return nvml.compute_mode != nullptr &&
         nvml.compute_mode(device, &mode) == 0 && mode == kExclusiveProcess &&
         !HasMps();
}

absl::StatusOr<Gpu> ReadGpu(const Nvml& nvml, unsigned index) {
  constexpr unsigned kTextBytesMax = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
  Nvml::Device device = nullptr;
  std::array<char, kTextBytesMax> name{};
  std::array<char, kTextBytesMax> uuid{};
  const std::string what = StrCat("GPU ", index);
  GAVEL_RETURN_IF_ERROR(Check(nvml, nvml.device(index, &device), what));
  GAVEL_RETURN_IF_ERROR(
      Check(nvml, nvml.name(device, name.data(), kTextBytesMax), what));
  GAVEL_RETURN_IF_ERROR(
      Check(nvml, nvml.uuid(device, uuid.data(), kTextBytesMax), what));
  // GPUs that share the host's memory don't tell: no budget then.
  Nvml::Memory memory;
  if (nvml.memory != nullptr && nvml.memory(device, &memory) != 0) memory = {};
  return Gpu{name.data(), uuid.data(), memory.total, IsExclusive(nvml, device)};
}

absl::StatusOr<std::vector<Gpu>> ReadGpus(const Nvml& nvml) {
  unsigned count = 0;
  GAVEL_RETURN_IF_ERROR(Check(nvml, nvml.count(&count), "count of GPUs"));
  std::vector<Gpu> gpus;
  for (unsigned index = 0; index < count; ++index) {
    GAVEL_ASSIGN_OR_RETURN(Gpu gpu, ReadGpu(nvml, index));
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::optional<std::string> VisibleDevices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return std::nullopt;
  return value;
}

int CoresHere() {
  return static_cast<int>(std::thread::hardware_concurrency());
}

// What is declared stays.
void FillDetails(const Gpu& gpu, AcceleratorInfo* info) {
  info->exclusive |= gpu.exclusive;
  if (info->memory_bytes == 0) info->memory_bytes = gpu.memory_bytes;
  if (info->context_bytes == 0 && info->memory_bytes > kContextBytesDefault) {
    info->context_bytes = kContextBytesDefault;
  }
}

// By index, or by the beginning of the uuid; null when it is neither.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry) {
  size_t index = 0;
  if (absl::SimpleAtoi(entry, &index)) {
    return index < gpus.size() ? &gpus[index] : nullptr;
  }
  const auto it = std::ranges::find_if(gpus, [&](const Gpu& gpu) {
    return !entry.empty() && gpu.uuid.starts_with(entry);
  });
  return it == gpus.end() ? nullptr : &*it;
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

absl::StatusOr<std::vector<Gpu>> ListGpus() {
  const Library library(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL));
  GAVEL_ASSIGN_OR_RETURN(const Nvml nvml, LoadNvml(library));
  GAVEL_RETURN_IF_ERROR(Check(nvml, nvml.init(), "start"));
  absl::StatusOr<std::vector<Gpu>> gpus = ReadGpus(nvml);
  nvml.shutdown();
  return gpus;
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
    accelerators.push_back(std::move(info));
  }
  return accelerators;
}

absl::Status FillFromGpus(const std::vector<Gpu>& gpus,
                          std::vector<AcceleratorInfo>* accelerators) {
  for (AcceleratorInfo& info : *accelerators) {
    if (!info.device.starts_with(kCuda)) continue;
    size_t index = 0;
    if (!absl::SimpleAtoi(info.device.substr(kCuda.size()), &index) ||
        index >= gpus.size()) {
      return absl::NotFoundError(
          StrCat("accelerator ", info.type, " is declared as ", info.device,
                 ", but this machine shows ", gpus.size(),
                 " GPUs; correct its device (or CUDA_VISIBLE_DEVICES)"));
    }
    info.uuid = gpus[index].uuid;
    FillDetails(gpus[index], &info);
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
    return Annotate(gpus.status(),
                    "GPUs are declared as accelerators, but can't be found");
  }
  return FillFromGpus(VisibleGpus(*gpus, VisibleDevices()), accelerators);
}

}  // namespace gavel
