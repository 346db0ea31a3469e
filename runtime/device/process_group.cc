#include "runtime/device/process_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/device/device_backend.h"
#include "runtime/device/device_move.h"
#include "runtime/device/torch_errors.h"

#ifdef GAVEL_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace gavel {
namespace {

using internal::CatchAsStatus;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

std::chrono::milliseconds ToMilliseconds(double time_s) {
  return std::chrono::milliseconds(static_cast<int64_t>(time_s * 1000));
}

constexpr int64_t kBroadcastCopyBytesMax = 16 << 20;

// Any exception of c10d means that a peer is gone, whatever its type.
template <class Body>
absl::Status CatchAsUnavailable(std::string_view what, Body&& body) {
  absl::Status status = CatchAsStatus(what, std::forward<Body>(body));
  if (!absl::IsInternal(status)) return status;
  return absl::UnavailableError(status.message());
}

absl::Status ParseEndpoint(const std::string& endpoint, std::string* host,
                           int* port) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(endpoint.substr(colon + 1), port) || *port < 1 ||
      *port > 65535) {
    return absl::InvalidArgumentError(
        StrCat("'", endpoint, "' is no ADDRESS:PORT of a gang's store"));
  }
  *host = endpoint.substr(0, colon);
  return absl::OkStatus();
}

}  // namespace

// ---- the store

struct GangStore::Impl {
  c10::intrusive_ptr<c10d::Store> store;
};

GangStore::GangStore(std::unique_ptr<Impl> impl, std::string endpoint)
    : impl_(std::move(impl)), endpoint_(std::move(endpoint)) {}
GangStore::~GangStore() = default;

absl::StatusOr<std::unique_ptr<GangStore>> GangStore::Host(
    const std::string& address, int port, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = ToMilliseconds(timeout_s);
  c10::intrusive_ptr<c10d::TCPStore> store;
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable(
      StrCat("opening the gang's store at ", address, ":", port), [&] {
        store = c10::make_intrusive<c10d::TCPStore>(address, options);
        return absl::OkStatus();
      }));
  std::string endpoint = StrCat(address, ":", store->getPort());
  return std::unique_ptr<GangStore>(new GangStore(
      std::make_unique<Impl>(Impl{std::move(store)}), std::move(endpoint)));
}

absl::StatusOr<std::unique_ptr<GangStore>> GangStore::Connect(
    const std::string& endpoint, double timeout_s) {
  std::string host;
  int port = 0;
  GAVEL_RETURN_IF_ERROR(ParseEndpoint(endpoint, &host, &port));
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = ToMilliseconds(timeout_s);
  auto impl = std::make_unique<Impl>();
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable(
      StrCat("reaching the gang's store at ", endpoint), [&] {
        impl->store = c10::make_intrusive<c10d::TCPStore>(host, options);
        return absl::OkStatus();
      }));
  return std::unique_ptr<GangStore>(new GangStore(std::move(impl), endpoint));
}

absl::StatusOr<std::unique_ptr<GangStore>> GangStore::Clone() {
  auto impl = std::make_unique<Impl>();
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable(
      StrCat("reaching the gang's store at ", endpoint_), [&] {
        impl->store = impl_->store->clone();
        return absl::OkStatus();
      }));
  return std::unique_ptr<GangStore>(new GangStore(std::move(impl), endpoint_));
}

absl::Status GangStore::Set(const std::string& key, const std::string& value) {
  return CatchAsUnavailable("writing to the gang's store", [&] {
    impl_->store->set(key, value);
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> GangStore::Has(const std::vector<std::string>& keys) {
  bool has = false;
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable("reading the gang's store", [&] {
    has = impl_->store->check(keys);
    return absl::OkStatus();
  }));
  return has;
}

absl::StatusOr<std::vector<std::string>> GangStore::Get(
    const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable("reading the gang's store", [&] {
    for (const std::vector<uint8_t>& value : impl_->store->multiGet(keys)) {
      values.emplace_back(value.begin(), value.end());
    }
    return absl::OkStatus();
  }));
  return values;
}

// ---- the group

namespace {

#ifdef GAVEL_HAS_GLOO
BackendPointer MakeGloo(c10::intrusive_ptr<c10d::Store> store,
                        const ProcessGroupOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(
      ToMilliseconds(options.timeout_s));
  gloo->devices.push_back(
      options.address.empty()
          ? c10d::ProcessGroupGloo::createDefaultDevice()
          : c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      std::move(store), options.rank, options.world_size, gloo);
}
#endif

absl::StatusOr<BackendPointer> MakeBackend(
    c10::intrusive_ptr<c10d::Store> store, const ProcessGroupOptions& options) {
  BackendPointer backend;
  if (!options.device.is_cpu()) {
    backend = BackendOf(options.device.type()).MakeCollectives(store, options);
  }
#ifdef GAVEL_HAS_GLOO
  if (options.device.is_cpu()) backend = MakeGloo(std::move(store), options);
#endif
  if (backend != nullptr) return backend;
  return absl::FailedPreconditionError(StrCat(
      "a gang on ", options.device.str(),
      " is not possible: this build has no ",
      options.device.is_cpu() ? "Gloo (install libgloo-dev and build again)"
      : options.device.is_cuda()
          ? "NCCL (install nccl.h where the build finds it and build again)"
          : "collectives for this kind of device; use jobs of one worker"));
}

// Gloo and NCCL know these.
absl::Status CheckReducible(at::ScalarType type) {
  for (const at::ScalarType known :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kChar, at::kByte, at::kBool}) {
    if (type == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("tensors of type ", at::toString(type),
             " can't be reduced over a gang; convert them to a floating type "
             "of 16 bits or more, or to int, long or 8 bits"));
}

// A thread that waits for a collective wakes up when it is done or the group is
// aborted. LibTorch's Gloo cannot be aborted, and would wait for a frozen rank
// until the time-out.
struct Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
};

absl::Status Aborted() {
  return absl::UnavailableError("the gang's process group was aborted");
}

class PendingWork final : public ProcessGroup::Pending {
 public:
  PendingWork(c10::intrusive_ptr<c10d::Work> work,
              std::shared_ptr<Waiting> waiting, bool on_host)
      : work_(std::move(work)), waiting_(std::move(waiting)) {
    if (on_host) Watch();
  }

  absl::Status Wait() override {
    {
      std::unique_lock<std::mutex> lock(waiting_->mutex);
      waiting_->changed.wait(lock,
                             [this] { return *done_ || waiting_->aborted; });
      if (!*done_) return Aborted();
    }
    return CatchAsUnavailable("a collective of the gang", [this] {
      return work_->wait() ? absl::OkStatus() : Aborted();
    });
  }

 private:
  void Watch() {
    *done_ = false;
    work_->getFuture()->addCallback(
        [done = done_, waiting = waiting_](c10::ivalue::Future&) {
          std::lock_guard<std::mutex> lock(waiting->mutex);
          *done = true;
          waiting->changed.notify_all();
        });
  }

  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<Waiting> waiting_;
  // On a GPU the stream waits, and NCCL's own abort ends that.
  std::shared_ptr<bool> done_ = std::make_shared<bool>(true);
};

}  // namespace

struct ProcessGroup::Impl {
  BackendPointer backend;
  at::Device device{at::kCPU};
  bool on_host = true;
  std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();

  bool aborted() const {
    std::lock_guard<std::mutex> lock(waiting->mutex);
    return waiting->aborted;
  }
  std::unique_ptr<Pending> Watch(c10::intrusive_ptr<c10d::Work> work) const {
    return std::make_unique<PendingWork>(std::move(work), waiting, on_host);
  }
  absl::Status BroadcastOne(at::Tensor tensor, int root);
  absl::Status BroadcastAll(const std::vector<at::Tensor>& tensors, int root);
  absl::Status BroadcastFlat(const std::vector<at::Tensor>& tensors, int root);
};

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl, int world_size)
    : impl_(std::move(impl)), world_size_(world_size) {}

ProcessGroup::~ProcessGroup() {
  if (impl_->aborted()) {
    // Its threads may still wait for a rank that is gone, and its destructor
    // for them: it is left to them and the process's end.
    [[maybe_unused]] auto* left = impl_->backend.release();
    return;
  }
  CatchAsStatus("leaving the process group", [this] {
    impl_->backend.reset();
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status ProcessGroup::Synchronize() {
  GAVEL_RETURN_IF_ERROR(gavel::Synchronize(impl_->device));
  return impl_->aborted() ? Aborted() : absl::OkStatus();
}

absl::Status ProcessGroup::Finish(double timeout_s) {
  if (timeout_s <= 0) return Shutdown();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread watch([&] {
    std::unique_lock<std::mutex> lock(mutex);
    if (!changed.wait_for(lock, ToMilliseconds(timeout_s),
                          [&] { return done; })) {
      Abort();
    }
  });
  absl::Status status = Shutdown();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_all();
  }
  watch.join();
  return status;
}

absl::Status ProcessGroup::Shutdown() {
  GAVEL_RETURN_IF_ERROR(Synchronize());
  if (impl_->on_host) return absl::OkStatus();
  return CatchAsUnavailable("leaving the process group", [this] {
    impl_->backend->shutdown();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Create(
    GangStore& store, const ProcessGroupOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->device = options.device;
  impl->on_host = options.device.is_cpu();
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable(
      StrCat("making a process group of ", options.world_size, " workers"),
      [&]() -> absl::Status {
        // A connection of its own: coming together waits on it.
        auto prefixed = c10::make_intrusive<c10d::PrefixStore>(
            options.prefix, store.impl_->store->clone());
        prefixed->setTimeout(ToMilliseconds(options.timeout_s));
        GAVEL_ASSIGN_OR_RETURN(impl->backend, MakeBackend(prefixed, options));
        return absl::OkStatus();
      }));
  return std::unique_ptr<ProcessGroup>(
      new ProcessGroup(std::move(impl), options.world_size));
}

absl::StatusOr<std::unique_ptr<ProcessGroup::Pending>> ProcessGroup::AllReduce(
    at::Tensor tensor, Reduction reduction) {
  GAVEL_RETURN_IF_ERROR(CheckReducible(tensor.scalar_type()));
  if (impl_->aborted()) return Aborted();
  std::unique_ptr<Pending> pending;
  GAVEL_RETURN_IF_ERROR(CatchAsUnavailable("reducing over the gang", [&] {
    std::vector<at::Tensor> tensors = {std::move(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = reduction == Reduction::kSum   ? c10d::ReduceOp::SUM
                       : reduction == Reduction::kMin ? c10d::ReduceOp::MIN
                                                      : c10d::ReduceOp::MAX;
    pending = impl_->Watch(impl_->backend->allreduce(tensors, options));
    return absl::OkStatus();
  }));
  return pending;
}

absl::Status ProcessGroup::Impl::BroadcastOne(at::Tensor tensor, int root) {
  std::vector<at::Tensor> one = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return Watch(backend->broadcast(one, options))->Wait();
}

// Sends large tensors one by one, and small ones together. The copy for that
// has at most kBroadcastCopyBytesMax, however large the model is.
absl::Status ProcessGroup::Impl::BroadcastAll(
    const std::vector<at::Tensor>& tensors, int root) {
  std::vector<at::Tensor> small;
  int64_t size_bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes >= kBroadcastCopyBytesMax && tensor.is_contiguous()) {
      GAVEL_RETURN_IF_ERROR(BroadcastOne(tensor.detach(), root));
      continue;
    }
    if (!small.empty() && size_bytes + bytes > kBroadcastCopyBytesMax) {
      GAVEL_RETURN_IF_ERROR(BroadcastFlat(small, root));
      small.clear();
      size_bytes = 0;
    }
    small.push_back(tensor);
    size_bytes += bytes;
  }
  return small.empty() ? absl::OkStatus() : BroadcastFlat(small, root);
}

absl::Status ProcessGroup::Impl::BroadcastFlat(
    const std::vector<at::Tensor>& tensors, int root) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape(-1));
  const at::Tensor flat = at::cat(parts);
  GAVEL_RETURN_IF_ERROR(BroadcastOne(flat, root));
  int64_t from = 0;
  for (at::Tensor tensor : tensors) {
    tensor.copy_(flat.narrow(0, from, tensor.numel()).view(tensor.sizes()));
    from += tensor.numel();
  }
  return absl::OkStatus();
}

absl::Status ProcessGroup::Broadcast(const std::vector<at::Tensor>& tensors,
                                     int root) {
  if (impl_->aborted()) return Aborted();
  return CatchAsUnavailable("broadcasting to the gang", [&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) by_type[tensor.scalar_type()].push_back(tensor);
    }
    for (const auto& [type, same_type] : by_type) {
      GAVEL_RETURN_IF_ERROR(impl_->BroadcastAll(same_type, root));
    }
    return absl::OkStatus();
  });
}

void ProcessGroup::SetTimeout(double timeout_s) {
  impl_->backend->setTimeout(ToMilliseconds(timeout_s));
}

bool ProcessGroup::on_host() const { return impl_->on_host; }

bool ProcessGroup::aborted() const { return impl_->aborted(); }

void ProcessGroup::Abort() {
  {
    std::lock_guard<std::mutex> lock(impl_->waiting->mutex);
    if (std::exchange(impl_->waiting->aborted, true)) return;
    impl_->waiting->changed.notify_all();
  }
  if (impl_->on_host) return;
  CatchAsStatus("aborting the process group", [this] {
    impl_->backend->abort();
    return absl::OkStatus();
  }).IgnoreError();
}

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

// Puts a gradient into its bucket, or notes that the parameter has none.
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
