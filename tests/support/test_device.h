// The device on which a test trains: the CPU, or the accelerators that
// GAVEL_TEST_DEVICE names. ctest runs some tests a second time with "hpu", the
// simulated accelerator, which gives the bits of the CPU.
#ifndef GAVEL_TESTS_SUPPORT_TEST_DEVICE_H_
#define GAVEL_TESTS_SUPPORT_TEST_DEVICE_H_

#include <cstdlib>
#include <string>

namespace gavel::testing {

inline bool OnAccelerator() {
  return std::getenv("GAVEL_TEST_DEVICE") != nullptr;
}

inline std::string TestDevice(int index = 0) {
  if (!OnAccelerator()) return "cpu";
  return std::string(std::getenv("GAVEL_TEST_DEVICE")) + ":" +
         std::to_string(index);
}

// The device whose undisturbed run gives the same bits as TestDevice(): the
// CPU, or a GPU itself.
inline std::string ReferenceDevice() {
  return TestDevice().starts_with("cuda") ? TestDevice() : "cpu";
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_TEST_DEVICE_H_
