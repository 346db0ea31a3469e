// What the simulated accelerators of a process are like. Read once, before the
// first use, from the environment variable GAVEL_SIMULATED_DEVICE, so that
// child processes have the same:
//
//   GAVEL_SIMULATED_DEVICE="devices=2,memory_mib=64,shared=/tmp/x/devices"
//
// HABANA_VISIBLE_MODULES=N leaves a process the device N, which it calls 0.
// With partitions=K each device is K of them, as MIG divides a GPU, and a
// process sees one: N, or the first.
//
// Without the first variable a process has no simulated accelerator.
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

// Throws c10::Error with what is wrong in `text` or `visible` (null: not set).
Settings ParseSettings(std::string_view text, const char* visible = nullptr);
// Of the environment. The same for the whole life of the process.
const Settings& TheSettings();

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SETTINGS_H_
