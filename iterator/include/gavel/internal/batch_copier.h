// Copies batches to a device, beside what it does. Part of gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_BATCH_COPIER_H_
#define GAVEL_INTERNAL_BATCH_COPIER_H_

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "gavel/internal/placement.h"

namespace gavel::internal {

// One thread. Batches without tensors, or that can't be copied, stay.
template <class Batch>
class BatchCopier {
 public:
  void SetDevice(at::Device device) { device_ = device; }
  at::Device device() const { return device_; }
  bool copies() const { return kCanCopy && !device_.is_cpu(); }

  // Begins the copy.
  Batch Copy(const Batch& batch) {
    if (!copies_ || copies_->device() != device_) {
      copies_ = std::make_unique<CopyStream>(device_);
    }
    Batch copy = batch;
    VisitTensors(copy, [this](at::Tensor& part) { copies_->Copy(part); });
    return copy;
  }
  // Before the device is given work on it.
  void Use(Batch& copy) {
    VisitTensors(copy, [this](at::Tensor& part) { copies_->Use(part); });
  }

  static constexpr bool kCanCopy =
      HoldsTensors<Batch>() && std::is_copy_constructible_v<Batch>;

 private:
  at::Device device_{at::kCPU};
  std::unique_ptr<CopyStream> copies_;
};

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_BATCH_COPIER_H_
