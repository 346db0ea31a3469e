// A fake of NVIDIA's management library with two GPUs. MIG may divide the
// second. Each call reads the state of the GPUs from environment variables:
// FAKE_LINKED, FAKE_EXCLUSIVE, FAKE_MIG, FAKE_ERRORS=N, FAKE_XID=N (once),
// FAKE_GONE=UUID, and FAKE_HANG=N, with which a read of the temperature writes
// a byte to file descriptor N and never returns.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// Handles 1 and 2 are the GPUs; 12 and 14 are the MIG parts of the second.
int Of(void* device) {
  return static_cast<int>(reinterpret_cast<intptr_t>(device));
}
void* Handle(int device) { return reinterpret_cast<void*>(intptr_t{device}); }
bool Has(const char* variable) { return std::getenv(variable) != nullptr; }

const char* UuidOf(int device) {
  if (device == 1) return "GPU-aaaaaaaa";
  if (device == 2) return "GPU-bbbbbbbb";
  return device == 12 ? "MIG-cccccccc" : "MIG-dddddddd";
}

constexpr int kNotFound = 6;
constexpr int kTimeout = 10;

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "fake error"; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = Handle(static_cast<int>(index) + 1), 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  const bool is_part = Of(device) > 2;
  std::snprintf(name, size, "NVIDIA A100-SXM4-40GB%s",
                is_part ? " MIG 1g.5gb" : "");
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  return std::snprintf(uuid, size, "%s", UuidOf(Of(device))), 0;
}
struct nvmlMemory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, nvmlMemory* memory) {
  memory->total = (Of(device) > 2 ? 5ULL : 40ULL) << 30;
  return 0;
}
int nvmlDeviceGetComputeMode(void* device, int* mode) {
  return *mode = Of(device) == 1 && Has("FAKE_EXCLUSIVE") ? 3 : 0, 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  return *current = *pending = Of(device) == 2 && Has("FAKE_MIG") ? 1 : 0, 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  return *count = 7, 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** part) {
  if (index != 2 && index != 4) return kNotFound;
  return *part = Handle(10 + static_cast<int>(index)), 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void*, void** device) {
  return *device = Handle(2), 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const char* gone = std::getenv("FAKE_GONE");
  if (gone != nullptr && std::string(gone) == uuid) return kNotFound;
  for (const int one : {1, 2, 12, 14}) {
    if (std::string(UuidOf(one)) == uuid) return *device = Handle(one), 0;
  }
  return kNotFound;
}
int nvmlDeviceGetP2PStatus(void* one, void* other, int what, int* status) {
  const bool gpus = Of(one) <= 2 && Of(other) <= 2;
  return *status = gpus && what == 2 && Has("FAKE_LINKED") ? 0 : 4, 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  return *level = 50, 0;
}
struct nvmlUtilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, nvmlUtilization* rates) {
  if (Of(device) != 1) return 3;  // not supported with MIG
  return rates->gpu = 87, 0;
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* degrees) {
  if (const char* hang = std::getenv("FAKE_HANG")) {
    if (write(std::atoi(hang), "!", 1) != 1) return kTimeout;
    for (;;) pause();
  }
  return *degrees = 50 + static_cast<unsigned>(Of(device)), 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter,
                                unsigned long long* count) {
  const char* errors = std::getenv("FAKE_ERRORS");
  if (type != 1 || counter != 0) return 2;
  *count = errors != nullptr && Of(device) == 1
               ? std::strtoull(errors, nullptr, 10)
               : 0;
  return 0;
}
int nvmlEventSetCreate(void** events) { return *events = Handle(99), 0; }
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return 0; }
struct nvmlEvent {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
int nvmlEventSetWait_v2(void*, nvmlEvent* event, unsigned) {
  const char* xid = std::getenv("FAKE_XID");
  if (xid == nullptr) return kTimeout;
  *event = {Handle(1), 8, std::strtoull(xid, nullptr, 10), 0, 0};
  return unsetenv("FAKE_XID"), 0;
}

}  // extern "C"
