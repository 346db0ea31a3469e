#include "runtime/generation/manifest.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

using Json = nlohmann::json;

// 64-bit numbers as text: many readers of JSON round integers to doubles.
std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

absl::Status CorruptManifest(std::string_view what) {
  return absl::DataLossError(StrCat("manifest: ", what));
}

Json EncodeShard(size_t index, const ShardSummary& shard, int linked) {
  Json tensors = Json::array();
  for (const TensorChecksum& tensor : shard.tensors) {
    tensors.push_back({{"name", tensor.name}, {"xxh3", Hex(tensor.checksum)}});
  }
  Json json = {{"file", ShardFileName(index)},
               {"size_bytes", shard.size_bytes},
               {"xxh3", Hex(shard.checksum)},
               {"tensors", std::move(tensors)}};
  if (linked > 0) json["linked"] = linked;
  return json;
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

ShardSummary DecodeSummary(const Json& value) {
  ShardSummary shard;
  shard.size_bytes = DecodeUnsigned(value.at("size_bytes"));
  shard.checksum = DecodeHex(value.at("xxh3"));
  for (const Json& tensor : value.at("tensors")) {
    shard.tensors.push_back(
        {tensor.at("name").get<std::string>(), DecodeHex(tensor.at("xxh3"))});
  }
  return shard;
}

int DecodeInt(const Json& value, int min) {
  const uint64_t number = DecodeUnsigned(value);
  if (number < static_cast<uint64_t>(min) ||
      number > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("world_size, rank or a count out of range");
  }
  return static_cast<int>(number);
}

ManifestPart::IndexedShard DecodeIndexedShard(const Json& value) {
  const std::optional<size_t> index =
      ParseShardFileName(value.at("file").get_ref<const std::string&>());
  if (!index) throw std::invalid_argument("unexpected name of a shard");
  ManifestPart::IndexedShard shard{*index, DecodeSummary(value)};
  if (value.contains("linked")) shard.linked = DecodeInt(value["linked"], 1);
  return shard;
}

// A shard's name is never used as a path: it must be the one of its place.
void DecodeShard(const Json& value, Manifest* manifest) {
  ManifestPart::IndexedShard shard = DecodeIndexedShard(value);
  if (shard.index != manifest->shards.size()) {
    throw std::invalid_argument("unexpected name of a shard");
  }
  if (shard.linked > 0) manifest->linked[shard.index] = shard.linked;
  manifest->shards.push_back(std::move(shard.summary));
}

// Manifests of earlier versions have none.
void DecodeUnchanged(const Json& body, Manifest* manifest) {
  if (!body.contains("unchanged")) return;
  for (const auto& [name, generations] :
       body["unchanged"].get_ref<const Json::object_t&>()) {
    manifest->unchanged[name] = DecodeInt(generations, 1);
  }
  manifest->unchanged_shards = DecodeUnsigned(body.at("unchanged_shards"));
}

// Manifests of earlier versions, and of jobs that report nothing, have none.
void DecodeScalars(const Json& body, Manifest* manifest) {
  if (!body.contains("scalars")) return;
  for (const auto& [name, value] :
       body["scalars"].get_ref<const Json::object_t&>()) {
    if (!value.is_number()) throw std::invalid_argument("no scalar");
    manifest->scalars[name] = value.get<double>();
  }
}

const Json& ShardsOf(const Json& body) {
  const Json& shards = body.at("shards");
  if (!shards.is_array()) throw std::invalid_argument("shards is no list");
  return shards;
}

void DecodeBody(const Json& body, Manifest* manifest) {
  manifest->format_version = DecodeInt(body.at("format_version"), 1);
  manifest->generation = {DecodeUnsigned(body.at("epoch")),
                          DecodeUnsigned(body.at("step"))};
  manifest->world_size = DecodeInt(body.at("world_size"), 1);
  for (const Json& shard : ShardsOf(body)) {
    DecodeShard(shard, manifest);
  }
  DecodeUnchanged(body, manifest);
  DecodeScalars(body, manifest);
}

void DecodeBody(const Json& body, ManifestPart* part) {
  part->generation = {DecodeUnsigned(body.at("epoch")),
                      DecodeUnsigned(body.at("step"))};
  part->world_size = DecodeInt(body.at("world_size"), 1);
  part->rank = DecodeInt(body.at("rank"), 0);
  part->cut = DecodeHex(body.at("cut"));
  for (const Json& shard : ShardsOf(body)) {
    part->shards.push_back(DecodeIndexedShard(shard));
  }
}

absl::Status CheckVersion(const Json& body) {
  uint64_t version = DecodeUnsigned(body.at("format_version"));
  if (version >= 1 && version <= kManifestFormatVersion) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(StrCat(
      "checkpoint format version ", version, " is not known here (this Gavel ",
      "writes ", kManifestFormatVersion, "); use the version that wrote it"));
}

// Discarded: not valid, or nested beyond what a manifest is. Json::dump() takes
// stack for every level.
Json ParseShallow(std::string_view text) {
  constexpr int kDepthMax = 16;
  bool deep = false;
  Json json = Json::parse(
      text,
      [&deep](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > kDepthMax;
        return !deep;
      },
      /*allow_exceptions=*/false);
  return deep ? Json(Json::value_t::discarded) : json;
}

template <class Value>
absl::Status DecodeText(std::string_view text, Value* value) {
  Json json = ParseShallow(text);
  if (json.is_discarded())
    return CorruptManifest("not valid JSON of a manifest");
  // The dump of equal values is equal, so the checksum does not depend on how
  // the file is indented.
  const Json& body = json.at("body");
  std::string dump = body.dump();
  if (DecodeHex(json.at("xxh3")) != XXH3_64bits(dump.data(), dump.size())) {
    return CorruptManifest("its checksum does not match");
  }
  GAVEL_RETURN_IF_ERROR(CheckVersion(body));
  DecodeBody(body, value);
  return absl::OkStatus();
}

template <class Value>
absl::StatusOr<Value> Decode(std::string_view text) {
  try {
    Value value;
    GAVEL_RETURN_IF_ERROR(DecodeText(text, &value));
    return value;
  } catch (const std::exception& error) {  // what the JSON accessors throw
    return CorruptManifest(error.what());
  }
}

// A body with its checksum.
std::string Sealed(Json body) {
  const std::string dump = body.dump();
  const uint64_t checksum = XXH3_64bits(dump.data(), dump.size());
  const Json json = {{"body", std::move(body)}, {"xxh3", Hex(checksum)}};
  return json.dump(1) + "\n";
}

// The number in "PREFIX00003.json".
std::optional<size_t> NumberIn(std::string_view name, std::string_view prefix) {
  size_t number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = name.substr(prefix.size());
  if (!absl::SimpleAtoi(ToAbsl(rest.substr(0, rest.find('.'))), &number)) {
    return std::nullopt;
  }
  return number;
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

std::optional<size_t> ParseShardFileName(std::string_view name) {
  const std::optional<size_t> index = NumberIn(name, "shard-");
  return index && name == ShardFileName(*index) ? index : std::nullopt;
}

std::string PartFileName(int rank) {
  return absl::StrFormat("part-%05d.json", rank);
}

std::string PartTemporaryName(int rank) { return PartFileName(rank) + ".tmp"; }

bool IsPartFileName(std::string_view name) {
  const std::optional<size_t> number = NumberIn(name, "part-");
  if (!number || !std::in_range<int>(*number)) return false;
  const int rank = static_cast<int>(*number);
  return name == PartFileName(rank) || name == PartTemporaryName(rank);
}

std::string EncodeManifest(const Manifest& manifest, int format_version) {
  Json shards = Json::array();
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const auto linked = manifest.linked.find(i);
    shards.push_back(
        EncodeShard(i, manifest.shards[i],
                    linked == manifest.linked.end() ? 0 : linked->second));
  }
  Json body = {{"format_version", format_version},
               {"epoch", manifest.generation.epoch},
               {"step", manifest.generation.step},
               {"world_size", manifest.world_size},
               {"unchanged", manifest.unchanged},
               {"unchanged_shards", manifest.unchanged_shards},
               {"shards", std::move(shards)}};
  for (const auto& [name, value] : manifest.scalars) {
    if (std::isfinite(value)) body["scalars"][name] = value;
  }
  return Sealed(std::move(body));
}

absl::StatusOr<Manifest> DecodeManifest(std::string_view text) {
  return Decode<Manifest>(text);
}

std::string EncodePart(const ManifestPart& part) {
  Json shards = Json::array();
  for (const ManifestPart::IndexedShard& shard : part.shards) {
    shards.push_back(EncodeShard(shard.index, shard.summary, shard.linked));
  }
  return Sealed({{"format_version", kManifestFormatVersion},
                 {"epoch", part.generation.epoch},
                 {"step", part.generation.step},
                 {"world_size", part.world_size},
                 {"rank", part.rank},
                 {"cut", Hex(part.cut)},
                 {"shards", std::move(shards)}});
}

absl::StatusOr<ManifestPart> DecodePart(std::string_view text) {
  return Decode<ManifestPart>(text);
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

namespace {

constexpr uint64_t kOwnerBytesMax = 4096;
constexpr size_t kOwnerLines = 3;  // cluster, number, name

bool IsOurs(std::string_view name) {
  return name == kManifestFileName || name == kManifestTemporaryName ||
         ParseShardFileName(name) || IsPartFileName(name);
}

bool HasFile(const std::vector<DirectoryEntry>& entries,
             std::string_view name) {
  return std::ranges::any_of(entries, [name](const DirectoryEntry& entry) {
    return entry.name == name && !entry.is_directory;
  });
}

}  // namespace

std::string AttemptName(const Attempt& attempt) {
  std::string name = GenerationName(attempt.generation);
  if (attempt.number > 0) StrAppend(&name, ".", attempt.number);
  return name;
}

std::optional<Attempt> ParseAttemptName(std::string_view name) {
  Attempt attempt;
  size_t dot = name.find('.');
  std::optional<Generation> generation =
      ParseGenerationName(name.substr(0, dot));
  if (!generation) return std::nullopt;
  attempt.generation = *generation;
  if (dot != std::string_view::npos &&
      !absl::SimpleAtoi(ToAbsl(name.substr(dot + 1)), &attempt.number)) {
    return std::nullopt;
  }
  // Leading zeros, signs and ".0" are not ours.
  if (AttemptName(attempt) != name) return std::nullopt;
  return attempt;
}

absl::StatusOr<Attempts> ListAttempts(FileSystem& file_system,
                                      const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                         file_system.List(directory));
  Attempts attempts;
  for (const DirectoryEntry& entry : entries) {
    std::optional<Attempt> attempt = ParseAttemptName(entry.name);
    if (!attempt || !entry.is_directory) continue;
    absl::StatusOr<std::vector<DirectoryEntry>> files =
        file_system.List(StrCat(directory, "/", entry.name));
    // Another process may have removed it since.
    if (absl::IsNotFound(files.status())) continue;
    if (!files.ok()) return files.status();
    bool committed = HasFile(*files, kManifestFileName);
    (committed ? attempts.committed : attempts.uncommitted).push_back(*attempt);
  }
  std::sort(attempts.committed.begin(), attempts.committed.end());
  std::sort(attempts.uncommitted.begin(), attempts.uncommitted.end());
  return attempts;
}

absl::Status RemoveAttempt(FileSystem& file_system,
                           const std::string& directory,
                           const Attempt& attempt) {
  std::string folder = StrCat(directory, "/", AttemptName(attempt));
  GAVEL_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                         file_system.List(folder));
  if (HasFile(entries, kManifestFileName)) {
    GAVEL_RETURN_IF_ERROR(
        file_system.RemoveFile(StrCat(folder, "/", kManifestFileName)));
    GAVEL_RETURN_IF_ERROR(file_system.SyncDirectory(folder));
  }
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == kManifestFileName || !IsOurs(entry.name)) continue;
    GAVEL_RETURN_IF_ERROR(
        file_system.RemoveFile(StrCat(folder, "/", entry.name)));
  }
  return file_system.RemoveDirectory(folder);
}

std::string Describe(const DirectoryOwner& owner) {
  if (owner.cluster.empty()) return StrCat("job '", owner.name, "'");
  return StrCat("job '", owner.name, "' (", owner.job, " of cluster ",
                owner.cluster, ")");
}

absl::StatusOr<std::optional<DirectoryOwner>> ReadOwner(
    FileSystem& file_system, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kOwnerName);
  const absl::StatusOr<std::string> text =
      ReadWholeFile(file_system, path, kOwnerBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  DirectoryOwner owner;
  if (lines.size() != kOwnerLines + 1 || lines[2].empty() ||
      !absl::SimpleAtoi(lines[1], &owner.job)) {
    return absl::DataLossError(
        StrCat(path,
               " names no job; say whose the checkpoints are by `gavel "
               "checkpoint adopt ",
               directory, " JOB`"));
  }
  owner.cluster = lines[0];
  owner.name = lines[2];
  return owner;
}

namespace {

// `if_none`: an owner that is there already stays, where the file system has
// links.
absl::Status PutOwner(FileSystem& file_system, const std::string& directory,
                      const DirectoryOwner& owner, bool if_none) {
  const std::string path = StrCat(directory, "/", kOwnerName);
  // One name for each process that writes it at once.
  const std::string part = StrCat(path, ".", owner.job, ".", getpid());
  file_system.RemoveFile(part).IgnoreError();  // of one that was killed
  GAVEL_RETURN_IF_ERROR(WriteTextFile(
      file_system, part,
      StrCat(owner.cluster, "\n", owner.job, "\n", owner.name, "\n")));
  absl::Status status = if_none ? file_system.Link(part, path)
                                : absl::UnimplementedError("replaces it");
  if (status.ok() || absl::IsAlreadyExists(status)) {
    file_system.RemoveFile(part).IgnoreError();
  } else {  // not every file system has links
    GAVEL_RETURN_IF_ERROR(file_system.Rename(part, path));
  }
  return file_system.SyncDirectory(directory);
}

}  // namespace

absl::Status WriteOwner(FileSystem& file_system, const std::string& directory,
                        const DirectoryOwner& owner) {
  return PutOwner(file_system, directory, owner, /*if_none=*/false);
}

absl::Status ClaimDirectory(FileSystem& file_system,
                            const std::string& directory,
                            const DirectoryOwner& owner) {
  GAVEL_RETURN_IF_ERROR(CreateDirectories(file_system, directory));
  GAVEL_ASSIGN_OR_RETURN(std::optional<DirectoryOwner> present,
                         ReadOwner(file_system, directory));
  const bool is_whole = present && !present->cluster.empty();
  if (!is_whole && (!present || present->IsSameAs(owner))) {
    // Another job may claim it at the same time.
    GAVEL_RETURN_IF_ERROR(
        PutOwner(file_system, directory, owner, /*if_none=*/!present));
    GAVEL_ASSIGN_OR_RETURN(present, ReadOwner(file_system, directory));
  }
  if (!present || present->IsSameAs(owner)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      // The remedy comes before the long names: the error of a job is cut.
      StrCat("its checkpoint_directory is another job's; give it one of its "
             "own, or hand the checkpoints over: gavel checkpoint adopt ",
             directory, " ", owner.name, " (they are of ", Describe(*present),
             ", not of ", Describe(owner), ")"));
}

absl::Status CreateDirectories(FileSystem& file_system,
                               const std::string& directory) {
  absl::Status status = file_system.CreateDirectory(directory);
  if (absl::IsNotFound(status) && ParentOf(directory) != directory) {
    GAVEL_RETURN_IF_ERROR(CreateDirectories(file_system, ParentOf(directory)));
    status = file_system.CreateDirectory(directory);
  }
  if (absl::IsAlreadyExists(status)) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(status);
  return file_system.SyncDirectory(ParentOf(directory));
}

std::string ParentOf(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  size_t parent_end = path.find_last_not_of('/', slash);
  return parent_end == std::string::npos ? "/" : path.substr(0, parent_end + 1);
}

}  // namespace gavel
