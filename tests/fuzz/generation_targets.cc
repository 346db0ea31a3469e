// Fuzz targets for checkpoints on disk: manifests, and headers of shards.
#include <xxhash.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/generation/manifest.h"
#include "runtime/generation/safetensors_files.h"
#include "tests/fuzz/targets.h"

namespace gavel::fuzz {
namespace {

using Json = nlohmann::json;

// Adds the correct checksum, which no fuzzer guesses, to the body of a
// manifest. Returns "" for text that is not JSON or is nested deeply:
// DecodeManifest refuses deep nesting, and Json::dump() must not see it.
std::string Sealed(std::string_view body_text) {
  constexpr int kDepthMax = 64;
  bool deep = false;
  const Json body = Json::parse(
      body_text,
      [&](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > kDepthMax;
        return !deep;
      },
      /*allow_exceptions=*/false);
  if (deep || body.is_discarded()) return "";
  const std::string dump = body.dump();
  char hex[17];
  std::snprintf(
      hex, sizeof(hex), "%016llx",
      static_cast<unsigned long long>(XXH3_64bits(dump.data(), dump.size())));
  return Json{{"body", body}, {"xxh3", hex}}.dump();
}

void RunManifestText(std::string_view text) {
  const absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  if (manifest.ok()) {
    const std::string written =
        EncodeManifest(*manifest, manifest->format_version);
    const absl::StatusOr<Manifest> again = DecodeManifest(written);
    Require(again.ok(), "a manifest that was encoded decodes");
    Require(EncodeManifest(*again, again->format_version) == written,
            "a manifest comes back the same");
    Require(DifferingTensors(*manifest, *again).empty(), "nothing differs");
  }
  const absl::StatusOr<ManifestPart> part = DecodePart(text);
  if (!part.ok()) return;
  const absl::StatusOr<ManifestPart> again = DecodePart(EncodePart(*part));
  Require(again.ok(), "a part that was encoded decodes");
  Require(EncodePart(*again) == EncodePart(*part), "a part comes back");
}

}  // namespace

void RunManifest(std::string_view bytes) {
  RunManifestText(bytes);
  if (const std::string sealed = Sealed(bytes); !sealed.empty()) {
    RunManifestText(sealed);
  }
}

// Reads a file: the length of its header, the header, and the data, which take
// up the rest.
void RunSafetensors(std::string_view bytes) {
  const absl::StatusOr<uint64_t> length = DecodeSafetensorsHeaderLength(
      bytes.substr(0, kSafetensorsLengthBytes), bytes.size());
  if (!length.ok()) return;
  Require(*length + kSafetensorsLengthBytes <= bytes.size(),
          "a header lies within its file");
  const uint64_t data_bytes = bytes.size() - kSafetensorsLengthBytes - *length;
  const absl::StatusOr<SafetensorsHeader> header = DecodeSafetensorsHeader(
      bytes.substr(kSafetensorsLengthBytes, *length), data_bytes);
  if (!header.ok()) return;
  for (const TensorEntry& tensor : header->tensors) {
    Require(tensor.begin <= tensor.end && tensor.end <= data_bytes,
            "a tensor lies within the data");
  }
  const absl::StatusOr<std::string> written = EncodeSafetensorsHeader(*header);
  Require(written.ok(), "a header that was read can be written");
  const absl::StatusOr<SafetensorsHeader> again = DecodeSafetensorsHeader(
      std::string_view(*written).substr(kSafetensorsLengthBytes), data_bytes);
  Require(again.ok(), "a header that was written can be read");
  Require(*EncodeSafetensorsHeader(*again) == *written, "it is the same");
}

std::vector<std::string> ManifestSeeds() {
  const Manifest manifest{
      {7, 1200}, 4, {{100, 2, {{"a", 1}, {"b", 5}}}, {200, 2, {{"c", 3}}}}};
  const ManifestPart part{{7, 1200}, 1, 4, {{3, {100, 2, {{"a", 1}}}}}};
  std::vector<std::string> seeds = {EncodeManifest(manifest), EncodePart(part)};
  for (size_t i = 0; i < 2; ++i) {
    seeds.push_back(Json::parse(seeds[i])["body"].dump());
  }
  return seeds;
}

std::vector<std::string> SafetensorsSeeds() {
  SafetensorsHeader header;
  header.tensors = {{"w", Dtype::kF32, {2, 2}, 0, 16},
                    {"b", Dtype::kBf16, {3}, 16, 22},
                    {"empty", Dtype::kI64, {0, 7}, 22, 22}};
  header.metadata = {{"step", "12"}};
  return {*EncodeSafetensorsHeader(header) + std::string(22, 'x'),
          *EncodeSafetensorsHeader({})};
}

}  // namespace gavel::fuzz
