#include "runtime/checkpoint/rng_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <mutex>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

absl::Status CheckDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  if (!device.is_cuda()) {
    return absl::UnimplementedError(
        StrCat("random state of ", device.str(),
               " is not supported; use cpu or cuda:N"));
  }
  int count = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (device.index() < count) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("random state of ", device.str(),
                                              ": this program sees ", count,
                                              " GPUs; choose one of them"));
}

std::string NameOf(c10::Device device, std::string_view prefix) {
  return StrCat(prefix, device.is_cpu() ? "/cpu" : "/cuda");
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

absl::StatusOr<std::string> GetRngState(c10::Device device) {
  std::string state;
  absl::Status status =
      CatchAsStatus(StrCat("random state of ", device.str()), [&] {
        GAVEL_RETURN_IF_ERROR(CheckDevice(device));
        at::Generator generator = at::globalContext().defaultGenerator(device);
        std::lock_guard<std::mutex> lock(generator.mutex());
        at::Tensor bytes = generator.get_state();
        state.assign(static_cast<const char*>(bytes.const_data_ptr()),
                     bytes.nbytes());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return state;
}

absl::Status SetRngState(c10::Device device, std::string_view state) {
  std::string what = StrCat("random state of ", device.str());
  absl::Status status = CatchAsStatus(what, [&] {
    GAVEL_RETURN_IF_ERROR(CheckDevice(device));
    at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())},
                                 at::device(at::kCPU).dtype(at::kByte));
    if (!state.empty()) {
      std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
    }
    at::Generator generator = at::globalContext().defaultGenerator(device);
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
