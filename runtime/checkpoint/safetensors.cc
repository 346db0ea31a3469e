#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

struct DtypePair {
  at::ScalarType torch;
  Dtype stored;
};

constexpr DtypePair kDtypes[] = {
    {at::ScalarType::Double, Dtype::kF64},
    {at::ScalarType::Float, Dtype::kF32},
    {at::ScalarType::Half, Dtype::kF16},
    {at::ScalarType::BFloat16, Dtype::kBf16},
    {at::ScalarType::Float8_e5m2, Dtype::kF8E5m2},
    {at::ScalarType::Float8_e4m3fn, Dtype::kF8E4m3},
    {at::ScalarType::Long, Dtype::kI64},
    {at::ScalarType::Int, Dtype::kI32},
    {at::ScalarType::Short, Dtype::kI16},
    {at::ScalarType::Char, Dtype::kI8},
    {at::ScalarType::UInt64, Dtype::kU64},
    {at::ScalarType::UInt32, Dtype::kU32},
    {at::ScalarType::UInt16, Dtype::kU16},
    {at::ScalarType::Byte, Dtype::kU8},
    {at::ScalarType::Bool, Dtype::kBool},
    {at::ScalarType::ComplexFloat, Dtype::kC64},
};

// Every Dtype is in the table.
at::ScalarType TorchDtypeOf(Dtype dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.stored == dtype) return pair.torch;
  }
  return at::ScalarType::Undefined;
}

absl::Status Refuse(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat("tensor '", name, "' cannot be checkpointed: ", what));
}

at::Tensor ViewOf(const TensorEntry& entry, char* data,
                  const std::shared_ptr<void>& owner) {
  const auto options = at::device(at::kCPU).dtype(TorchDtypeOf(entry.dtype));
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  return at::from_blob(
      data, entry.shape, [owner](void*) {}, options);
}

// Data that another program wrote need not be aligned for its dtype.
bool IsAligned(const char* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % SizeOfDtype(dtype) == 0;
}

}  // namespace

std::optional<Dtype> DtypeOf(at::ScalarType dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.torch == dtype) return pair.stored;
  }
  return std::nullopt;
}

absl::Status CheckStorable(std::string_view name, const at::Tensor& tensor) {
  if (name.empty() || name == kSafetensorsMetadataKey) {
    return Refuse(name, "this name is reserved; give it another");
  }
  if (!tensor.defined()) {
    return Refuse(name, "it is undefined; track it after it got a value");
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    return Refuse(name,
                  "only dense, unquantized tensors can be stored; track its "
                  "parts (indices and values) or its dense form");
  }
  if (!DtypeOf(tensor.scalar_type())) {
    return Refuse(name, StrCat("safetensors has no dtype for ",
                               c10::toString(tensor.scalar_type()),
                               tensor.is_complex()
                                   ? "; make it torch::kComplexFloat, or track "
                                     "torch::view_as_real of it"
                                   : "; convert it first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Shard> DecodeShard(char* file, uint64_t size_bytes,
                                  std::shared_ptr<void> owner,
                                  ShardChecksum kind) {
  Shard shard;
  GAVEL_ASSIGN_OR_RETURN(shard.summary, SummarizeFile(file, size_bytes, kind));
  GAVEL_ASSIGN_OR_RETURN(ShardLayout layout,
                         DecodeShardLayout(file, size_bytes));
  absl::Status status = internal::CatchAsStatus("a restored tensor", [&] {
    for (size_t i = 0; i < layout.header.tensors.size(); ++i) {
      const TensorEntry& entry = layout.header.tensors[i];
      char* data = file + layout.TensorOffset(i);
      at::Tensor tensor = ViewOf(entry, data, owner);
      if (!IsAligned(data, entry.dtype)) tensor = tensor.clone();
      shard.tensors.emplace_back(entry.name, std::move(tensor));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  shard.metadata = std::move(layout.header.metadata);
  return shard;
}

}  // namespace gavel
