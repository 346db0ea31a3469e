#include "runtime/checkpoint/rng_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <mutex>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/torch_devices.h"
#include "runtime/device/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

absl::Status CheckDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  const int count = CountDevices(device.type());
  if (device.index() < count) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("random state of ", device.str(), ": this program sees ", count,
             " such devices; choose one of them"));
}

std::string Of(c10::Device device) {
  return StrCat("random state of ", device.str());
}

absl::Status NoGenerator() {
  return absl::InvalidArgumentError(
      "a random generator is undefined; make it before it is tracked");
}

absl::StatusOr<at::Generator> GeneratorOf(c10::Device device) {
  at::Generator generator;
  absl::Status status = CatchAsStatus(Of(device), [&] {
    GAVEL_RETURN_IF_ERROR(CheckDevice(device));
    generator = at::globalContext().defaultGenerator(device);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return generator;
}

std::string NameOf(c10::Device device, std::string_view prefix) {
  return StrCat(prefix, "/",
                c10::DeviceTypeName(device.type(), /*lower_case=*/true));
}

absl::Status RestoreOne(const Snapshot& snapshot, c10::Device device,
                        std::string_view prefix) {
  auto entry = snapshot.bytes.find(NameOf(device, prefix));
  if (entry == snapshot.bytes.end()) return absl::OkStatus();
  return SetRngState(device, entry->second);
}

absl::Status CollectOne(c10::Device device, std::string_view prefix,
                        Snapshot* snapshot) {
  GAVEL_ASSIGN_OR_RETURN(snapshot->bytes[NameOf(device, prefix)],
                         GetRngState(device));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> GetGeneratorState(at::Generator generator) {
  if (!generator.defined()) return NoGenerator();
  std::string state;
  absl::Status status = CatchAsStatus(Of(generator.device()), [&] {
    std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor bytes = generator.get_state();
    state.assign(static_cast<const char*>(bytes.const_data_ptr()),
                 bytes.nbytes());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return state;
}

absl::Status SetGeneratorState(at::Generator generator,
                               std::string_view state) {
  if (!generator.defined()) return NoGenerator();
  absl::Status status = CatchAsStatus(Of(generator.device()), [&] {
    at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())},
                                 at::device(at::kCPU).dtype(at::kByte));
    if (!state.empty()) {
      std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
    }
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(bytes);
    return absl::OkStatus();
  });
  // LibTorch throws on a state of the wrong size or content.
  if (absl::IsInternal(status)) {
    return absl::InvalidArgumentError(status.message());
  }
  return status;
}

absl::StatusOr<std::string> GetRngState(c10::Device device) {
  GAVEL_ASSIGN_OR_RETURN(const at::Generator generator, GeneratorOf(device));
  return GetGeneratorState(generator);
}

absl::Status SetRngState(c10::Device device, std::string_view state) {
  GAVEL_ASSIGN_OR_RETURN(const at::Generator generator, GeneratorOf(device));
  return SetGeneratorState(generator, state);
}

absl::Status CollectRngState(c10::Device device, std::string_view prefix,
                             Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(CollectOne(c10::Device(at::kCPU), prefix, snapshot));
  if (device.is_cpu()) return absl::OkStatus();
  return CollectOne(device, prefix, snapshot);
}

absl::Status RestoreRngState(const Snapshot& snapshot, c10::Device device,
                             std::string_view prefix) {
  if (!snapshot.bytes.contains(NameOf(c10::Device(at::kCPU), prefix))) {
    return absl::NotFoundError(
        StrCat("the checkpoint has no random states under '", prefix,
               "'; collect them under this name"));
  }
  GAVEL_RETURN_IF_ERROR(RestoreOne(snapshot, c10::Device(at::kCPU), prefix));
  if (device.is_cpu()) return absl::OkStatus();
  return RestoreOne(snapshot, device, prefix);
}

}  // namespace gavel
