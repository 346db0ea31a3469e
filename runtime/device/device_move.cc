#include "runtime/device/device_move.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/cuda.h>
#include <torch/nn/module.h>

#ifdef GAVEL_HAS_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

constexpr std::string_view kCudaPrefix = "cuda:";

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

absl::Status NoSuchDevice(std::string_view text, int count) {
  if (count > 0) {
    return absl::FailedPreconditionError(
        StrCat("device '", text, "': this program sees ", count,
               " GPUs; choose cuda:0 to cuda:", count - 1));
  }
  return absl::FailedPreconditionError(
      StrCat("device '", text,
             "': no GPU is usable here (none, no driver, or a LibTorch "
             "without CUDA); use cpu"));
}

}  // namespace

absl::StatusOr<c10::Device> ParseDevice(std::string_view text) {
  if (text == "cpu") return c10::Device(c10::kCPU);
  int index = -1;
  std::string_view number =
      text.substr(std::min(kCudaPrefix.size(), text.size()));
  if (!text.starts_with(kCudaPrefix) ||
      !absl::SimpleAtoi(ToAbsl(number), &index) || StrCat(index) != number ||
      index < 0) {
    return absl::InvalidArgumentError(
        StrCat("device '", text, "' is not \"cpu\" or \"cuda:N\""));
  }
  int count = 0;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("counting GPUs", [&count] {
    count = torch::cuda::device_count();
    return absl::OkStatus();
  }));
  if (index >= count) return NoSuchDevice(text, count);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
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
  if (!device.is_cuda()) return absl::OkStatus();
  return CatchAsStatus(StrCat("synchronizing ", device.str()), [device] {
    torch::cuda::synchronize(device.index());
    return absl::OkStatus();
  });
}

absl::Status ReleaseMemory(c10::Device device) {
  if (!device.is_cuda()) return absl::OkStatus();
  return CatchAsStatus(StrCat("releasing memory of ", device.str()), [device] {
#ifdef GAVEL_HAS_CUDA
    c10::cuda::CUDAGuard guard(device);
    at::cuda::clearCublasWorkspaces();  // some MiB for each stream in use
    c10::cuda::CUDACachingAllocator::emptyCache();
#endif
    return absl::OkStatus();
  });
}

absl::Status CheckDevice(c10::Device device) {
  if (!device.is_cuda()) return absl::OkStatus();
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
  if (!device.is_cuda()) return absl::OkStatus();
  return CatchAsStatus(StrCat("limiting memory of ", device.str()), [&] {
#ifdef GAVEL_HAS_CUDA
    const auto total = static_cast<double>(
        at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
    const double part =
        bytes == 0 ? 1 : std::min(1.0, static_cast<double>(bytes) / total);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(part, device.index());
#endif
    return absl::OkStatus();
  });
}

}  // namespace gavel
