#include "runtime/device/device_backend.h"

#include <array>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

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
