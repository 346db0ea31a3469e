// The settings of the simulated accelerators of a process. They are read once,
// before the first use, from the environment variable GAVEL_SIMULATED_DEVICE,
// so that child processes have the same ones:
//
//   GAVEL_SIMULATED_DEVICE="devices=2,memory_mib=64,shared=/tmp/x/devices"
//
// With HABANA_VISIBLE_MODULES=N the process sees only device N, and calls it 0.
// With partitions=K each device is divided into K, as MIG divides a GPU, and a
// process sees one of them: N, or the first.
//
// Without GAVEL_SIMULATED_DEVICE a process has no simulated accelerator.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SETTINGS_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gavel::simulated {

inline constexpr char kVariable[] = "GAVEL_SIMULATED_DEVICE";
inline constexpr char kVisible[] = "HABANA_VISIBLE_MODULES";
inline constexpr int kDevicesMax = 16;

struct Settings {
  int devices = 0;             // how many this process sees, <= kDevicesMax
  uint64_t memory_bytes = 0;   // of each device; memory_mib in the variable
  uint64_t context_bytes = 0;  // what a process takes by using a device at all
  int64_t delay_us = 200;      // at most, before some of the work of a stream
  uint64_t seed = 1;           // of these delays
  bool exclusive = false;      // one process at a time on a device
  int partitions = 1;          // of each device; memory_bytes is of one
  int first = 0;               // what the process calls device 0
  std::string shared;          // file of what all processes take; empty: none
};

// Throws c10::Error that names the mistake in `text` or `visible` (null if the
// variable is not set).
Settings ParseSettings(std::string_view text, const char* visible = nullptr);
// The settings from the environment, which stay the same for the whole life of
// the process.
const Settings& TheSettings();

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SETTINGS_H_
