// An NVIDIA management library with one GPU, which is listed but which no
// program can use. Built as libnvidia-ml.so.1.
#include <cstdio>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned /*index*/, void** device) {
  return *device = nullptr, 0;
}
int nvmlDeviceGetName(void* /*device*/, char* name, unsigned size) {
  return std::snprintf(name, size, "NVIDIA Stub 1"), 0;
}
int nvmlDeviceGetUUID(void* /*device*/, char* uuid, unsigned size) {
  return std::snprintf(uuid, size, "GPU-stub"), 0;
}
struct nvmlMemory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* /*device*/, nvmlMemory* memory) {
  return *memory = {16ULL << 30, 15ULL << 30, 1ULL << 30}, 0;
}
const char* nvmlErrorString(int /*error*/) { return "none"; }

}  // extern "C"
