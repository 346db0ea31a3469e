#include "runtime/generation/safetensors_files.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/text.h"

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same checksums, by AVX2 or AVX-512 if there
#endif
static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

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

// Begins with dtype and shape; the data follows.
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

  // Begins the next tensor that has bytes; empty ones before it end at once.
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

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// Caches of downloaded models consist of links, which FileSystem refuses.
absl::StatusOr<std::string> Resolve(const std::string& path) {
  std::error_code error;
  std::string resolved = std::filesystem::canonical(path, error).string();
  if (!error) return resolved;
  return absl::NotFoundError(
      StrCat(path, " can't be opened: ", error.message(), "; give the path of",
             " a .safetensors file, an index, or the folder of one"));
}

absl::StatusOr<std::string> FindIn(const std::string& folder) {
  for (const std::string_view name : {kSingleFile, kIndexFile}) {
    const std::string path = StrCat(folder, "/", name);
    std::error_code none;
    if (std::filesystem::exists(path, none)) return path;
  }
  return absl::NotFoundError(StrCat(folder, " has neither ", kSingleFile,
                                    " nor ", kIndexFile,
                                    "; give the path of the file"));
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> DecodeSafetensorsIndex(
    std::string_view json) {
  const auto index = nlohmann::json::parse(json, nullptr,
                                           /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return absl::DataLossError(
        "it is not an index of safetensors files: it has no weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      return absl::DataLossError(
          StrCat("weight_map has no file name for '", name, "'"));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

absl::StatusOr<SafetensorsFiles> SafetensorsFiles::Open(
    FileSystem& file_system, const std::string& path) {
  std::string found = path;
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    GAVEL_ASSIGN_OR_RETURN(found, FindIn(path));
  }
  SafetensorsFiles files;
  if (std::string_view(found).ends_with(".json")) {
    GAVEL_RETURN_IF_ERROR(files.OpenShards(file_system, found));
  } else {
    GAVEL_RETURN_IF_ERROR(files.OpenFile(file_system, found));
  }
  return files;
}

absl::Status SafetensorsFiles::OpenShards(FileSystem& file_system,
                                          const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  GAVEL_ASSIGN_OR_RETURN(
      const std::string json,
      ReadWholeFile(file_system, resolved, kSafetensorsIndexBytesMax));
  const auto index = DecodeSafetensorsIndex(json);
  if (!index.ok()) return Annotate(index.status(), path);
  // The shards are in the folder of `path` itself, even if `path` is a link to
  // another folder.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::set<std::string> names;
  for (const auto& [tensor, file] : *index) names.insert(file);
  for (const std::string& name : names) {
    if (name.empty() || name == "." || name == ".." ||
        name.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          StrCat(path, " names the shard '", name,
                 "', which is not a file of its own folder; put all shards "
                 "beside the index"));
    }
    GAVEL_RETURN_IF_ERROR(OpenFile(
        file_system, folder.empty() ? name : StrCat(folder, "/", name)));
  }
  for (const auto& [tensor, file] : *index) {
    const auto found = file_of_.find(tensor);
    if (found != file_of_.end() &&
        std::filesystem::path(files_[found->second].path).filename() == file) {
      continue;
    }
    return absl::DataLossError(
        StrCat(path, " says that '", tensor, "' is in ", file,
               ", which does not have it; fetch the model again"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFiles::OpenFile(FileSystem& file_system,
                                        const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  GAVEL_ASSIGN_OR_RETURN(std::shared_ptr<ReadableFile> file,
                         file_system.OpenFile(resolved, FileAccess::kBuffered));
  const uint64_t size_bytes = file->size_bytes();
  std::string bytes(kSafetensorsLengthBytes, '\0');
  if (size_bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(StrCat(path, " has ", size_bytes,
                                      " bytes, so it is no safetensors file"));
  }
  GAVEL_RETURN_IF_ERROR(file->Read(0, bytes.data(), bytes.size()));
  const absl::StatusOr<uint64_t> length =
      DecodeSafetensorsHeaderLength(bytes, size_bytes);
  if (!length.ok()) return Annotate(length.status(), path);
  bytes.assign(*length, '\0');
  GAVEL_RETURN_IF_ERROR(
      file->Read(kSafetensorsLengthBytes, bytes.data(), bytes.size()));
  const uint64_t data_offset = kSafetensorsLengthBytes + *length;
  absl::StatusOr<SafetensorsHeader> header =
      DecodeSafetensorsHeader(bytes, size_bytes - data_offset);
  if (!header.ok()) return Annotate(header.status(), path);
  for (TensorEntry& tensor : header->tensors) {
    const auto [place, is_new] = file_of_.emplace(tensor.name, files_.size());
    if (!is_new) {
      return absl::DataLossError(
          StrCat(path, " and ", files_[place->second].path, " both have '",
                 tensor.name, "'; fetch the model again"));
    }
    tensors_[tensor.name] = std::move(tensor);
  }
  files_.push_back({path, std::move(file), data_offset});
  return absl::OkStatus();
}

absl::Status SafetensorsFiles::Read(const TensorEntry& tensor,
                                    char* data) const {
  const File& file = files_[file_of_.at(tensor.name)];
  return file.file->Read(file.data_offset + tensor.begin, data,
                         tensor.end - tensor.begin);
}

}  // namespace gavel
