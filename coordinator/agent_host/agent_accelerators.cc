#include "coordinator/agent_host/agent_accelerators.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kCuda = "cuda:";

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

absl::StatusOr<std::vector<Gpu>> ListGpus() {
  GAVEL_ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  return nvml.ListGpus();
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

}  // namespace gavel
