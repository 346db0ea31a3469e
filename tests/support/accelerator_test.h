// Tests that need an accelerator. Each is built twice: with CUDA, labelled gpu,
// and with the simulated accelerator, which CI has.
#ifndef GAVEL_TESTS_SUPPORT_ACCELERATOR_TEST_H_
#define GAVEL_TESTS_SUPPORT_ACCELERATOR_TEST_H_

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "runtime/device/device_backend.h"
#include "runtime/device/device_move.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {

class AcceleratorTest : public Test {
 protected:
  void SetUp() override {
    NeedDevices(1);
    if (IsSkipped()) return;
    ASSERT_OK(ChooseDevice(device_));
  }
  void NeedDevices(int count) {
    const int found = CountDevices(device_.type());
    if (found < count) {
      GTEST_SKIP() << "needs " << count << " of " << device_.type()
                   << ", this machine has " << found;
    }
  }
  // The device memory that this process has reserved or allocated.
  int64_t ReservedBytes() const {
    return allocator()
        .getDeviceStats(device_.index())
        .reserved_bytes[0]
        .current;
  }
  int64_t AllocatedBytes() const {
    return allocator()
        .getDeviceStats(device_.index())
        .allocated_bytes[0]
        .current;
  }
  // The device memory that all processes use together.
  int64_t UsedBytes() const {
    const auto [free, total] = allocator().getMemoryInfo(device_.index());
    return static_cast<int64_t>(total - free);
  }

  const c10::Device cpu_{c10::kCPU};
  const c10::Device device_{TestDevice(0)};
  const c10::Device second_{TestDevice(1)};

 private:
  c10::DeviceAllocator& allocator() const {
    return *c10::getDeviceAllocator(device_.type());
  }
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_ACCELERATOR_TEST_H_
