#include "runtime/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr size_t kDataAlignmentBytes = 64;
constexpr size_t kDimensionsMax = 64;

struct DtypeName {
  at::ScalarType dtype;
  std::string_view name;
};

constexpr DtypeName kDtypeNames[] = {
    {at::ScalarType::Double, "F64"},
    {at::ScalarType::Float, "F32"},
    {at::ScalarType::Half, "F16"},
    {at::ScalarType::BFloat16, "BF16"},
    {at::ScalarType::Float8_e5m2, "F8_E5M2"},
    {at::ScalarType::Float8_e4m3fn, "F8_E4M3"},
    {at::ScalarType::Long, "I64"},
    {at::ScalarType::Int, "I32"},
    {at::ScalarType::Short, "I16"},
    {at::ScalarType::Char, "I8"},
    {at::ScalarType::UInt64, "U64"},
    {at::ScalarType::UInt32, "U32"},
    {at::ScalarType::UInt16, "U16"},
    {at::ScalarType::Byte, "U8"},
    {at::ScalarType::Bool, "BOOL"},
};

std::optional<std::string_view> NameOfDtype(at::ScalarType dtype) {
  for (const DtypeName& entry : kDtypeNames) {
    if (entry.dtype == dtype) return entry.name;
  }
  return std::nullopt;
}

std::optional<at::ScalarType> DtypeOfName(std::string_view name) {
  for (const DtypeName& entry : kDtypeNames) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

absl::Status Corrupt(std::string_view what, std::string_view name = "") {
  if (name.empty()) {
    return absl::DataLossError(StrCat("safetensors header: ", what));
  }
  return absl::DataLossError(
      StrCat("safetensors header: tensor '", name, "' ", what));
}

absl::Status Refuse(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat("tensor '", name, "' cannot be checkpointed: ", what));
}

// Nothing when the product or one of its factors is too large for an int64_t.
std::optional<uint64_t> SizeInBytes(const TensorEntry& entry) {
  int64_t size = static_cast<int64_t>(c10::elementSize(entry.dtype));
  // A zero extent must not hide an overflow of the others.
  int64_t without_zeros = size;
  for (int64_t extent : entry.shape) {
    int64_t factor = std::max<int64_t>(extent, 1);
    if (__builtin_mul_overflow(without_zeros, factor, &without_zeros)) {
      return std::nullopt;
    }
    size = extent == 0 ? 0 : size;
  }
  return static_cast<uint64_t>(size == 0 ? 0 : without_zeros);
}

// A non-negative JSON integer that fits an int64_t.
std::optional<int64_t> AsExtent(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

absl::Status DecodeShape(const Json& shape, TensorEntry* entry) {
  if (!shape.is_array() || shape.size() > kDimensionsMax) {
    return Corrupt("has no valid shape", entry->name);
  }
  for (const Json& extent : shape) {
    std::optional<int64_t> value = AsExtent(extent);
    if (!value) return Corrupt("has an invalid shape", entry->name);
    entry->shape.push_back(*value);
  }
  return absl::OkStatus();
}

absl::Status DecodeOffsets(const Json& offsets, TensorEntry* entry) {
  if (!offsets.is_array() || offsets.size() != 2) {
    return Corrupt("has no valid data_offsets", entry->name);
  }
  std::optional<int64_t> begin = AsExtent(offsets[0]);
  std::optional<int64_t> end = AsExtent(offsets[1]);
  if (!begin || !end || *begin > *end) {
    return Corrupt("has invalid data_offsets", entry->name);
  }
  entry->begin = static_cast<uint64_t>(*begin);
  entry->end = static_cast<uint64_t>(*end);
  return absl::OkStatus();
}

absl::StatusOr<TensorEntry> DecodeEntry(const std::string& name,
                                        const Json& value) {
  TensorEntry entry;
  entry.name = name;
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Corrupt("has not exactly dtype, shape, data_offsets", name);
  }
  if (!value["dtype"].is_string()) return Corrupt("has no valid dtype", name);
  const std::string& dtype_name = value["dtype"].get_ref<const std::string&>();
  std::optional<at::ScalarType> dtype = DtypeOfName(dtype_name);
  if (!dtype) {
    return Corrupt(StrCat("has the unknown dtype ", dtype_name), name);
  }
  entry.dtype = *dtype;
  absl::Status status = DecodeShape(value["shape"], &entry);
  if (status.ok()) status = DecodeOffsets(value["data_offsets"], &entry);
  if (!status.ok()) return status;
  if (SizeInBytes(entry) != entry.end - entry.begin) {
    return Corrupt("has another size than its dtype and shape say", name);
  }
  return entry;
}

absl::Status DecodeMetadata(const Json& value,
                            std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) return Corrupt("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return Corrupt("__metadata__ has a non-string");
    metadata->emplace(key, text.get<std::string>());
  }
  return absl::OkStatus();
}

// Sorts by place; each tensor must begin where the one before it ends.
absl::Status CheckCoverage(uint64_t data_size_bytes,
                           std::vector<TensorEntry>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  uint64_t end = 0;
  for (const TensorEntry& entry : *tensors) {
    if (entry.begin != end) {
      return Corrupt("overlaps another or leaves a gap", entry.name);
    }
    end = entry.end;
  }
  if (end != data_size_bytes) {
    return Corrupt(StrCat("describes ", end, " bytes of data, the file ",
                          "has ", data_size_bytes));
  }
  return absl::OkStatus();
}

absl::Status DecodeJson(const Json& json, SafetensorsHeader* header) {
  if (!json.is_object()) return Corrupt("is not a JSON object");
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      absl::Status status = DecodeMetadata(value, &header->metadata);
      if (!status.ok()) return status;
      continue;
    }
    absl::StatusOr<TensorEntry> entry = DecodeEntry(name, value);
    if (!entry.ok()) return entry.status();
    header->tensors.push_back(*std::move(entry));
  }
  return absl::OkStatus();
}

Json EncodeJson(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) {
    json[std::string(kMetadataKey)] = header.metadata;
  }
  for (const TensorEntry& entry : header.tensors) {
    json[entry.name] = {
        {"dtype", *NameOfDtype(entry.dtype)},
        {"shape", entry.shape},
        {"data_offsets", {entry.begin, entry.end}},
    };
  }
  return json;
}

}  // namespace

absl::Status CheckStorable(std::string_view name, const at::Tensor& tensor) {
  if (name.empty() || name == kMetadataKey) {
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
  if (tensor.is_complex()) {
    return Refuse(name,
                  "safetensors has no complex numbers; track "
                  "torch::view_as_real of it");
  }
  if (!NameOfDtype(tensor.scalar_type())) {
    return Refuse(name, StrCat("safetensors has no dtype for ",
                               c10::toString(tensor.scalar_type()),
                               "; convert it first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodeSafetensorsHeader(
    const SafetensorsHeader& header) {
  std::string text;
  absl::Status status =
      internal::CatchAsStatus("tensor names are not valid UTF-8", [&] {
        text = EncodeJson(header).dump();
        return absl::OkStatus();
      });
  if (!status.ok()) return absl::InvalidArgumentError(status.message());
  const size_t size = kSafetensorsLengthBytes + text.size();
  text.append(
      (kDataAlignmentBytes - size % kDataAlignmentBytes) % kDataAlignmentBytes,
      ' ');
  if (text.size() > kSafetensorsHeaderBytesMax) {
    return absl::InvalidArgumentError(
        StrCat("the names of ", header.tensors.size(), " tensors take ",
               text.size(), " bytes, over the limit of one shard (",
               kSafetensorsHeaderBytesMax, "); lower shard_size_bytes_max"));
  }
  std::string bytes;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    bytes.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  }
  return bytes + text;
}

absl::StatusOr<uint64_t> DecodeSafetensorsHeaderLength(
    std::string_view bytes, uint64_t file_size_bytes) {
  if (bytes.size() < kSafetensorsLengthBytes) {
    return Corrupt("the file is shorter than a header's length");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    uint64_t byte = static_cast<unsigned char>(bytes[i]);
    length |= byte << (8 * i);
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return Corrupt(StrCat("length ", length, " is over the limit"));
  }
  if (length + kSafetensorsLengthBytes > file_size_bytes) {
    return Corrupt(StrCat("length ", length, " is beyond the file"));
  }
  return length;
}

absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(
    std::string_view json, uint64_t data_size_bytes) {
  SafetensorsHeader header;
  absl::Status status = internal::CatchAsStatus("safetensors header", [&] {
    Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded()) return Corrupt("is not valid JSON");
    absl::Status decoded = DecodeJson(parsed, &header);
    if (!decoded.ok()) return decoded;
    return CheckCoverage(data_size_bytes, &header.tensors);
  });
  if (!status.ok()) return status;
  return header;
}

}  // namespace gavel
