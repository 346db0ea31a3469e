// Linked with tests that run on the device of GAVEL_TEST_DEVICE: skips all of
// them where the machine has none, or fails with GAVEL_NEEDS_DEVICE set.
#include <cstdlib>

#include "runtime/device/device_backend.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {
namespace {

class NeedsDevice : public ::testing::Environment {
  void SetUp() override {
    const c10::Device device(TestDevice());
    if (CountDevices(device.type()) == 0) {
      if (std::getenv("GAVEL_NEEDS_DEVICE") != nullptr) {
        FAIL() << "LibTorch sees no " << device;
      }
      GTEST_SKIP() << "needs " << device << ", this machine has none";
    }
  }
};

const ::testing::Environment* const kNeedsDevice =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace gavel::testing
