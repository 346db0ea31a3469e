#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same checksums, by AVX2 or AVX-512 if there
#endif

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

namespace gavel {
namespace {

// XXH3-64 over parts.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState(), &XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void Add(const void* data, size_t size) {
    XXH3_64bits_update(state_.get(), data, size);
  }
  void Add(std::string_view text) { Add(text.data(), text.size()); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

uint64_t ChecksumOf(const TensorEntry& entry, const char* data) {
  Checksum checksum;
  std::string kind = c10::toString(entry.dtype);
  for (int64_t extent : entry.shape) StrAppend(&kind, " ", extent);
  checksum.Add(kind);
  checksum.Add(data, entry.end - entry.begin);
  return checksum.value();
}

void SortByName(std::vector<TensorChecksum>* checksums) {
  std::sort(checksums->begin(), checksums->end(),
            [](const TensorChecksum& a, const TensorChecksum& b) {
              return a.name < b.name;
            });
}

uint64_t SizeInBytes(const TensorEntry& entry) {
  uint64_t size = c10::elementSize(entry.dtype);
  for (int64_t extent : entry.shape) size *= static_cast<uint64_t>(extent);
  return size;
}

at::Tensor ViewOf(const TensorEntry& entry, char* data,
                  const std::shared_ptr<void>& owner) {
  const auto options = at::device(at::kCPU).dtype(entry.dtype);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  return at::from_blob(
      data, entry.shape, [owner](void*) {}, options);
}

// Data that another program wrote need not be aligned for its dtype.
bool IsAligned(const char* data, at::ScalarType dtype) {
  return reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) == 0;
}

absl::StatusOr<ShardLayout> DecodeLayout(const char* file,
                                         uint64_t size_bytes) {
  const std::string_view length_bytes(
      file, std::min(kSafetensorsLengthBytes, size_bytes));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t length, DecodeSafetensorsHeaderLength(
                                                    length_bytes, size_bytes));
  const uint64_t data_begin = kSafetensorsLengthBytes + length;
  ShardLayout layout;
  layout.encoded_header.assign(file, data_begin);
  layout.size_bytes = size_bytes;
  const std::string_view json(file + kSafetensorsLengthBytes, length);
  GAVEL_ASSIGN_OR_RETURN(
      layout.header, DecodeSafetensorsHeader(json, size_bytes - data_begin));
  return layout;
}

}  // namespace

absl::StatusOr<ShardLayout> LayOutShard(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              const auto a_size = c10::elementSize(a.dtype);
              const auto b_size = c10::elementSize(b.dtype);
              return a_size != b_size ? a_size > b_size : a.name < b.name;
            });
  uint64_t offset = 0;
  for (TensorEntry& entry : tensors) {
    entry.begin = offset;
    offset += SizeInBytes(entry);
    entry.end = offset;
  }
  ShardLayout layout;
  layout.header = {std::move(tensors), metadata};
  GAVEL_ASSIGN_OR_RETURN(layout.encoded_header,
                         EncodeSafetensorsHeader(layout.header));
  layout.size_bytes = layout.encoded_header.size() + offset;
  return layout;
}

ShardSummary SummarizeShard(const ShardLayout& layout, const char* file) {
  ShardSummary summary;
  summary.size_bytes = layout.size_bytes;
  Checksum checksum;
  checksum.Add(layout.encoded_header);
  for (size_t i = 0; i < layout.header.tensors.size(); ++i) {
    const TensorEntry& entry = layout.header.tensors[i];
    const uint64_t value = ChecksumOf(entry, file + layout.TensorOffset(i));
    checksum.Add(&value, sizeof(value));
    summary.tensors.push_back({entry.name, value});
  }
  summary.checksum = checksum.value();
  SortByName(&summary.tensors);
  return summary;
}

absl::StatusOr<Shard> DecodeShard(char* file, uint64_t size_bytes,
                                  std::shared_ptr<void> owner,
                                  ShardChecksum kind) {
  GAVEL_ASSIGN_OR_RETURN(ShardLayout layout, DecodeLayout(file, size_bytes));
  Shard shard;
  shard.summary = SummarizeShard(layout, file);
  if (kind == ShardChecksum::kAllBytes) {
    shard.summary.checksum = XXH3_64bits(file, size_bytes);
  }
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
