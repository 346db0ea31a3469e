// The interfaces through which LibTorch uses a kind of devices: the guard
// (current device, streams and events) and the hooks (start of the devices).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <mutex>

#include "tests/support/simulated_device/allocator.h"
#include "tests/support/simulated_device/settings.h"
#include "tests/support/simulated_device/streams.h"

namespace gavel::simulated {
namespace {

constexpr auto kType = c10::DeviceType::HPU;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    if (device != before) setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return Of(CurrentDevice()); }
  void setDevice(c10::Device device) const override {
    SetCurrentDevice(device.has_index() ? device.index() : CurrentDevice());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) ExchangeCurrentDeviceUnchecked(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(Index(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return DefaultStream(Index(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return NewStream(Index(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return NewStream(Index(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return SetCurrentStream(stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(TheSettings().devices);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return IsIdle(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Synchronize(stream);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    SynchronizeDevice(device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override {
    TheAllocator().recordStream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    static_cast<Event*>(*event)->Record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) static_cast<Event*>(event)->Block(stream);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<Event*>(event)->IsDone();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) static_cast<Event*>(event)->Synchronize();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

 private:
  static c10::Device Of(int index) {
    return c10::Device(kType, static_cast<c10::DeviceIndex>(index));
  }
  static int Index(c10::Device device) {
    return device.has_index() ? device.index() : CurrentDevice();
  }
};

C10_REGISTER_GUARD_IMPL(HPU, Guard)

// LibTorch finds the class by this name.
struct HPUHooks final : at::HPUHooksInterface {
  explicit HPUHooks(at::HPUHooksArgs) {}

  // As with CUDA, a seed creates no context; only the choice of a device does.
  void init() const override {}
  bool hasHPU() const override { return TheSettings().devices > 0; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return TheSettings().devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return HasContext(device);
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(TheSettings().devices);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    SetCurrentDevice(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(CurrentDevice());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    SetCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(
        ExchangeCurrentDeviceUnchecked(device));
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &ThePinnedAllocator();
  }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
  c10::Device getDeviceFromPtr(void* data) const override {
    return c10::Device(kType, static_cast<c10::DeviceIndex>(DeviceOf(data)));
  }
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    static auto& generators = *new std::array<at::Generator, kDevicesMax>();
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    at::Generator& generator =
        generators[static_cast<size_t>(device < 0 ? CurrentDevice() : device)];
    if (!generator.defined()) generator = at::detail::createCPUGenerator();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

struct AllocatorsAreSet {
  AllocatorsAreSet() {
    c10::SetAllocator(kType, &TheAllocator());
    at::setHostAllocator(kType, &ThePinnedAllocator());
  }
} allocators_are_set;

}  // namespace
}  // namespace gavel::simulated

namespace at {
using gavel::simulated::HPUHooks;
REGISTER_HPU_HOOKS(HPUHooks);
}  // namespace at
