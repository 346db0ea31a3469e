// The devices that LibTorch shows this process. Header only.
#ifndef GAVEL_RUNTIME_DEVICE_TORCH_DEVICES_H_
#define GAVEL_RUNTIME_DEVICE_TORCH_DEVICES_H_

#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace gavel {

// How many of this kind the process sees; 0 also where LibTorch has no support
// for it. Does not begin to use any.
inline int CountDevices(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type)
             ? c10::impl::getDeviceGuardImpl(type)->deviceCount()
             : 0;
}

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_TORCH_DEVICES_H_
