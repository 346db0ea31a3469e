#include "runtime/device/device_backend.h"

#include <array>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "core/text.h"

namespace gavel {
namespace {

using Backends = std::array<std::unique_ptr<DeviceBackend>,
                            c10::COMPILE_TIME_MAX_DEVICE_TYPES>;

// Written before main() only; never destroyed.
Backends& TheBackends() {
  static Backends& backends = *new Backends();
  return backends;
}

}  // namespace

std::string DeviceBackend::WhyNone() const {
  return "there is none, no driver for it, or no support for it in this "
         "LibTorch; use cpu";
}

std::string WhyNoGpu(int driver, int needed) {
  if (driver == 0) return "there is no NVIDIA driver; install one, or use cpu";
  const auto text = [](int version) {
    return StrCat(version / 1000, ".", version % 1000 / 10);
  };
  if (driver < needed) {
    return StrCat("the driver is for CUDA ", text(driver),
                  ", this LibTorch needs ", text(needed),
                  "; update the driver, or use cpu");
  }
  return "the driver shows none; look at nvidia-smi and CUDA_VISIBLE_DEVICES, "
         "or use cpu";
}

void DeviceBackend::ReleaseWorkspaces(c10::Device) const {}

void DeviceBackend::LimitMemory(c10::Device, uint64_t) const {}

c10::intrusive_ptr<c10d::Backend> DeviceBackend::MakeCollectives(
    const c10::intrusive_ptr<c10d::Store>&, const ProcessGroupOptions&) const {
  return {};
}

bool DeviceBackend::PinMemory(void*, uint64_t) const { return false; }

void DeviceBackend::UnpinMemory(void*) const {}

std::optional<std::vector<uint64_t>> DeviceBackend::Hash(
    const std::vector<at::Tensor>&, c10::Device) const {
  return std::nullopt;
}

const DeviceBackend& BackendOf(c10::DeviceType type) {
  static const DeviceBackend& none = *new DeviceBackend();
  const auto& backend = TheBackends()[static_cast<size_t>(type)];
  return backend ? *backend : none;
}

BackendIsRegistered::BackendIsRegistered(
    c10::DeviceType type, std::unique_ptr<DeviceBackend> backend) {
  TheBackends()[static_cast<size_t>(type)] = std::move(backend);
}

}  // namespace gavel
