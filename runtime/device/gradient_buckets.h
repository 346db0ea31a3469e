// Averages the gradients of a model over a gang while backward() still runs:
// parameters are put into buckets in the reverse of their order, and a bucket
// is added up over the ranks as soon as the last gradient in it is there. When
// backward() returns, all gradients are the averages, the same bits on each
// rank. (The method of Li et al., "PyTorch Distributed", VLDB'20, section 3.)
//
// The gradients of parameters live in the buckets: once a pass has made one,
// parameter.grad() looks into its bucket, until the program resets it. So they
// take no memory beside it, and what is accumulated into them in place is not
// copied. A handle to a gradient sees the next step's values there.
//
// A parameter without a gradient on this rank counts as zero where another rank
// has one, and stays without where none has. Backward passes may be several in
// a step; each averages. Called by the iterator's DataParallel.
//
// Thread-safety: made and destroyed by the training thread while no backward()
// runs. Ownership: the group is borrowed. Nothing throws into backward().
#ifndef GAVEL_RUNTIME_DEVICE_GRADIENT_BUCKETS_H_
#define GAVEL_RUNTIME_DEVICE_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/process_group.h"

namespace gavel {

struct GradientBucketsOptions {
  // Large enough for a collective to be efficient, small enough to begin early.
  int64_t bucket_bytes_max = 25 << 20;
  // Asked when a backward pass comes to its first gradient: false leaves this
  // pass alone, its gradients add up locally (micro-batches). Empty: always.
  std::function<bool()> averages = {};
  // The gradients of this step are worthless: UNAVAILABLE when a rank is gone,
  // else what is wrong. By the thread that runs the pass; later passes do
  // nothing.
  std::function<void(absl::Status)> failed = {};
};

class GradientBuckets {
 public:
  // `parameters`: those that need a gradient, all on one device, the same on
  // all ranks. INVALID_ARGUMENT: of another kind than floating point.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(
      const std::vector<at::Tensor>& parameters, ProcessGroup& group,
      GradientBucketsOptions options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // A backward pass began and did not come to its end (it threw): the other
  // ranks wait for the rest.
  bool unfinished() const;

  // Memory of the buckets, gradients among them.
  int64_t size_bytes() const;

 private:
  class Impl;
  explicit GradientBuckets(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_GRADIENT_BUCKETS_H_
