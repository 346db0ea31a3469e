#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "core/text.h"
#include "runtime/torch_errors.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

namespace gavel {
namespace {

using internal::CatchAsStatus;

// XXH3-64 over parts.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState(), &XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void Add(std::string_view data) {
    XXH3_64bits_update(state_.get(), data.data(), data.size());
  }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

std::string_view DataOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

uint64_t ChecksumOf(const TensorEntry& entry, std::string_view data) {
  Checksum checksum;
  std::string kind = c10::toString(entry.dtype);
  for (int64_t extent : entry.shape) StrAppend(&kind, " ", extent);
  checksum.Add(kind);
  checksum.Add(data);
  return checksum.value();
}

void SortByName(std::vector<TensorChecksum>* checksums) {
  std::sort(checksums->begin(), checksums->end(),
            [](const TensorChecksum& a, const TensorChecksum& b) {
              return a.name < b.name;
            });
}

// Tensors in the order in which they are stored.
std::vector<NamedTensor> InStorageOrder(std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> order(tensors.begin(), tensors.end());
  std::sort(order.begin(), order.end(),
            [](const NamedTensor& a, const NamedTensor& b) {
              auto a_size = a.second.element_size();
              auto b_size = b.second.element_size();
              return a_size != b_size ? a_size > b_size : a.first < b.first;
            });
  return order;
}

absl::StatusOr<SafetensorsHeader> HeaderOf(
    const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    TensorEntry entry{name, tensor.scalar_type(), tensor.sizes().vec(), offset,
                      0};
    // nbytes() of an expanded tensor is that of its elements, as stored here.
    offset += tensor.nbytes();
    entry.end = offset;
    header.tensors.push_back(std::move(entry));
  }
  return header;
}

absl::Status CheckAllStorable(std::span<const NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    absl::Status status = CheckStorable(name, tensor);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AppendTensors(const std::vector<NamedTensor>& tensors,
                           const SafetensorsHeader& header, WritableFile& file,
                           Checksum* checksum, ShardSummary* summary) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor host =
        tensors[i].second.detach().resolve_neg().to(at::kCPU).contiguous();
    std::string_view data = DataOf(host);
    checksum->Add(data);
    summary->tensors.push_back(
        {tensors[i].first, ChecksumOf(header.tensors[i], data)});
    absl::Status status = file.Append(data);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WriteContents(const std::vector<NamedTensor>& tensors,
                           const SafetensorsHeader& header, WritableFile& file,
                           ShardSummary* summary) {
  absl::StatusOr<std::string> encoded = EncodeSafetensorsHeader(header);
  if (!encoded.ok()) return encoded.status();
  Checksum checksum;
  checksum.Add(*encoded);
  absl::Status status = file.Append(*encoded);
  if (status.ok()) {
    status = AppendTensors(tensors, header, file, &checksum, summary);
  }
  if (status.ok()) status = file.Sync();
  if (status.ok()) status = file.Close();
  uint64_t data_size = header.tensors.empty() ? 0 : header.tensors.back().end;
  summary->size_bytes = encoded->size() + data_size;
  summary->checksum = checksum.value();
  SortByName(&summary->tensors);
  return status;
}

absl::Status WriteShardTo(FileSystem& file_system, const std::string& path,
                          std::span<const NamedTensor> tensors,
                          const std::map<std::string, std::string>& metadata,
                          ShardSummary* summary) {
  absl::Status status = CheckAllStorable(tensors);
  if (!status.ok()) return status;
  std::vector<NamedTensor> order = InStorageOrder(tensors);
  absl::StatusOr<SafetensorsHeader> header = HeaderOf(order, metadata);
  if (!header.ok()) return header.status();
  absl::StatusOr<std::unique_ptr<WritableFile>> file =
      file_system.CreateFile(path);
  if (!file.ok()) return file.status();
  return WriteContents(order, *header, **file, summary);
}

absl::StatusOr<SafetensorsHeader> ReadHeader(ReadableFile& file,
                                             uint64_t* data_begin,
                                             Checksum* checksum) {
  std::string length_bytes(std::min(kSafetensorsLengthBytes, file.size_bytes()),
                           '\0');
  absl::Status status = file.Read(0, length_bytes.data(), length_bytes.size());
  if (!status.ok()) return status;
  absl::StatusOr<uint64_t> length =
      DecodeSafetensorsHeaderLength(length_bytes, file.size_bytes());
  if (!length.ok()) return length.status();
  std::string json(*length, '\0');
  status = file.Read(kSafetensorsLengthBytes, json.data(), json.size());
  if (!status.ok()) return status;
  checksum->Add(length_bytes);
  checksum->Add(json);
  *data_begin = kSafetensorsLengthBytes + *length;
  return DecodeSafetensorsHeader(json, file.size_bytes() - *data_begin);
}

// The header was checked against the file's size, so what is allocated here is
// bounded by the file.
absl::Status ReadTensors(ReadableFile& file, uint64_t data_begin,
                         const SafetensorsHeader& header, Checksum* checksum,
                         Shard* shard) {
  for (const TensorEntry& entry : header.tensors) {
    at::Tensor tensor =
        at::empty(entry.shape, at::device(at::kCPU).dtype(entry.dtype));
    std::string_view data = DataOf(tensor);
    absl::Status status =
        file.Read(data_begin + entry.begin,
                  static_cast<char*>(tensor.mutable_data_ptr()), data.size());
    if (!status.ok()) return status;
    checksum->Add(data);
    shard->summary.tensors.push_back({entry.name, ChecksumOf(entry, data)});
    shard->tensors.emplace_back(entry.name, std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ReadShardFrom(FileSystem& file_system, const std::string& path,
                           Shard* shard) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file =
      file_system.OpenFile(path);
  if (!file.ok()) return file.status();
  Checksum checksum;
  uint64_t data_begin = 0;
  absl::StatusOr<SafetensorsHeader> header =
      ReadHeader(**file, &data_begin, &checksum);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        StrCat(path, ": ", header.status().message()));
  }
  absl::Status status =
      ReadTensors(**file, data_begin, *header, &checksum, shard);
  shard->metadata = std::move(header->metadata);
  shard->summary.size_bytes = (*file)->size_bytes();
  shard->summary.checksum = checksum.value();
  SortByName(&shard->summary.tensors);
  return status;
}

}  // namespace

absl::StatusOr<ShardSummary> WriteShard(
    FileSystem& file_system, const std::string& path,
    std::span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  ShardSummary summary;
  absl::Status status = CatchAsStatus(StrCat("writing ", path), [&] {
    return WriteShardTo(file_system, path, tensors, metadata, &summary);
  });
  if (!status.ok()) return status;
  return summary;
}

absl::StatusOr<Shard> ReadShard(FileSystem& file_system,
                                const std::string& path) {
  Shard shard;
  absl::Status status = CatchAsStatus(StrCat("reading ", path), [&] {
    return ReadShardFrom(file_system, path, &shard);
  });
  if (!status.ok()) return status;
  return shard;
}

}  // namespace gavel
