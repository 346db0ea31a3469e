#include "runtime/device/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;
using torch::autograd::variable_list;

struct Parameter {
  at::Tensor tensor;
  size_t bucket = 0;
  int64_t from = 0;  // in the bucket
  int64_t flag = 0;  // where the bucket tells that there was a gradient
  bool ready = false;
  // Keeps the node alive that the hook sits on.
  std::shared_ptr<torch::autograd::Node> accumulator;
  uintptr_t hook = 0;
};

struct Bucket {
  std::vector<size_t> parameters;
  int64_t elements = 0;
  at::Tensor flat;  // the gradients, then one flag each
  size_t missing = 0;
  std::unique_ptr<ProcessGroup::Pending> pending;
};

}  // namespace

class GradientBuckets::Impl
    : public std::enable_shared_from_this<GradientBuckets::Impl> {
 public:
  Impl(ProcessGroup& group, GradientBucketsOptions options)
      : group_(group), options_(std::move(options)) {}

  absl::Status Build(const std::vector<at::Tensor>& parameters);
  void AddHooks();
  void RemoveHooks();
  bool unfinished() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return in_pass_;
  }
  int64_t size_bytes() const {
    int64_t size_bytes = 0;
    for (const Bucket& bucket : buckets_) {
      size_bytes += static_cast<int64_t>(bucket.flat.nbytes());
    }
    return size_bytes;
  }

 private:
  void GradientIsThere(size_t index);
  absl::Status AddToPass(size_t index);
  void BeginPass();
  absl::Status Take(size_t index);
  absl::Status LaunchReady();
  void EndPass();
  absl::Status FinishPass();
  absl::Status FinishBucket(Bucket& bucket);
  at::Tensor View(const Parameter& parameter) const;
  bool IsInBucket(const at::Tensor& gradient, const Parameter& parameter) const;
  absl::Status Adopt(Parameter& parameter);
  void Fail(absl::Status status);

  ProcessGroup& group_;
  const GradientBucketsOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;

  mutable std::mutex mutex_;  // gradients on several devices come at once
  bool in_pass_ = false;
  bool failed_ = false;
  size_t next_bucket_ = 0;  // all ranks begin them in this order
};

absl::Status GradientBuckets::Impl::Build(
    const std::vector<at::Tensor>& parameters) {
  std::map<at::ScalarType, size_t> open;  // one bucket has one type
  for (auto tensor = parameters.rbegin(); tensor != parameters.rend();
       ++tensor) {
    if (!at::isFloatingType(tensor->scalar_type())) {
      return absl::InvalidArgumentError(
          StrCat("a parameter of type ", toString(tensor->scalar_type()),
                 " can't be averaged over a gang; use a floating type"));
    }
    auto found = open.find(tensor->scalar_type());
    const int64_t elements_max =
        options_.bucket_bytes_max / static_cast<int64_t>(tensor->itemsize());
    if (found == open.end() ||
        buckets_[found->second].elements + tensor->numel() > elements_max) {
      buckets_.emplace_back();
      found = open.insert_or_assign(tensor->scalar_type(), buckets_.size() - 1)
                  .first;
    }
    Bucket& bucket = buckets_[found->second];
    bucket.parameters.push_back(parameters_.size());
    Parameter& parameter = parameters_.emplace_back();
    parameter.tensor = *tensor;
    parameter.bucket = found->second;
    parameter.from = bucket.elements;
    bucket.elements += tensor->numel();
  }
  for (Bucket& bucket : buckets_) {
    int64_t flag = bucket.elements;
    for (const size_t i : bucket.parameters) parameters_[i].flag = flag++;
    const at::Tensor& first = parameters_[bucket.parameters.front()].tensor;
    bucket.flat = at::zeros({flag}, first.options().requires_grad(false));
  }
  return absl::OkStatus();
}

void GradientBuckets::Impl::AddHooks() {
  const std::weak_ptr<Impl> weak = weak_from_this();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.accumulator =
        torch::autograd::impl::grad_accumulator(parameter.tensor);
    parameter.hook = parameter.accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [weak, i](const variable_list& outputs, const variable_list&) {
              if (const auto impl = weak.lock()) impl->GradientIsThere(i);
              return outputs;
            }));
  }
}

void GradientBuckets::Impl::RemoveHooks() {
  for (Parameter& parameter : parameters_) {
    parameter.accumulator->del_post_hook(parameter.hook);
  }
}

void GradientBuckets::Impl::GradientIsThere(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed_) return;
  absl::Status status = CatchAsStatus("averaging gradients", [&] {
    const at::NoGradGuard no_grad;
    return AddToPass(index);
  });
  if (!status.ok()) Fail(std::move(status));
}

absl::Status GradientBuckets::Impl::AddToPass(size_t index) {
  if (!in_pass_) {
    if (options_.averages && !options_.averages()) {
      return Adopt(parameters_[index]);
    }
    BeginPass();
  }
  GAVEL_RETURN_IF_ERROR(Take(index));
  return LaunchReady();
}

void GradientBuckets::Impl::BeginPass() {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this()] { self->EndPass(); });
  in_pass_ = true;
  next_bucket_ = 0;
  for (Parameter& parameter : parameters_) parameter.ready = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
}

// No view for autograd: Optimizer::zero_grad() detaches gradients in place,
// which these refuse. With the parameter's strides, so that sums and steps go
// through both alike.
at::Tensor GradientBuckets::Impl::View(const Parameter& parameter) const {
  const at::Tensor& flat = buckets_[parameter.bucket].flat;
  const at::Tensor& tensor = parameter.tensor;
  const at::Tensor view =
      tensor.is_non_overlapping_and_dense()
          ? flat.as_strided(tensor.sizes(), tensor.strides(), parameter.from)
          : flat.narrow(0, parameter.from, tensor.numel()).view(tensor.sizes());
  return view.variable_data();
}

bool GradientBuckets::Impl::IsInBucket(const at::Tensor& gradient,
                                       const Parameter& parameter) const {
  const at::Tensor& flat = buckets_[parameter.bucket].flat;
  return gradient.is_alias_of(flat) &&
         gradient.storage_offset() == parameter.from;
}

// Moves a gradient into its bucket, unless it is there.
absl::Status GradientBuckets::Impl::Adopt(Parameter& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined() || IsInBucket(gradient, parameter)) {
    return absl::OkStatus();
  }
  if (gradient.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        "sparse gradients are not averaged over a gang; make the layer's "
        "gradients dense (EmbeddingOptions::sparse(false))");
  }
  const at::Tensor view = View(parameter);
  view.copy_(gradient);
  gradient = view;
  return absl::OkStatus();
}

// Puts a gradient, or that there is none, into its bucket.
absl::Status GradientBuckets::Impl::Take(size_t index) {
  Parameter& parameter = parameters_[index];
  if (parameter.ready) {
    return absl::InvalidArgumentError(
        "a parameter got its gradient twice in one backward pass; "
        "gavel::DataParallel does not go with nested backward passes");
  }
  GAVEL_RETURN_IF_ERROR(Adopt(parameter));
  const bool has_gradient = parameter.tensor.grad().defined();
  Bucket& bucket = buckets_[parameter.bucket];
  bucket.flat.select(0, parameter.flag).fill_(has_gradient ? 1 : 0);
  if (!has_gradient) View(parameter).zero_();
  parameter.ready = true;
  --bucket.missing;
  return absl::OkStatus();
}

absl::Status GradientBuckets::Impl::LaunchReady() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    Bucket& bucket = buckets_[next_bucket_];
    if (bucket.missing > 0) break;
    GAVEL_ASSIGN_OR_RETURN(bucket.pending, group_.AllReduce(bucket.flat));
  }
  return absl::OkStatus();
}

// The engine calls it when all gradients of the pass are there, before
// backward() returns.
void GradientBuckets::Impl::EndPass() {
  std::lock_guard<std::mutex> lock(mutex_);
  in_pass_ = false;
  if (failed_) return;
  absl::Status status = CatchAsStatus("averaging gradients", [this] {
    const at::NoGradGuard no_grad;
    return FinishPass();
  });
  if (!status.ok()) Fail(std::move(status));
}

absl::Status GradientBuckets::Impl::FinishPass() {
  // Parameters that this pass did not use: another rank may have.
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].ready) continue;
    GAVEL_RETURN_IF_ERROR(Take(i));
  }
  GAVEL_RETURN_IF_ERROR(LaunchReady());
  for (Bucket& bucket : buckets_) {
    GAVEL_RETURN_IF_ERROR(FinishBucket(bucket));
  }
  return absl::OkStatus();
}

absl::Status GradientBuckets::Impl::FinishBucket(Bucket& bucket) {
  GAVEL_RETURN_IF_ERROR(bucket.pending->Wait());
  bucket.pending.reset();
  at::Tensor flags;
  for (const size_t i : bucket.parameters) {
    Parameter& parameter = parameters_[i];
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (gradient.defined()) continue;
    // Read only where it matters: on a GPU this waits for the collective.
    if (!flags.defined()) {
      flags =
          bucket.flat
              .narrow(0, bucket.elements, bucket.flat.numel() - bucket.elements)
              .to(at::kCPU, at::kFloat);
    }
    if (flags[parameter.flag - bucket.elements].item<float>() == 0) continue;
    gradient = View(parameter);
  }
  bucket.flat.narrow(0, 0, bucket.elements).div_(group_.world_size());
  return absl::OkStatus();
}

void GradientBuckets::Impl::Fail(absl::Status status) {
  failed_ = true;
  if (options_.failed) options_.failed(std::move(status));
}

absl::StatusOr<std::unique_ptr<GradientBuckets>> GradientBuckets::Create(
    const std::vector<at::Tensor>& parameters, ProcessGroup& group,
    GradientBucketsOptions options) {
  auto impl = std::make_shared<Impl>(group, std::move(options));
  absl::Status status = CatchAsStatus("making gradient buckets", [&] {
    absl::Status built = impl->Build(parameters);
    if (built.ok()) impl->AddHooks();
    return built;
  });
  if (!status.ok()) return status;
  return std::unique_ptr<GradientBuckets>(new GradientBuckets(std::move(impl)));
}

GradientBuckets::GradientBuckets(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
GradientBuckets::~GradientBuckets() { impl_->RemoveHooks(); }

bool GradientBuckets::unfinished() const { return impl_->unfinished(); }

int64_t GradientBuckets::size_bytes() const { return impl_->size_bytes(); }

}  // namespace gavel
