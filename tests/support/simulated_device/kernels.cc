// The operators of the simulated devices. They run the CPU's operators in the
// kernels' mapping of the memory.
//
// An operator that writes to existing tensors (in place, or to results whose
// shapes LibTorch knows before) is queued on the current stream and runs later.
// An operator that makes new tensors, whose shapes only the result tells, or
// that draws random numbers, whose order must not change, first waits for the
// current stream. So the bits are those of the CPU, and a missing
// synchronization with a copy, another stream or the host shows.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/simulated_device/allocator.h"
#include "tests/support/simulated_device/streams.h"

namespace gavel::simulated {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::HPU);

// The same memory, as the kernels see it. Does not keep the memory alive: a
// kernel that runs after its tensors are gone uses whatever is there then.
at::Tensor InKernel(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_hpu()) return tensor;
  return at::from_blob(KernelAddress(tensor.data_ptr()), tensor.sizes(),
                       tensor.strides(), tensor.options().device(at::kCPU));
}

c10::Stream StreamOf(const at::Tensor& tensor) {
  return CurrentStream(tensor.device().index());
}

// ---- making and viewing

at::Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &TheAllocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> type,
                        std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &TheAllocator(), kKeys,
                                           c10::dtype_or_default(type));
}

at::Tensor AsStrided(const at::Tensor& tensor, at::IntArrayRef size,
                     at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, offset);
}

at::Tensor View(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor ReshapeAlias(const at::Tensor& tensor, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      tensor.storage_offset());
}

// The old memory is freed at once, and its bytes are copied on the current
// stream.
const at::Tensor& Resize(const at::Tensor& tensor, c10::SymIntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!format.has_value(), "resize_ with a memory format");
  const at::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(sizes);
  const at::Storage& storage = tensor.storage();
  const auto bytes = static_cast<size_t>(c10::multiply_integers(size) +
                                         tensor.storage_offset()) *
                     tensor.itemsize();
  if (bytes > storage.nbytes()) {
    const c10::DeviceGuard guard(tensor.device());
    c10::DataPtr data = TheAllocator().allocate(bytes);
    if (storage.nbytes() > 0) {
      TheAllocator().copy_data(data.get(), storage.data(), storage.nbytes());
    }
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

at::Tensor& SetStorage(at::Tensor& tensor, at::Storage storage, int64_t offset,
                       at::IntArrayRef size, at::IntArrayRef stride) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return tensor;
}

at::Tensor& SetTensor(at::Tensor& tensor, const at::Tensor& source) {
  return SetStorage(tensor, source.storage(), source.storage_offset(),
                    source.sizes(), source.strides());
}

void RecordStream(at::Tensor& tensor, at::Stream stream) {
  TheAllocator().recordStream(tensor.storage().data_ptr(), stream);
}

at::Scalar LocalScalar(const at::Tensor& tensor) {
  Synchronize(StreamOf(tensor));
  return InKernel(tensor).item();
}

// ---- copies

// Counts a copy for the tests. Returns whether the host's part is in pinned
// memory.
bool CountCopy(const at::Tensor& on_host) {
  const bool is_pinned =
      on_host.is_contiguous()
          ? IsPinned(on_host.const_data_ptr(), on_host.nbytes())
          : IsPinned(on_host.const_data_ptr());
  ++TheCounts().copies;
  if (!is_pinned) TheCounts().unpinned_bytes += on_host.nbytes();
  return is_pinned;
}

// Like CUDA's, the copy runs asynchronously only where the host's memory is
// pinned.
void CopyToDevice(const at::Tensor& from, const at::Tensor& to,
                  bool non_blocking) {
  const bool is_pinned = CountCopy(from);
  // Pageable memory is copied at once; pinned memory is read later.
  const at::Tensor source = is_pinned ? from : from.clone();
  Enqueue(StreamOf(to),
          [source, target = InKernel(to)]() mutable { target.copy_(source); });
  if (!non_blocking) Synchronize(StreamOf(to));
}

void CopyToHost(const at::Tensor& from, const at::Tensor& to,
                bool non_blocking) {
  const bool is_pinned = CountCopy(to);
  Enqueue(StreamOf(from), [source = InKernel(from), target = to]() mutable {
    target.copy_(source);
  });
  if (!non_blocking || !is_pinned) Synchronize(StreamOf(from));
}

void CopyOnDevices(const at::Tensor& from, const at::Tensor& to) {
  const c10::Stream stream = StreamOf(from);
  const bool is_other_device = from.device() != to.device();
  if (is_other_device) {
    Event is_ready;
    is_ready.Record(StreamOf(to));
    is_ready.Block(stream);
  }
  Enqueue(stream, [source = InKernel(from), target = InKernel(to)]() mutable {
    target.copy_(source);
  });
  if (is_other_device) {
    Event is_copied;
    is_copied.Record(stream);
    is_copied.Block(StreamOf(to));
  }
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to,
                    bool non_blocking) {
  if (from.numel() == 0) return to;
  if (from.is_cpu()) {
    CopyToDevice(from, to, non_blocking);
  } else if (to.is_cpu()) {
    CopyToHost(from, to, non_blocking);
  } else {
    CopyOnDevices(from, to);
  }
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return CopyFrom(from, to, /*non_blocking=*/false);
}

// ---- all other operators

// The arguments of a call as the CPU's operator takes them.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op),
        stack_(stack),
        begin_(stack->size() - op.schema().arguments().size()) {
    for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
      at::IValue& value = (*stack)[begin_ + i];
      value = Convert(value, Writes(op.schema().arguments()[i]));
    }
    TORCH_CHECK(device_.has_value(), op.schema().operator_name(),
                ": of no simulated device");
  }

  void Run() {
    if (RunsLater()) {
      RunLater();
    } else {
      RunNow();
    }
  }

 private:
  struct Pair {
    at::Tensor on_device;
    at::Tensor in_kernel;
  };

  static bool Writes(const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  }

  at::Tensor ConvertTensor(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (tensor.is_cpu()) {
      TORCH_CHECK(!writes, op_.schema().operator_name(),
                  ": writes to host memory");
      // A number is passed along with the kernel. Other tensors on the host are
      // accepted only as indices.
      const std::string& name = op_.schema().name();
      TORCH_CHECK(
          tensor.dim() == 0 || name.find("index") != std::string::npos, name,
          ": all tensors have to be on the same device, one is in host memory");
      return tensor.clone();
    }
    TORCH_CHECK(tensor.is_hpu(), op_.schema().operator_name(), ": a tensor on ",
                tensor.device());
    TORCH_CHECK(!device_ || *device_ == tensor.device(),
                op_.schema().operator_name(), ": tensors on ", tensor.device(),
                " and ", *device_);
    device_ = tensor.device();
    // An empty result grows: it gets memory once its size is known.
    const bool grows = writes && tensor.numel() == 0;
    pairs_.push_back(
        {tensor, grows ? at::empty({0}, tensor.options().device(at::kCPU))
                       : InKernel(tensor)});
    if (writes) written_.push_back(tensor);
    return pairs_.back().in_kernel;
  }

  at::IValue Convert(const at::IValue& value, bool writes) {
    if (value.isTensor()) return ConvertTensor(value.toTensor(), writes);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(ConvertTensor(tensor, writes));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor :
           value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(ConvertTensor(*tensor, writes))
                              : tensor);
      }
      return list;
    }
    if (value.isDevice()) {
      device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    return value;
  }

  bool RunsLater() const {
    const size_t returns = op_.schema().returns().size();
    if (written_.empty() || (returns > 0 && returns != written_.size())) {
      return false;
    }
    for (const at::Tensor& tensor : written_) {
      if (tensor.numel() == 0) return false;
    }
    for (const c10::Argument& argument : op_.schema().arguments()) {
      if (argument.name() == "generator") return false;
    }
    for (const c10::Argument& result : op_.schema().returns()) {
      if (!Writes(result)) return false;
    }
    return true;
  }

  void RunLater() {
    const auto first = stack_->begin() + static_cast<std::ptrdiff_t>(begin_);
    auto arguments = std::make_shared<torch::jit::Stack>(first, stack_->end());
    stack_->erase(first, stack_->end());
    if (!op_.schema().returns().empty()) {
      for (const at::Tensor& tensor : written_) stack_->emplace_back(tensor);
    }
    Enqueue(CurrentStream(device_->index()), [op = op_, arguments] {
      const at::AutoDispatchBelowAutograd guard;
      // A copy, because results may refer to arguments that the call removes
      // from its stack.
      torch::jit::Stack stack = *arguments;
      op.callBoxed(&stack);
    });
  }

  void RunNow() {
    const c10::Stream stream = CurrentStream(device_->index());
    // These kernels, too, obey the faults and the slowness that a test has set
    // for the device.
    Enqueue(stream, [] {});
    Synchronize(stream);
    const std::vector<at::IValue> arguments(
        stack_->begin() + static_cast<std::ptrdiff_t>(begin_), stack_->end());
    op_.callBoxed(stack_);
    for (size_t i = begin_; i < stack_->size(); ++i) {
      (*stack_)[i] = ConvertBack((*stack_)[i]);
    }
  }

  static at::Tensor Grown(const Pair& pair) {
    if (pair.on_device.numel() == 0 && pair.in_kernel.numel() > 0) {
      pair.on_device.resize_(pair.in_kernel.sizes());
      InKernel(pair.on_device).copy_(pair.in_kernel);
    }
    return pair.on_device;
  }

  at::Tensor ConvertResult(const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const Pair& pair : pairs_) {
      if (result.is_same(pair.in_kernel)) return Grown(pair);
      if (result.has_storage() &&
          result.storage().data() == pair.in_kernel.storage().data() &&
          result.numel() > 0) {  // a view of it
        return pair.on_device.as_strided(
            result.sizes(), result.strides(),
            pair.on_device.storage_offset() + result.storage_offset());
      }
    }
    const c10::DeviceGuard guard(*device_);
    at::Tensor copy = at::empty_strided(result.sizes(), result.strides(),
                                        result.options().device(*device_));
    if (copy.numel() > 0) InKernel(copy).copy_(result);
    return copy;
  }

  at::IValue ConvertBack(const at::IValue& value) {
    if (value.isTensor()) return ConvertResult(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(ConvertResult(tensor));
      return list;
    }
    return value;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  size_t begin_;
  std::optional<at::Device> device_;
  std::vector<Pair> pairs_;
  std::vector<at::Tensor> written_;  // in the order of the arguments
};

void RunOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, stack).Run();
}

// Operators that LibTorch implements both for the CPU and for any device. The
// latter implementation would come before the fall-back and would round
// differently.
std::vector<c10::OperatorName> OfTheCpuAlone() {
  std::vector<c10::OperatorName> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        op->hasKernelForDispatchKey(
            c10::DispatchKey::CompositeExplicitAutograd)) {
      names.push_back(name);
    }
  }
  return names;
}

// ---- convolutions, which LibTorch leaves to the backend

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                       c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  Synchronize(StreamOf(input));
  const at::Tensor result = at::convolution(
      InKernel(input), InKernel(weight),
      bias ? std::optional(InKernel(*bias)) : bias,
      C10_AS_INTARRAYREF_SLOW(stride), C10_AS_INTARRAYREF_SLOW(padding),
      C10_AS_INTARRAYREF_SLOW(dilation), transposed,
      C10_AS_INTARRAYREF_SLOW(output_padding), groups.expect_int());
  return result.to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& gradient, const at::Tensor& input,
    const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> mask) {
  const at::Tensor dense = gradient.contiguous();
  Synchronize(StreamOf(input));
  const int64_t channels =
      weight.size(transposed ? 1 : 0) * (transposed ? groups.expect_int() : 1);
  auto [of_input, of_weight, of_bias] = at::convolution_backward(
      InKernel(dense), InKernel(input), InKernel(weight),
      at::OptionalIntArrayRef({channels}), C10_AS_INTARRAYREF_SLOW(stride),
      C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation),
      transposed, C10_AS_INTARRAYREF_SLOW(output_padding), groups.expect_int(),
      mask);
  const auto back = [device = input.device()](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device) : tensor;
  };
  return {back(of_input), back(of_weight), back(of_bias)};
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("as_strided", AsStrided);
  library.impl("view", View);
  library.impl("_reshape_alias", ReshapeAlias);
  library.impl("resize_", Resize);
  library.impl("set_.source_Storage_storage_offset", SetStorage);
  library.impl("set_.source_Tensor", SetTensor);
  library.impl("record_stream", RecordStream);
  library.impl("_local_scalar_dense", LocalScalar);
  library.impl("_copy_from", CopyFrom);
  library.impl("_copy_from_and_resize", CopyFromAndResize);
  library.impl("convolution_overrideable", Convolution);
  library.impl("convolution_backward_overrideable", ConvolutionBackward);
  for (const c10::OperatorName& name : OfTheCpuAlone()) {
    library.impl(c10::toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&RunOperator>());
  }
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOperator>());
}

}  // namespace
}  // namespace gavel::simulated
