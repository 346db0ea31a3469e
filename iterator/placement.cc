#include "gavel/internal/placement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "gavel/data_loader.h"
#include "gavel/internal/range_position.h"
#include "runtime/device/tensor_hash.h"

namespace gavel::internal {

RangePosition::~RangePosition() = default;
BatchOwner::~BatchOwner() = default;

namespace {

// Pinned memory, which the allocator keeps until it was copied: the caller
// continues at once, while from other memory the copy would wait until the
// device has done all steps before. Undefined where there can't be any.
at::Tensor PinnedCopy(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return {};
  try {
    return tensor.pin_memory();
  } catch (const c10::Error&) {
    return {};
  }
}

bool IsDenseOnHost(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided;
}

// The hash covers this much of each tensor, so that large ones take no time.
constexpr uint64_t kHashedBytesMax = uint64_t{1} << 20;

bool AreAlike(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return IsDenseOnHost(tensor) &&
           tensor.scalar_type() == tensors[0].scalar_type();
  });
}

// Undefined: no such memory, or not tensors that it can be for.
at::Tensor StackPinned(const std::vector<at::Tensor>& parts) {
  if (parts.empty() || !AreAlike(parts)) return {};
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  at::Tensor stacked;
  try {
    stacked = at::empty(sizes, parts[0].options().pinned_memory(true));
  } catch (const c10::Error&) {
    return {};
  }
  return at::stack_out(stacked, parts);
}

}  // namespace

uint64_t HashText(const char* data, size_t size_bytes) {
  return HashBytes(data, size_bytes) | 1;  // 0: there is none
}

uint64_t HashTensor(uint64_t before, const at::Tensor& tensor) {
  if (!IsDenseOnHost(tensor)) return before;
  const at::Tensor bytes = tensor.contiguous();
  const uint64_t both[] = {
      before, HashBytes(bytes.data_ptr(),
                        std::min<uint64_t>(bytes.nbytes(), kHashedBytesMax))};
  return HashText(reinterpret_cast<const char*>(both), sizeof(both));
}

void PlaceTensor(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  // One that is pinned already may soon be written to by its owner.
  const bool is_pageable = IsDenseOnHost(tensor) && !tensor.is_pinned();
  const at::Tensor pinned = is_pageable ? PinnedCopy(tensor) : at::Tensor();
  tensor = pinned.defined() ? pinned.to(device, /*non_blocking=*/true)
                            : tensor.to(device);
}

void PinTensor(at::Tensor& tensor) {
  if (!IsDenseOnHost(tensor)) return;
  if (at::Tensor pinned = PinnedCopy(tensor); pinned.defined()) {
    tensor = std::move(pinned);
  }
}

struct CopyStream::State {
  c10::Stream stream;
  c10::Event copied;
};

CopyStream::CopyStream(at::Device device)
    : state_(new State{c10::impl::VirtualGuardImpl(device.type())
                           .getStreamFromGlobalPool(device),
                       c10::Event(device.type())}) {}
CopyStream::~CopyStream() = default;

at::Device CopyStream::device() const { return state_->stream.device(); }

void CopyStream::Copy(at::Tensor& tensor) const {
  if (!IsDenseOnHost(tensor)) return PlaceTensor(tensor, device());
  PinTensor(tensor);
  const c10::StreamGuard guard(state_->stream);
  tensor = tensor.to(device(), /*non_blocking=*/true);
}

void CopyStream::Use(const at::Tensor& copy) {
  if (!copy.defined() || copy.layout() != at::kStrided) return;
  const c10::Stream current =
      c10::impl::VirtualGuardImpl(device().type()).getStream(device());
  state_->copied.record(state_->stream);
  state_->copied.block(current);
  // Its memory is of the stream of the copies, which must not take it again
  // before the steps are done with it.
  copy.record_stream(current);
}

at::Tensor StackTensors(const std::vector<at::Tensor>& parts, bool pinned) {
  if (pinned) {
    if (at::Tensor stacked = StackPinned(parts); stacked.defined()) {
      return stacked;
    }
  }
  return at::stack(parts);
}

}  // namespace gavel::internal
