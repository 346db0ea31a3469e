#include "iterator/step_profile_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

MemoryUse ReadDevice(c10::Device device) {
  MemoryUse use;
  CatchAsStatus("reading memory statistics", [&] {
    const auto stats =
        c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    use = {stats.allocated_bytes[0].current, stats.allocated_bytes[0].peak,
           stats.reserved_bytes[0].current, stats.reserved_bytes[0].peak};
    return absl::OkStatus();
  }).IgnoreError();
  return use;
}

MemoryUse ReadProcess() {
  MemoryUse use;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long long size = 0;
  long long resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) == 2) {
      use.now_bytes = resident * sysconf(_SC_PAGESIZE);
    }
    std::fclose(file);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    use.high_bytes = int64_t{usage.ru_maxrss} * 1024;
  }
  use.high_bytes = std::max(use.high_bytes, use.now_bytes);
  return use;
}

}  // namespace

MemoryUse ReadMemory(c10::Device device) noexcept {
  return device.is_cpu() ? ReadProcess() : ReadDevice(device);
}

}  // namespace gavel::internal
