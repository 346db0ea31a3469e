#include "runtime/generation/manifest.h"

#include <xxhash.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

Manifest Sample() {
  Manifest sample{
      {7, 1200},
      4,
      {{100, 0xfedcba9876543210, {{"a", 1}, {"b", 0xffffffffffffffff}}},
       {200, 2, {{"c", 3}}}}};
  sample.linked = {{1, 5}};
  sample.unchanged = {{"b", 2}, {"c", 3}};
  sample.unchanged_shards = 1;
  return sample;
}

// A manifest with a valid checksum and `change` applied to its body.
template <class Change>
std::string Altered(Change change) {
  Json json = Json::parse(EncodeManifest(Sample()));
  change(json["body"]);
  std::string dump = json["body"].dump();
  char hex[17];
  std::snprintf(
      hex, sizeof(hex), "%016llx",
      static_cast<unsigned long long>(XXH3_64bits(dump.data(), dump.size())));
  json["xxh3"] = hex;
  return json.dump();
}

TEST(Manifest, SurvivesEncodingAndDecoding) {
  ASSERT_OK_AND_ASSIGN(Manifest decoded,
                       DecodeManifest(EncodeManifest(Sample())));
  EXPECT_EQ(decoded.generation, Sample().generation);
  EXPECT_EQ(decoded.world_size, 4);
  EXPECT_EQ(decoded.shards, Sample().shards);
  EXPECT_EQ(decoded.linked, Sample().linked);
  EXPECT_EQ(decoded.unchanged, Sample().unchanged);
  EXPECT_EQ(decoded.unchanged_shards, 1u);
}

TEST(Manifest, WhatDoesNotChangeMayBeUnknown) {
  const std::string text = Altered([](Json& body) {
    body.erase("unchanged");
    body.erase("unchanged_shards");
    body["shards"][1].erase("linked");
  });
  ASSERT_OK_AND_ASSIGN(Manifest decoded, DecodeManifest(text));
  EXPECT_EQ(decoded.shards, Sample().shards);
  EXPECT_TRUE(decoded.linked.empty());
  EXPECT_TRUE(decoded.unchanged.empty());
  for (const Json& bad : {Json::array({1}), Json({{"a", 0}}), Json(1)}) {
    EXPECT_THAT(
        DecodeManifest(Altered([&](Json& body) { body["unchanged"] = bad; })),
        StatusIs(kDataLoss, "manifest"));
  }
}

TEST(Manifest, KeepsFiniteScalars) {
  Manifest manifest = Sample();
  manifest.scalars = {{"loss", 0.1}, {"steps", 3}, {"bad", std::nan("")}};
  ASSERT_OK_AND_ASSIGN(const Manifest decoded,
                       DecodeManifest(EncodeManifest(manifest)));
  EXPECT_THAT(decoded.scalars,
              ElementsAre(Pair("loss", 0.1), Pair("steps", 3)));
  EXPECT_THAT(DecodeManifest(Altered([](Json& body) {
                body["scalars"] = {{"a", "b"}};
              })),
              StatusIs(kDataLoss, "scalar"));
  // As earlier versions wrote it.
  EXPECT_FALSE(
      Json::parse(EncodeManifest(Sample()))["body"].contains("scalars"));
}

TEST(Manifest, IndentationDoesNotMatter) {
  EXPECT_OK(DecodeManifest(Json::parse(EncodeManifest(Sample())).dump()));
}

TEST(Manifest, ShardNamesAreThoseOfTheirPlace) {
  for (const char* bad : {"../shard-00000.safetensors", "/etc/passwd", "",
                          "shard-00001.safetensors", "shard-0.safetensors"}) {
    std::string text =
        Altered([&](Json& body) { body["shards"][0]["file"] = bad; });
    EXPECT_THAT(DecodeManifest(text), StatusIs(kDataLoss, "name of a shard"));
  }
}

TEST(Manifest, ValuesOfAnotherTypeOrMissingAreDataLoss) {
  const Json bad_values[] = {nullptr,        -1,  1.5, "text", Json::array(),
                             Json::object(), true};
  for (const char* key : {"epoch", "step", "world_size"}) {
    for (const Json& bad : bad_values) {
      EXPECT_THAT(DecodeManifest(Altered([&](Json& b) { b[key] = bad; })),
                  StatusIs(kDataLoss, "manifest"))
          << key << " " << bad;
    }
    EXPECT_THAT(DecodeManifest(Altered([&](Json& b) { b.erase(key); })),
                StatusIs(kDataLoss, key));
  }
  EXPECT_THAT(DecodeManifest(Altered([](Json& b) { b["shards"] = 3; })),
              StatusIs(kDataLoss, "manifest"));
  EXPECT_THAT(DecodeManifest(Altered([](Json& b) { b["world_size"] = 0; })),
              StatusIs(kDataLoss, "world_size"));
}

TEST(Manifest, TextThatIsNoManifestIsDataLoss) {
  for (const char* text : {"", "{", "{}", "[]", "null", "3", "\xff\xfe",
                           R"({"body":{}})", R"({"body":{},"xxh3":3})",
                           R"({"body":{},"xxh3":"zzzzzzzzzzzzzzzz"})"}) {
    EXPECT_THAT(DecodeManifest(text), StatusIs(kDataLoss, "manifest")) << text;
  }
  // Deep nesting must not exhaust the stack.
  EXPECT_THAT(DecodeManifest(std::string(1'000'000, '[')),
              StatusIs(kDataLoss, "JSON"));
}

TEST(Manifest, NewerVersionIsSaidToBeNewer) {
  EXPECT_THAT(DecodeManifest(EncodeManifest(Sample(), 3)),
              StatusIs(kFailedPrecondition, "format version 3"));
}

TEST(Manifest, ShardFileNames) {
  EXPECT_EQ(ShardFileName(3), "shard-00003.safetensors");
  EXPECT_EQ(ParseShardFileName(ShardFileName(0)), 0u);
  EXPECT_EQ(ParseShardFileName(ShardFileName(123456)), 123456u);
  for (const char* bad : {"", "shard-", "shard-.safetensors", "shard-00003",
                          "shard-3.safetensors", "shard-00003.safetensors.tmp",
                          "a/shard-00003.safetensors"}) {
    EXPECT_EQ(ParseShardFileName(bad), std::nullopt) << bad;
  }
}

TEST(Manifest, PartFileNames) {
  EXPECT_EQ(PartFileName(3), "part-00003.json");
  EXPECT_TRUE(IsPartFileName(PartFileName(123456)));
  EXPECT_TRUE(IsPartFileName(PartTemporaryName(0)));
  for (const char* bad :
       {"", "part-", "part-3.json", "part-00003", "part--0003.json",
        "part-00003.json.tmp.tmp", "a/part-00003.json", "shard-00003.json"}) {
    EXPECT_FALSE(IsPartFileName(bad)) << bad;
  }
}

TEST(Manifest, PartsSurviveEncodingAndDecoding) {
  const ManifestPart part = {
      {7, 1200}, 3, 4, {{1, Sample().shards[0]}, {5, Sample().shards[1]}}};
  ASSERT_OK_AND_ASSIGN(ManifestPart decoded, DecodePart(EncodePart(part)));
  EXPECT_EQ(decoded.generation, part.generation);
  EXPECT_EQ(decoded.rank, 3);
  EXPECT_EQ(decoded.world_size, 4);
  ASSERT_EQ(decoded.shards.size(), 2u);
  EXPECT_EQ(decoded.shards[1].index, 5u);
  EXPECT_EQ(decoded.shards[1].summary, part.shards[1].summary);
  // A manifest is not a part.
  EXPECT_THAT(DecodePart(EncodeManifest(Sample())),
              StatusIs(kDataLoss, "rank"));
}

TEST(Manifest, SaysHowItsShardsAreSummed) {
  ASSERT_OK_AND_ASSIGN(Manifest old,
                       DecodeManifest(EncodeManifest(Sample(), 1)));
  EXPECT_EQ(old.shard_checksum(), ShardChecksum::kAllBytes);
  ASSERT_OK_AND_ASSIGN(Manifest now, DecodeManifest(EncodeManifest(Sample())));
  EXPECT_EQ(now.shard_checksum(), ShardChecksum::kHeaderAndTensors);
}

TEST(Manifest, DifferencesDoNotDependOnShards) {
  Manifest a = Sample(), b = Sample();
  b.shards = {{300, 9, {{"a", 1}, {"b", 0xffffffffffffffff}, {"c", 3}}}};
  EXPECT_THAT(DifferingTensors(a, b), IsEmpty());
  b.shards[0].tensors = {{"a", 2}, {"c", 3}, {"d", 4}};
  EXPECT_THAT(DifferingTensors(a, b), ElementsAre("a", "b", "d"));
}

}  // namespace
}  // namespace gavel::testing
