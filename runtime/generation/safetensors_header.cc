#include "runtime/generation/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

using Json = nlohmann::json;

constexpr size_t kDataAlignmentBytes = 64;
constexpr size_t kDimensionsMax = 64;

struct DtypeRow {
  std::string_view name, torch_name;
  uint64_t size_bytes;
};

// In the order of Dtype.
constexpr DtypeRow kDtypes[] = {{"F64", "Double", 8},
                                {"F32", "Float", 4},
                                {"F16", "Half", 2},
                                {"BF16", "BFloat16", 2},
                                {"F8_E5M2", "Float8_e5m2", 1},
                                {"F8_E4M3", "Float8_e4m3fn", 1},
                                {"I64", "Long", 8},
                                {"I32", "Int", 4},
                                {"I16", "Short", 2},
                                {"I8", "Char", 1},
                                {"U64", "UInt64", 8},
                                {"U32", "UInt32", 4},
                                {"U16", "UInt16", 2},
                                {"U8", "Byte", 1},
                                {"BOOL", "Bool", 1},
                                {"C64", "ComplexFloat", 8}};

const DtypeRow& RowOf(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

absl::Status Corrupt(std::string_view what, std::string_view name = "") {
  if (name.empty()) {
    return absl::DataLossError(StrCat("safetensors header: ", what));
  }
  return absl::DataLossError(
      StrCat("safetensors header: tensor '", name, "' ", what));
}

// Nothing when the product or one of its factors is too large for an int64_t.
std::optional<uint64_t> ShapeBytes(const TensorEntry& entry) {
  int64_t size = static_cast<int64_t>(SizeOfDtype(entry.dtype));
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
  std::optional<Dtype> dtype = DtypeOfName(dtype_name);
  if (!dtype) {
    return Corrupt(StrCat("has the unknown dtype ", dtype_name), name);
  }
  entry.dtype = *dtype;
  GAVEL_RETURN_IF_ERROR(DecodeShape(value["shape"], &entry));
  GAVEL_RETURN_IF_ERROR(DecodeOffsets(value["data_offsets"], &entry));
  if (ShapeBytes(entry) != entry.end - entry.begin) {
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
  std::sort(tensors->begin(), tensors->end(), IsStoredBefore);
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
    if (name == kSafetensorsMetadataKey) {
      GAVEL_RETURN_IF_ERROR(DecodeMetadata(value, &header->metadata));
      continue;
    }
    GAVEL_ASSIGN_OR_RETURN(TensorEntry entry, DecodeEntry(name, value));
    header->tensors.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

Json EncodeJson(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) {
    json[std::string(kSafetensorsMetadataKey)] = header.metadata;
  }
  for (const TensorEntry& entry : header.tensors) {
    json[entry.name] = {
        {"dtype", NameOfDtype(entry.dtype)},
        {"shape", entry.shape},
        {"data_offsets", {entry.begin, entry.end}},
    };
  }
  return json;
}

}  // namespace

std::string_view NameOfDtype(Dtype dtype) { return RowOf(dtype).name; }

std::optional<Dtype> DtypeOfName(std::string_view name) {
  const auto* const row = std::ranges::find(kDtypes, name, &DtypeRow::name);
  if (row == std::end(kDtypes)) return std::nullopt;
  return static_cast<Dtype>(row - std::begin(kDtypes));
}

std::string_view TorchNameOfDtype(Dtype dtype) {
  return RowOf(dtype).torch_name;
}

uint64_t SizeOfDtype(Dtype dtype) { return RowOf(dtype).size_bytes; }

bool IsStoredBefore(const TensorEntry& a, const TensorEntry& b) {
  return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
}

absl::StatusOr<std::string> EncodeSafetensorsHeader(
    const SafetensorsHeader& header) {
  std::string text;
  try {
    text = EncodeJson(header).dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        StrCat("tensor names are not valid UTF-8: ", error.what()));
  }
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
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return Corrupt("is not valid JSON");
  GAVEL_RETURN_IF_ERROR(DecodeJson(parsed, &header));
  GAVEL_RETURN_IF_ERROR(CheckCoverage(data_size_bytes, &header.tensors));
  return header;
}

}  // namespace gavel
