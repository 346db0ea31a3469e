#include "runtime/device/device_move.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/device/device_backend.h"
#include "runtime/torch_devices.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

// In what CUDA says of a device that only one process may use.
constexpr char kBusy[] = "busy";

struct Kind {
  std::string_view name;
  c10::DeviceType type;
};
constexpr Kind kKinds[] = {
    {"cuda", c10::kCUDA}, {"xpu", c10::kXPU}, {"hpu", c10::kHPU}};

// `tensors` and their gradients, without repetition and, unless all are to be
// copied, without what is there.
std::vector<at::Tensor> TensorsToMove(const std::vector<at::Tensor>& tensors,
                                      c10::Device device, MoveCopy move_copy) {
  std::vector<at::Tensor> result;
  std::set<c10::TensorImpl*> seen;
  auto add = [&](const at::Tensor& tensor) {
    bool needed = tensor.defined() &&
                  (move_copy == MoveCopy::kAlways || tensor.device() != device);
    if (needed && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.push_back(tensor);
    }
  };
  for (const at::Tensor& tensor : tensors) {
    add(tensor);
    // Only leaves have one of their own; asking others makes LibTorch warn.
    if (tensor.defined() && tensor.is_leaf()) add(tensor.grad());
  }
  return result;
}

// Copies tensors one by one, but memory that several of them share once.
class Copier {
 public:
  Copier(const std::vector<at::Tensor>& tensors, c10::Device device)
      : device_(device) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.has_storage()) ++users_[StorageOf(tensor)];
    }
  }

  at::Tensor Copy(const at::Tensor& tensor) {
    at::Tensor source = tensor.detach();
    if (!tensor.has_storage() || users_[StorageOf(tensor)] == 1) {
      return CopyOf(source);
    }
    at::Tensor copy = at::empty({0}, source.options().device(device_));
    return copy.set_(CopyStorage(source), source.storage_offset(),
                     source.sizes(), source.strides());
  }

 private:
  static c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }

  at::Tensor CopyOf(const at::Tensor& source) const {
    return source.to(source.options().device(device_), /*non_blocking=*/false,
                     /*copy=*/true);
  }

  c10::Storage CopyStorage(const at::Tensor& source) {
    auto [entry, is_new] = storages_.try_emplace(StorageOf(source));
    if (is_new) {
      int64_t size = static_cast<int64_t>(source.storage().nbytes());
      at::Tensor bytes = at::empty({0}, source.options().dtype(at::kByte));
      bytes.set_(source.storage(), 0, {size}, {1});
      entry->second = CopyOf(bytes);
    }
    return entry->second.storage();
  }

  c10::Device device_;
  std::map<c10::StorageImpl*, int> users_;
  std::map<c10::StorageImpl*, at::Tensor> storages_;
};

// The first part may fail for want of memory, the second only exchanges
// pointers: so all tensors move or none.
absl::Status Move(const std::vector<at::Tensor>& tensors, c10::Device device,
                  MoveCopy move_copy) {
  std::vector<at::Tensor> moving = TensorsToMove(tensors, device, move_copy);
  Copier copier(moving, device);
  std::vector<at::Tensor> copies;
  copies.reserve(moving.size());
  for (const at::Tensor& tensor : moving) copies.push_back(copier.Copy(tensor));
  for (size_t i = 0; i < moving.size(); ++i) moving[i].set_data(copies[i]);
  return absl::OkStatus();
}

std::string Moving(std::string_view what, c10::Device device) {
  return StrCat("moving ", what, " to ", device.str());
}

absl::Status NoSuchDevice(std::string_view text, const Kind& kind, int count) {
  if (count > 0) {
    return absl::FailedPreconditionError(StrCat(
        "device '", text, "': this program sees ", count, " of ", kind.name,
        "; choose ", kind.name, ":0 to ", kind.name, ":", count - 1));
  }
  return absl::FailedPreconditionError(StrCat(
      "device '", text, "' can't be used: ", BackendOf(kind.type).WhyNone()));
}

// Null: not KIND:N.
const Kind* FindKind(std::string_view text, int* index) {
  for (const Kind& kind : kKinds) {
    if (!text.starts_with(StrCat(kind.name, ":"))) continue;
    const std::string_view number = text.substr(kind.name.size() + 1);
    const bool is_number = absl::SimpleAtoi(ToAbsl(number), index) &&
                           StrCat(*index) == number && *index >= 0;
    return is_number ? &kind : nullptr;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<c10::Device> ParseDevice(std::string_view text) {
  if (text == "cpu") return c10::Device(c10::kCPU);
  int index = -1;
  const Kind* const kind = FindKind(text, &index);
  if (kind == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("device '", text,
               "' is not \"cpu\" or KIND:N, with KIND cuda, xpu or hpu"));
  }
  int count = 0;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("counting devices", [&] {
    count = CountDevices(kind->type);
    return absl::OkStatus();
  }));
  if (index >= count) return NoSuchDevice(text, *kind, count);
  return c10::Device(kind->type, static_cast<c10::DeviceIndex>(index));
}

std::string DefaultDevice(int local_rank) {
  for (const Kind& kind : kKinds) {
    if (CountDevices(kind.type) > 0) return StrCat(kind.name, ":", local_rank);
  }
  return "cpu";
}

absl::Status ChooseDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  absl::Status status =
      CatchAsStatus(StrCat("choosing ", device.str()), [device] {
        c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
        at::globalContext().lazyInitDevice(device.type());
        return absl::OkStatus();
      });
  if (!absl::IsInternal(status) ||
      !absl::StrContains(status.message(), kBusy)) {
    return status;
  }
  return absl::UnavailableError(
      StrCat(device.str(),
             " is in exclusive-process mode, and another process uses it; "
             "take it out of this mode (nvidia-smi --compute-mode=0): ",
             status.message()));
}

absl::Status MoveTensors(const std::vector<at::Tensor>& tensors,
                         c10::Device device, MoveCopy copy) {
  return CatchAsStatus(Moving("tensors", device),
                       [&] { return Move(tensors, device, copy); });
}

std::vector<at::Tensor> ModuleTensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  std::vector<at::Tensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

absl::Status MoveModule(torch::nn::Module& module, c10::Device device) {
  return CatchAsStatus(Moving(module.name(), device), [&] {
    GAVEL_RETURN_IF_ERROR(
        Move(ModuleTensors(module), device, MoveCopy::kIfNeeded));
    module.to(device);
    return absl::OkStatus();
  });
}

absl::Status Synchronize(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("synchronizing ", device.str()), [device] {
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
    return absl::OkStatus();
  });
}

absl::Status ReleaseMemory(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("releasing memory of ", device.str()), [device] {
    const c10::DeviceGuard guard(device);
    // A copy between devices may still read what was freed.
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
    BackendOf(device.type()).ReleaseWorkspaces(device);
    c10::getDeviceAllocator(device.type())->emptyCache();
    return absl::OkStatus();
  });
}

DeviceMemory ReadDeviceMemory(c10::Device device) {
  DeviceMemory memory;
  if (device.is_cpu()) return memory;
  CatchAsStatus(StrCat("reading memory of ", device.str()), [&] {
    c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
    const auto [free, total] = allocator.getMemoryInfo(device.index());
    memory = {free, total};
    return absl::OkStatus();
  }).IgnoreError();
  return memory;
}

absl::Status CheckDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  absl::Status status =
      CatchAsStatus(StrCat("checking ", device.str()), [device] {
        constexpr int64_t kBytes = 256;
        const at::Tensor there =
            at::full({kBytes}, 1, at::device(device).dtype(at::kByte));
        if (there.sum().item<int64_t>() == kBytes) return absl::OkStatus();
        return absl::InternalError("it does not add up");
      });
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

absl::Status LimitMemory(c10::Device device, uint64_t bytes) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("limiting memory of ", device.str()), [&] {
    at::globalContext().lazyInitDevice(device.type());
    BackendOf(device.type()).LimitMemory(device, bytes);
    return absl::OkStatus();
  });
}

}  // namespace gavel
