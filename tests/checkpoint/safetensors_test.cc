#include "runtime/checkpoint/safetensors.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "tests/checkpoint/shard_files.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr auto kDamaged = absl::StatusCode::kDataLoss;

class Safetensors : public Test {
 protected:
  // Writes a shard, reads it back, compares, and returns the shard.
  Shard RoundTrip(const std::vector<NamedTensor>& tensors) {
    std::filesystem::remove(path_);
    auto written = WriteShard(path_, tensors);
    EXPECT_OK(written.status());
    auto shard = ReadShard(path_);
    EXPECT_OK(shard.status());
    if (!written.ok() || !shard.ok()) return {};
    EXPECT_EQ(shard->summary, *written);
    EXPECT_EQ(shard->metadata.at("format"), "pt");
    EXPECT_EQ(shard->tensors.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor* found = nullptr;
      for (const auto& entry : shard->tensors) {
        if (entry.first == name) found = &entry.second;
      }
      EXPECT_TRUE(found != nullptr && SameTensor(*found, tensor)) << name;
    }
    return *std::move(shard);
  }
  absl::Status Write(const at::Tensor& tensor) {
    return WriteShard(path_, {{"bad", tensor}}).status();
  }

  CheckpointFolder folder_;
  std::string path_ = folder_.path() + "/shard.safetensors";
};

TEST_F(Safetensors, AllDtypesSurvive) {
  std::vector<NamedTensor> tensors;
  for (at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.emplace_back(c10::toString(dtype),
                         (at::arange(7) - 3).to(at::kFloat).to(dtype));
  }
  RoundTrip(tensors);
}

TEST_F(Safetensors, BitsOfNanAndNegativeZeroSurvive) {
  at::Tensor bits = at::tensor(
      {int64_t{0x7ff8000000000123}, int64_t{0x7ff0000000000001}, INT64_MIN},
      at::kLong);
  RoundTrip({{"x", at::ones({1})}});
  std::filesystem::remove(path_);
  std::vector<NamedTensor> tensors = {{"bits", bits.view(at::kDouble)}};
  ASSERT_OK(WriteShard(path_, tensors));
  ASSERT_OK_AND_ASSIGN(Shard shard, ReadShard(path_));
  EXPECT_TRUE(shard.tensors[0].second.view(at::kLong).equal(bits));
}

TEST_F(Safetensors, StridesScalarsAndEmptyTensorsSurvive) {
  at::Tensor matrix = at::arange(24, at::kFloat).view({4, 6});
  RoundTrip(
      {{"transposed", matrix.t()},
       {"sliced", matrix.slice(1, 1, 6, 2)},
       {"expanded", at::ones({1, 3}).expand({5, 3})},
       {"channels_last",
        at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
       {"scalar", at::scalar_tensor(3.5)},
       {"empty", at::empty({0})},
       {"empty_matrix", at::empty({3, 0, 2})},
       {"requires_grad", at::ones({2}).requires_grad_()},
       {"negative_view", at::imag(at::conj(at::ones({2}, at::kComplexFloat)))},
       {"complex", at::polar(at::ones({4}), at::arange(4, at::kFloat))},
       {"conjugate",
        at::polar(at::ones({4}), at::arange(4, at::kFloat)).conj()}});
}

// Empty tensors share one place, which says nothing of their order in the file.
TEST_F(Safetensors, EmptyTensorsOfSeveralDtypesSurvive) {
  RoundTrip({{"num", at::empty({0}, at::kLong)},
             {"cache", at::empty({0}, at::kFloat)},
             {"weight", at::ones({2})},
             {"a_mask", at::empty({2, 0}, at::kBool)},
             {"z_half", at::empty({0}, at::kHalf)},
             {"bytes", at::ones({3}, at::kByte)}});
}

TEST_F(Safetensors, NoTensorsAtAll) { RoundTrip({}); }

TEST_F(Safetensors, UnusualNamesSurvive) {
  RoundTrip({{"a \"quoted\" \\ name", at::ones({1})},
             {"\xce\xb1/\xe2\x82\xac", at::ones({1})},
             {"../../x", at::ones({1})}});
}

TEST_F(Safetensors, StoredAlignedByFallingElementSize) {
  Shard shard = RoundTrip({{"bytes", at::ones({3}, at::kByte)},
                           {"b", at::ones({1}, at::kDouble)},
                           {"a", at::ones({1}, at::kDouble)},
                           {"half", at::ones({5}, at::kHalf)}});
  std::vector<std::string> order;
  for (const auto& entry : shard.tensors) order.push_back(entry.first);
  EXPECT_THAT(order, ElementsAre("a", "b", "half", "bytes"));
}

TEST_F(Safetensors, ChecksumsTellDtypeShapeAndData) {
  auto checksum = [&](const at::Tensor& tensor) {
    return RoundTrip({{"x", tensor}}).summary.tensors[0].checksum;
  };
  at::Tensor zeros = at::zeros({4}, at::kInt);
  EXPECT_EQ(checksum(zeros), checksum(zeros.clone()));
  EXPECT_NE(checksum(zeros), checksum(zeros.view({2, 2})));
  EXPECT_NE(checksum(zeros), checksum(zeros.to(at::kFloat)));
  EXPECT_NE(checksum(zeros), checksum(zeros + 1));
}

TEST_F(Safetensors, WhatCannotBeStoredIsNamed) {
  EXPECT_THAT(Write(at::ones({2}, at::kComplexDouble)),
              IsInvalid("tensor 'bad'"));
  EXPECT_THAT(Write(at::ones({2}, at::kComplexDouble)),
              IsInvalid("view_as_real"));
  EXPECT_THAT(Write(at::Tensor()), IsInvalid("undefined"));
  EXPECT_THAT(Write(at::eye(3).to_sparse()), IsInvalid("only dense"));
  std::vector<NamedTensor> no_utf8 = {{"\xff", at::ones({1})}};
  EXPECT_THAT(WriteShard(path_, no_utf8), IsInvalid("UTF-8"));
  std::vector<NamedTensor> reserved = {{"__metadata__", at::ones({1})}};
  EXPECT_THAT(WriteShard(path_, reserved), IsInvalid("reserved"));
}

TEST_F(Safetensors, DataIsAlignedAsLibTorchAlignsMemory) {
  RoundTrip({{"x", at::ones({1}, at::kDouble)}, {"y", at::ones({3})}});
  const std::string bytes = ReadBytes(path_);
  ASSERT_OK_AND_ASSIGN(uint64_t length, DecodeSafetensorsHeaderLength(
                                            bytes.substr(0, 8), bytes.size()));
  EXPECT_EQ((8 + length) % 64, 0u);
}

// Another program may have written the data at any offset.
TEST_F(Safetensors, UnalignedDataIsCopied) {
  const std::string json =
      R"({"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})";
  std::string file = {static_cast<char>(json.size()), 0, 0, 0, 0, 0, 0, 0};
  file += json + std::string({1, 0, 0, 0, 2, 0, 0, 0});
  ASSERT_NE(json.size() % 4, 0u);
  WriteBytes(path_, file);
  ASSERT_OK_AND_ASSIGN(Shard shard, ReadShard(path_));
  EXPECT_TRUE(shard.tensors[0].second.equal(at::tensor({1, 2}, at::kInt)));
}

// ---- The header alone ----

std::string Entry(const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

absl::Status Decode(const std::string& json, uint64_t data_size_bytes) {
  return DecodeSafetensorsHeader(json, data_size_bytes).status();
}

TEST(SafetensorsHeader, AcceptsWhatTheLayoutAllows) {
  EXPECT_OK(Decode("{}", 0));
  EXPECT_OK(Decode("{\"__metadata__\":{\"a\":\"b\"}}   ", 0));
  EXPECT_OK(Decode("{\"x\":" + Entry("F32", "[2]", "[0,8]") + "}", 8));
  EXPECT_OK(Decode("{\"y\":" + Entry("U8", "[]", "[8,9]") +
                       ",\"x\":" + Entry("I64", "[1]", "[0,8]") + "}",
                   9));
  EXPECT_OK(Decode("{\"x\":" + Entry("U8", "[0]", "[0,0]") +
                       ",\"y\":" + Entry("U8", "[1]", "[0,1]") +
                       ",\"z\":" + Entry("U8", "[0,5]", "[1,1]") + "}",
                   1));
}

TEST(SafetensorsHeader, RejectsBadEntries) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Entry("F32", "[2]", "[0,4]"), "another size"},
      {Entry("F32", "[2]", "[0,16]"), "another size"},
      {Entry("C128", "[1]", "[0,8]"), "unknown dtype"},
      {Entry("F32", "[-2]", "[0,8]"), "invalid shape"},
      {Entry("F32", "[2.0]", "[0,8]"), "invalid shape"},
      {Entry("F32", "2", "[0,8]"), "no valid shape"},
      {Entry("F32", "[2]", "[8,0]"), "invalid data_offsets"},
      {Entry("F32", "[2]", "[0,8,8]"), "no valid data_offsets"},
      {Entry("F32", "[2]", "[-8,0]"), "invalid data_offsets"},
      {Entry("F32", "[2]", "[0,18446744073709551615]"), "data_offsets"},
      // The product of the extents wraps around to 8 bytes.
      {Entry("F64", "[4611686018427387905,4]", "[0,8]"), "another size"},
      {Entry("F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]"),
       "another size"},
      {"{\"dtype\":\"F32\"}", "exactly dtype"},
      {"[]", "exactly dtype"},
  };
  for (const auto& [entry, message] : cases) {
    EXPECT_THAT(Decode("{\"x\":" + entry + "}", 8), StatusIs(kDamaged, message))
        << entry;
  }
}

TEST(SafetensorsHeader, RejectsGapsOverlapsAndOtherSizes) {
  std::string first = "{\"x\":" + Entry("U8", "[4]", "[0,4]");
  EXPECT_THAT(Decode(first + ",\"y\":" + Entry("U8", "[4]", "[5,9]") + "}", 9),
              StatusIs(kDamaged, "gap"));
  EXPECT_THAT(Decode(first + ",\"y\":" + Entry("U8", "[4]", "[2,6]") + "}", 6),
              StatusIs(kDamaged, "overlaps"));
  EXPECT_THAT(Decode(first + ",\"y\":" + Entry("U8", "[4]", "[0,4]") + "}", 4),
              StatusIs(kDamaged, "overlaps"));
  EXPECT_THAT(Decode(first + "}", 5), StatusIs(kDamaged, "5"));
  EXPECT_THAT(Decode(first + "}", 3), StatusIs(kDamaged, "3"));
}

TEST(SafetensorsHeader, RejectsWhatIsNoHeader) {
  for (const char* json :
       {"", "[]", "3", "null", "{", "{\"x\":", "\xff", "{\"__metadata__\":3}",
        "{\"__metadata__\":{\"a\":3}}"}) {
    EXPECT_THAT(Decode(json, 0), StatusIs(kDamaged, "header")) << json;
  }
  EXPECT_THAT(Decode(std::string(1'000'000, '['), 0),
              StatusIs(kDamaged, "JSON"));
}

TEST(SafetensorsHeader, LengthIsBoundedByTheFileAndTheLimit) {
  std::string eight = {8, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(*DecodeSafetensorsHeaderLength(eight, 16), 8u);
  EXPECT_THAT(DecodeSafetensorsHeaderLength(eight, 15),
              StatusIs(kDamaged, "beyond the file"));
  EXPECT_THAT(DecodeSafetensorsHeaderLength(eight.substr(1), 7),
              StatusIs(kDamaged, "shorter"));
  EXPECT_THAT(DecodeSafetensorsHeaderLength(std::string(8, '\xff'), 16),
              StatusIs(kDamaged, "over the limit"));
}

}  // namespace
}  // namespace gavel::testing
