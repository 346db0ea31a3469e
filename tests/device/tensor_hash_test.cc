#include "runtime/device/tensor_hash.h"

#include <ATen/ops/ones.h>

#include "runtime/device/tensor_hash_words.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

uint64_t Hash(const std::string& bytes) {
  return HashBytes(bytes.data(), bytes.size());
}

// The first numbers of SplitMix64 from seed 0, as published.
TEST(TensorHash, KeysOfPlacesAreTheSequenceOfSplitMix64) {
  EXPECT_EQ(internal::KeyOfPlace(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(internal::KeyOfPlace(1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(internal::KeyOfPlace(2), 0x06c45d188009454fu);
}

// Computed by another program, in Python's integers.
TEST(TensorHash, OfKnownBytes) {
  EXPECT_EQ(Hash(""), 0x48218226ff3cd4bfu);
  EXPECT_EQ(Hash("a"), 0x098b7e17de94fa58u);
  EXPECT_EQ(Hash("abcdefgh"), 0x62e20ff73c3a6541u);
  EXPECT_EQ(Hash("abcdefghi"), 0x4846bc5cabe4f8fdu);
  EXPECT_EQ(Hash(std::string(16, '\0')), 0xf3ec0d8579a9c141u);
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(Hash(all), 0x1530816529d8d06au);
}

TEST(TensorHash, EveryBitPlaceAndLengthCounts) {
  std::string bytes = "two words, and three bytes.";
  std::set<uint64_t> seen = {Hash(bytes)};
  size_t count = 1;
  for (char& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit, ++count) {
      byte = static_cast<char>(byte ^ (1 << bit));
      seen.insert(Hash(bytes));
      byte = static_cast<char>(byte ^ (1 << bit));
    }
  }
  for (size_t zeros = 0; zeros < 20; ++zeros, ++count) {
    seen.insert(Hash(std::string(zeros, '\0')));
  }
  seen.insert(Hash("second..first..."));
  seen.insert(Hash("first...second.."));
  EXPECT_EQ(seen.size(), count + 2);
}

TEST(TensorHash, TensorsInHostMemoryAreLeftToTheirCopy) {
  const auto hashes = TensorHasher().Hash({at::ones({4}), at::Tensor()});
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_FALSE(hashes[0].has_value());
  EXPECT_FALSE(hashes[1].has_value());
}

}  // namespace
}  // namespace gavel::testing
