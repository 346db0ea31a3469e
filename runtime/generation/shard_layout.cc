#include "runtime/generation/shard_layout.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same checksums, by AVX2 or AVX-512 if there
#endif

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"

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

// Of dtype and shape; the data follows.
Checksum BeginChecksum(const TensorEntry& entry) {
  Checksum checksum;
  std::string kind(TorchNameOfDtype(entry.dtype));
  for (int64_t extent : entry.shape) StrAppend(&kind, " ", extent);
  checksum.Add(kind);
  return checksum;
}

uint64_t ChecksumOf(const TensorEntry& entry, const char* data) {
  Checksum checksum = BeginChecksum(entry);
  checksum.Add(data, entry.end - entry.begin);
  return checksum.value();
}

void SortByName(std::vector<TensorChecksum>* checksums) {
  std::ranges::sort(*checksums, {}, &TensorChecksum::name);
}

uint64_t SizeInBytes(const TensorEntry& entry) {
  uint64_t size = SizeOfDtype(entry.dtype);
  for (int64_t extent : entry.shape) size *= static_cast<uint64_t>(extent);
  return size;
}

}  // namespace

absl::StatusOr<ShardLayout> LayOutShard(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              const auto a_size = SizeOfDtype(a.dtype);
              const auto b_size = SizeOfDtype(b.dtype);
              return a_size != b_size ? a_size > b_size : a.name < b.name;
            });
  uint64_t offset = 0;
  for (TensorEntry& entry : tensors) {
    entry.begin = offset;
    offset += SizeInBytes(entry);
    entry.end = offset;
  }
  // Empty ones of different sizes of elements can share a place.
  std::sort(tensors.begin(), tensors.end(), IsStoredBefore);
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

absl::StatusOr<ShardLayout> DecodeShardLayout(const char* file,
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

struct ShardSummer::State {
  uint64_t size_bytes = 0;
  ShardChecksum kind = ShardChecksum::kHeaderAndTensors;
  uint64_t seen_bytes = 0;
  std::string header;         // so far; whole when `header_bytes` long
  uint64_t header_bytes = 0;  // 0: its length is not yet known
  SafetensorsHeader decoded;
  ShardSummary summary;
  Checksum whole;                  // of what summary.checksum is made of
  std::optional<Checksum> tensor;  // of the one that is read
  uint64_t tensor_bytes_left = 0;

  absl::Status AddHeader(std::string_view* data) {
    const uint64_t wanted =
        header_bytes == 0 ? kSafetensorsLengthBytes : header_bytes;
    const std::string_view part = data->substr(0, wanted - header.size());
    header += part;
    data->remove_prefix(part.size());
    if (header.size() < wanted) return absl::OkStatus();
    if (header_bytes == 0) {
      GAVEL_ASSIGN_OR_RETURN(const uint64_t length,
                             DecodeSafetensorsHeaderLength(header, size_bytes));
      header_bytes = kSafetensorsLengthBytes + length;
      if (length > 0) return absl::OkStatus();
    }
    GAVEL_ASSIGN_OR_RETURN(
        decoded, DecodeSafetensorsHeader(
                     std::string_view(header).substr(kSafetensorsLengthBytes),
                     size_bytes - header_bytes));
    if (kind == ShardChecksum::kHeaderAndTensors) whole.Add(header);
    BeginTensor();
    return absl::OkStatus();
  }

  // And all behind it that are empty.
  void BeginTensor() {
    while (summary.tensors.size() < decoded.tensors.size()) {
      const TensorEntry& entry = decoded.tensors[summary.tensors.size()];
      tensor.emplace(BeginChecksum(entry));
      tensor_bytes_left = entry.end - entry.begin;
      if (tensor_bytes_left > 0) return;
      EndTensor();
    }
  }

  void EndTensor() {
    const uint64_t value = tensor->value();
    tensor.reset();
    if (kind == ShardChecksum::kHeaderAndTensors) {
      whole.Add(&value, sizeof(value));
    }
    summary.tensors.push_back(
        {decoded.tensors[summary.tensors.size()].name, value});
  }

  void AddTensor(std::string_view* data) {
    const std::string_view part = data->substr(0, tensor_bytes_left);
    tensor->Add(part);
    data->remove_prefix(part.size());
    tensor_bytes_left -= part.size();
    if (tensor_bytes_left > 0) return;
    EndTensor();
    BeginTensor();
  }
};

ShardSummer::ShardSummer(uint64_t size_bytes, ShardChecksum kind)
    : state_(std::make_unique<State>()) {
  state_->size_bytes = size_bytes;
  state_->kind = kind;
}

ShardSummer::~ShardSummer() = default;

absl::Status ShardSummer::Add(std::string_view data) {
  State& state = *state_;
  state.seen_bytes += data.size();
  if (state.seen_bytes > state.size_bytes) {
    return absl::DataLossError("shard: longer than it should be");
  }
  if (state.kind == ShardChecksum::kAllBytes) state.whole.Add(data);
  while (!data.empty()) {
    if (state.header_bytes == 0 || state.header.size() < state.header_bytes) {
      GAVEL_RETURN_IF_ERROR(state.AddHeader(&data));
    } else {
      state.AddTensor(&data);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardSummary> ShardSummer::Finish() {
  State& state = *state_;
  if (state.seen_bytes != state.size_bytes || state.header_bytes == 0 ||
      state.header.size() < state.header_bytes) {
    return absl::DataLossError("shard: shorter than it should be");
  }
  state.summary.size_bytes = state.size_bytes;
  state.summary.checksum = state.whole.value();
  SortByName(&state.summary.tensors);
  return std::move(state.summary);
}

absl::StatusOr<ShardSummary> SummarizeFile(const char* file,
                                           uint64_t size_bytes,
                                           ShardChecksum kind) {
  ShardSummer summer(size_bytes, kind);
  GAVEL_RETURN_IF_ERROR(summer.Add(std::string_view(file, size_bytes)));
  return summer.Finish();
}

}  // namespace gavel
