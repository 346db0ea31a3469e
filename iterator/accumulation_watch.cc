#include "iterator/accumulation_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// Elements added up at a time: the sum's copy of them is small then.
constexpr int64_t kPiece = 1 << 22;

constexpr int64_t kOdd = 0x51ed2701;

// Over a dense tensor's words w, modulo 2^64: of w * (w + kOdd), as in a
// plain sum the equal steps of a positive and of a negative number cancel out.
// 0 for others.
uint64_t SumOfBits(const at::Tensor& tensor) {
  const int64_t bytes = tensor.element_size();
  if (!tensor.is_non_overlapping_and_dense() || bytes > 8) return 0;
  const at::Tensor words = tensor.detach()
                               .as_strided({tensor.numel()}, {1})
                               .view(bytes == 8   ? at::kLong
                                     : bytes == 4 ? at::kInt
                                     : bytes == 2 ? at::kShort
                                                  : at::kByte);
  uint64_t sum = 0;
  for (int64_t from = 0; from < words.numel(); from += kPiece) {
    const int64_t count = std::min(kPiece, words.numel() - from);
    const at::Tensor piece = words.narrow(0, from, count).to(at::kLong);
    sum +=
        static_cast<uint64_t>(piece.mul(piece.add(kOdd)).sum().item<int64_t>());
  }
  return sum;
}

// A training that has come to NaN changes its parameters no more.
bool IsFinite(const TrackedState& tracked) {
  const at::NoGradGuard no_grad;
  bool finite = true;
  CatchAsStatus("looking at parameters", [&] {
    for (const auto& item : tracked.items()) {
      for (const auto& [name, parameter] : item->Parameters()) {
        finite = finite && parameter.detach().sum().isfinite().item<bool>();
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
  return finite;
}

}  // namespace

AccumulationWatch::Seen AccumulationWatch::Read(const TrackedState& tracked) {
  const at::NoGradGuard no_grad;
  Seen now;
  // An inference tensor has no version: nothing is trained then.
  CatchAsStatus("looking at gradients", [&] {
    for (const auto& item : tracked.items()) {
      for (const auto& [name, parameter] : item->Parameters()) {
        if (!parameter.defined() || !parameter.is_leaf()) continue;
        now.parameters = now.parameters * uint64_t{kOdd} + SumOfBits(parameter);
        const at::Tensor& gradient = parameter.grad();
        if (!gradient.defined()) continue;
        now.has_gradients = true;
        now.gradients +=
            static_cast<uint64_t>(gradient._version()) + 1 +
            reinterpret_cast<uintptr_t>(gradient.unsafeGetTensorImpl());
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
  return now;
}

void AccumulationWatch::Begin(const TrackedState& tracked,
                              const Snapshot* restored) {
  accumulates_ = restored != nullptr && TrackedState::HasGradients(*restored);
  last_ = Read(tracked);
}

void AccumulationWatch::Look(const TrackedState& tracked) {
  if (done()) return;
  const Seen now = Read(tracked);
  accumulates_ = now.has_gradients && now.gradients != last_.gradients &&
                 now.parameters == last_.parameters && IsFinite(tracked);
  last_ = now;
  ++looks_;
}

}  // namespace gavel::internal
