// The device of --device, for benchmarks that train. Header only.
#ifndef GAVEL_BENCH_TORCH_DEVICE_H_
#define GAVEL_BENCH_TORCH_DEVICE_H_

#include <c10/core/Device.h>

#include <string>

#include "bench/program.h"
#include "runtime/device/device_move.h"

namespace gavel::bench {

// "cpu", "cuda:0"; it is the current one from now on. Ends the program where
// there is no such device.
inline c10::Device ChosenDevice(const std::string& text) {
  const auto device = ParseDevice(text);
  if (!device.ok()) Die(std::string(device.status().message()));
  const auto chosen = ChooseDevice(*device);
  if (!chosen.ok()) Die(std::string(chosen.message()));
  return *device;
}

// Until all that was begun there is done.
inline void Wait(c10::Device device) {
  const auto done = Synchronize(device);
  if (!done.ok()) Die(std::string(done.message()));
}

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_TORCH_DEVICE_H_
