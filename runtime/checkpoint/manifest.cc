#include "runtime/checkpoint/manifest.h"

#include <xxhash.h>

#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using Json = nlohmann::json;

// 64-bit numbers as text: many readers of JSON round integers to doubles.
std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

absl::Status Corrupt(std::string_view what) {
  return absl::DataLossError(StrCat("manifest: ", what));
}

Json EncodeShard(size_t index, const ShardSummary& shard) {
  Json tensors = Json::array();
  for (const TensorChecksum& tensor : shard.tensors) {
    tensors.push_back({{"name", tensor.name}, {"xxh3", Hex(tensor.checksum)}});
  }
  return {{"file", ShardFileName(index)},
          {"size_bytes", shard.size_bytes},
          {"xxh3", Hex(shard.checksum)},
          {"tensors", std::move(tensors)}};
}

// Readers of `Json` below throw Json::exception on a missing key or a value of
// another type; DecodeManifest turns that into a Status.
uint64_t DecodeHex(const Json& value) {
  uint64_t number = 0;
  const std::string& text = value.get_ref<const std::string&>();
  if (text.size() != 16 || !absl::SimpleHexAtoi(text, &number)) {
    throw std::invalid_argument("not a checksum");
  }
  return number;
}

uint64_t DecodeUnsigned(const Json& value) {
  if (!value.is_number_unsigned()) {
    throw std::invalid_argument("not a number of zero or more");
  }
  return value.get<uint64_t>();
}

// A shard's name is never used as a path: it must be the one of its place.
ShardSummary DecodeShard(const Json& value, size_t index) {
  if (value.at("file") != ShardFileName(index)) {
    throw std::invalid_argument("unexpected name of a shard");
  }
  ShardSummary shard;
  shard.size_bytes = DecodeUnsigned(value.at("size_bytes"));
  shard.checksum = DecodeHex(value.at("xxh3"));
  for (const Json& tensor : value.at("tensors")) {
    shard.tensors.push_back(
        {tensor.at("name").get<std::string>(), DecodeHex(tensor.at("xxh3"))});
  }
  return shard;
}

Manifest DecodeBody(const Json& body) {
  Manifest manifest;
  manifest.generation = {DecodeUnsigned(body.at("epoch")),
                         DecodeUnsigned(body.at("step"))};
  uint64_t world_size = DecodeUnsigned(body.at("world_size"));
  if (world_size < 1 || world_size > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("world_size out of range");
  }
  manifest.world_size = static_cast<int>(world_size);
  const Json& shards = body.at("shards");
  if (!shards.is_array()) throw std::invalid_argument("shards is no list");
  for (const Json& shard : shards) {
    manifest.shards.push_back(DecodeShard(shard, manifest.shards.size()));
  }
  return manifest;
}

absl::Status CheckVersion(const Json& body) {
  uint64_t version = DecodeUnsigned(body.at("format_version"));
  if (version == kManifestFormatVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "checkpoint format version ", version, " is not known here (this Gavel ",
      "writes ", kManifestFormatVersion, "); use the version that wrote it"));
}

absl::Status Decode(std::string_view text, Manifest* manifest) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Corrupt("not valid JSON");
  // The dump of equal values is equal, so the checksum does not depend on how
  // the file is indented.
  const Json& body = json.at("body");
  std::string dump = body.dump();
  if (DecodeHex(json.at("xxh3")) != XXH3_64bits(dump.data(), dump.size())) {
    return Corrupt("its checksum does not match");
  }
  absl::Status version = CheckVersion(body);
  if (!version.ok()) return version;
  *manifest = DecodeBody(body);
  return absl::OkStatus();
}

std::map<std::string, uint64_t> ChecksumsByName(const Manifest& manifest) {
  std::map<std::string, uint64_t> checksums;
  for (const ShardSummary& shard : manifest.shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      checksums.emplace(tensor.name, tensor.checksum);
    }
  }
  return checksums;
}

}  // namespace

std::string ShardFileName(size_t index) {
  return absl::StrFormat("shard-%05d.safetensors", index);
}

bool IsShardFileName(std::string_view name) {
  constexpr std::string_view kPrefix = "shard-";
  size_t index = 0;
  return name.starts_with(kPrefix) &&
         absl::SimpleAtoi(ToAbsl(name.substr(kPrefix.size(),
                                             name.find('.') - kPrefix.size())),
                          &index) &&
         name == ShardFileName(index);
}

std::string EncodeManifest(const Manifest& manifest, int format_version) {
  Json shards = Json::array();
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    shards.push_back(EncodeShard(i, manifest.shards[i]));
  }
  Json body = {{"format_version", format_version},
               {"epoch", manifest.generation.epoch},
               {"step", manifest.generation.step},
               {"world_size", manifest.world_size},
               {"shards", std::move(shards)}};
  std::string dump = body.dump();
  uint64_t checksum = XXH3_64bits(dump.data(), dump.size());
  Json json = {{"body", std::move(body)}, {"xxh3", Hex(checksum)}};
  return json.dump(1) + "\n";
}

absl::StatusOr<Manifest> DecodeManifest(std::string_view text) {
  Manifest manifest;
  absl::Status status = internal::CatchAsStatus(
      "manifest", [&] { return Decode(text, &manifest); });
  // What the JSON accessors throw.
  if (absl::IsInternal(status)) return absl::DataLossError(status.message());
  if (!status.ok()) return status;
  return manifest;
}

std::vector<std::string> DifferingTensors(const Manifest& a,
                                          const Manifest& b) {
  std::map<std::string, uint64_t> others = ChecksumsByName(b);
  std::map<std::string, uint64_t> differing;
  for (const auto& [name, checksum] : ChecksumsByName(a)) {
    auto other = others.find(name);
    if (other == others.end() || other->second != checksum) {
      differing.emplace(name, checksum);
    }
    if (other != others.end()) others.erase(other);
  }
  differing.merge(others);
  std::vector<std::string> names;
  for (const auto& [name, checksum] : differing) names.push_back(name);
  return names;
}

}  // namespace gavel
