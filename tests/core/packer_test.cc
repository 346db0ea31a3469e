#include "core/packer.h"

#include <bit>
#include <limits>
#include <random>

#include "tests/support/test.h"

namespace gavel {
namespace {

template <class T>
std::string ArrayOf(const T& value) {
  Packer packer;
  packer.Array(1);
  packer.Put(value);
  return packer.Take();
}

template <class T>
T RoundTrip(const T& value) {
  const std::string bytes = ArrayOf(value);
  Unpacker unpacker(bytes);
  T out{};
  unpacker.Get(out);
  EXPECT_THAT(unpacker.status(), IsOk());
  return out;
}

// Reading a T from `bytes` fails.
template <class T>
absl::Status ErrorOf(std::string_view bytes) {
  Unpacker unpacker(bytes);
  T out{};
  unpacker.Get(out);
  EXPECT_EQ(out, T{}) << "an error gives a default";
  return unpacker.status();
}

TEST(Packer, KeepsIntegersOfEverySize) {
  for (int shift = 0; shift < 64; ++shift) {
    const uint64_t power = uint64_t{1} << shift;
    for (const uint64_t value : {power - 1, power, power + 1, ~power}) {
      EXPECT_EQ(RoundTrip(value), value);
      EXPECT_EQ(RoundTrip(static_cast<int64_t>(value)),
                static_cast<int64_t>(value));
      EXPECT_EQ(RoundTrip(static_cast<int>(value)), static_cast<int>(value));
    }
  }
}

TEST(Packer, KeepsTheBitsOfDoubles) {
  using Limits = std::numeric_limits<double>;
  for (const double value :
       {0.0, -0.0, 1.0, -3.0, 0.1, 1e300, Limits::denorm_min(), Limits::max(),
        Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
        18446744073709551616.0, std::bit_cast<double>(0x7ff8000000001234)}) {
    EXPECT_EQ(std::bit_cast<uint64_t>(RoundTrip(value)),
              std::bit_cast<uint64_t>(value));
  }
}

TEST(Packer, KeepsStringsWithAnyBytes) {
  std::string all(256, '\0');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
  for (const std::string& value :
       {std::string(), std::string("v100"), all, std::string(31, 'x'),
        std::string(32, 'x'), std::string(kStringBytesMax, 'x')}) {
    EXPECT_EQ(RoundTrip(value), value);
  }
}

TEST(Packer, KeepsBooleans) {
  EXPECT_TRUE(RoundTrip(true));
  EXPECT_FALSE(RoundTrip(false));
}

TEST(Packer, WritesMsgpackThatOthersCanRead) {
  Packer packer;
  packer.Array(5);
  packer.Put(uint64_t{300});
  packer.Put(-1);
  packer.Put(true);
  packer.Put(1.0);
  packer.Put(std::string_view("ab"));
  using namespace std::string_literals;
  EXPECT_EQ(packer.Take(),
            "\x95\xcd\x01\x2c\xff\xc3\xcb\x3f\xf0\0\0\0\0\0\0\xa2"s
            "ab");
  EXPECT_EQ(packer.size(), 0U);
}

TEST(Packer, BeyondItsBoundsSaysSo) {
  Packer array;
  array.Array(kArrayElementsMax);
  EXPECT_THAT(array.status(), IsOk());
  array.Array(kArrayElementsMax + 1);
  EXPECT_THAT(array.status(), StatusIs(kResourceExhausted, "4097 elements"));

  Packer string;
  string.Put(std::string(kStringBytesMax + 1, 'x'));
  EXPECT_THAT(string.status(), StatusIs(kResourceExhausted, "61441 bytes"));
}

TEST(Unpacker, PastTheEndFieldsKeepTheirDefaults) {
  const std::string bytes = ArrayOf(7);
  Unpacker unpacker(bytes);
  int first = 1;
  int second = 2;
  std::string third = "three";
  unpacker.Get(first);
  unpacker.Get(second);
  unpacker.Get(third);
  EXPECT_EQ(unpacker.Enter(), 0U);
  unpacker.Get(second);
  unpacker.Leave();
  EXPECT_EQ(first, 7);
  EXPECT_EQ(second, 2);
  EXPECT_EQ(third, "three");
  EXPECT_THAT(unpacker.status(), IsOk());
}

TEST(Unpacker, LeavesAnArrayWithoutHavingReadItAll) {
  Packer packer;
  packer.Array(2);
  packer.Array(3);
  for (int i = 1; i <= 3; ++i) packer.Put(i);
  packer.Put(4);
  const std::string bytes = packer.Take();
  Unpacker unpacker(bytes);
  int inner = 0;
  int behind = 0;
  EXPECT_EQ(unpacker.Enter(), 3U);
  unpacker.Get(inner);
  unpacker.Leave();
  unpacker.Get(behind);
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(behind, 4);
  EXPECT_THAT(unpacker.status(), IsOk());
}

TEST(Unpacker, SaysWhetherItPassedOverFields) {
  const auto packed = [](size_t inner) {
    Packer packer;
    packer.Array(2);
    packer.Array(inner);
    for (uint64_t i = 0; i < inner; ++i) packer.Put(i);
    packer.Put(uint64_t{7});
    return packer.Take();
  };
  for (const size_t inner : {1, 2}) {
    Unpacker unpacker(packed(inner));
    uint64_t value = 0;
    unpacker.Enter();
    unpacker.Get(value);
    unpacker.Leave();
    EXPECT_TRUE(unpacker.passed_over()) << "the last one is unread";
    unpacker.Get(value);
    EXPECT_EQ(value, 7U);
    EXPECT_EQ(unpacker.passed_over(), inner == 2);
  }
}

TEST(Unpacker, NamesTheFieldOfAnotherType) {
  EXPECT_THAT(ErrorOf<uint64_t>(ArrayOf(-1)),
              IsInvalid("field 1 is a negative integer"));
  EXPECT_THAT(ErrorOf<bool>(ArrayOf(1)),
              IsInvalid("is an integer, not a boolean"));
  EXPECT_THAT(ErrorOf<double>(ArrayOf(1)), IsInvalid("not a 64-bit float"));
  EXPECT_THAT(ErrorOf<std::string>(ArrayOf(true)),
              IsInvalid("is a boolean, not a string"));
  EXPECT_THAT(ErrorOf<int64_t>(ArrayOf(1.5)),
              IsInvalid("is a 64-bit float, not an integer"));
}

TEST(Unpacker, RefusesIntegersThatDoNotFit) {
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(ErrorOf<int64_t>(ArrayOf(huge)), IsInvalid("integer of 64 bits"));
  EXPECT_THAT(ErrorOf<int>(ArrayOf(int64_t{1} << 31)),
              IsInvalid("beyond 32 bits"));
  EXPECT_THAT(ErrorOf<int>(ArrayOf(-(int64_t{1} << 31) - 1)),
              IsInvalid("beyond 32 bits"));
}

TEST(Unpacker, NamesTheFieldInsideNestedArrays) {
  Packer packer;
  packer.Array(2);
  packer.Put(1);
  packer.Array(2);
  packer.Put(2);
  packer.Put(true);
  const std::string bytes = packer.Take();
  Unpacker unpacker(bytes);
  int value = 0;
  unpacker.Get(value);
  unpacker.Enter();
  unpacker.Get(value);
  unpacker.Get(value);
  EXPECT_THAT(unpacker.status(), IsInvalid("field 2.2 is"));
  EXPECT_EQ(value, 2);
}

TEST(Unpacker, TheFirstErrorStaysAndReadsAfterItGiveDefaults) {
  Packer packer;
  packer.Array(3);
  packer.Put(true);
  packer.Put(7);
  packer.Array(1);
  packer.Put(8);
  const std::string bytes = packer.Take();
  Unpacker unpacker(bytes);
  int value = 5;
  unpacker.Get(value);
  unpacker.Get(value);
  EXPECT_EQ(unpacker.Enter(), 0U);
  unpacker.Get(value);
  unpacker.Leave();
  unpacker.Fail("is late");
  EXPECT_EQ(value, 5);
  EXPECT_THAT(unpacker.status(), IsInvalid("field 1 is a bo"));
}

TEST(Unpacker, RefusesWhatIsNotOneArray) {
  const auto error = [](std::string_view bytes) {
    return Unpacker(bytes).status();
  };
  using namespace std::string_view_literals;
  EXPECT_THAT(error(""), IsInvalid("msgpack"));
  EXPECT_THAT(error("\x07"), IsInvalid("not an array"));
  EXPECT_THAT(error("\x80"), IsInvalid("not an array"));
  EXPECT_THAT(error("\x91"), IsInvalid("msgpack"));
  EXPECT_THAT(error("\x91\x07\x07"), IsInvalid("1 bytes behind the array"));
  EXPECT_THAT(error("\x91\xc1"), IsInvalid("msgpack"));
  EXPECT_THAT(error("\x91\x81\x01\x01"), IsInvalid("map"));
  EXPECT_THAT(error("\x91\xc4\x01\x01"), IsInvalid("bin"));
  EXPECT_THAT(error("\x91\xd4\x01\x01"), IsInvalid("ext"));
}

TEST(Unpacker, ReadsOfRefusedBytesAreDefaults) {
  Unpacker unpacker("\x07");
  std::string text = "default";
  unpacker.Get(text);
  EXPECT_EQ(unpacker.Enter(), 0U);
  unpacker.Leave();
  EXPECT_EQ(text, "default");
}

// An array32 of `size` elements, without the elements.
std::string HugeArray(uint32_t size) {
  std::string bytes = "\xdd";
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(size >> shift));
  }
  return bytes;
}

TEST(Unpacker, DeclaredLengthsBeyondTheInputAreRefusedAtOnce) {
  for (const uint32_t size : {0xffffffffU, 0x10000000U, 4097U, 4096U, 6U}) {
    EXPECT_THAT(Unpacker(HugeArray(size)).status(),
                IsInvalid("array size overflow"))
        << size;
  }
  using namespace std::string_view_literals;
  EXPECT_THAT(Unpacker("\x91\xdb\xff\xff\xff\xff"sv).status(),
              IsInvalid("msgpack"));
}

TEST(Unpacker, BoundsArraysEvenWhenTheirElementsAreThere) {
  const std::string elements(kArrayElementsMax + 1, '\x01');
  EXPECT_THAT(Unpacker(HugeArray(kArrayElementsMax + 1) + elements).status(),
              IsInvalid("array size overflow"));
  EXPECT_THAT(Unpacker(HugeArray(kArrayElementsMax) +
                       elements.substr(0, kArrayElementsMax))
                  .status(),
              IsOk());
}

TEST(Unpacker, BoundsStringsEvenWhenTheirBytesAreThere) {
  const auto with_string = [](size_t size) {
    std::string bytes = "\x91\xda";
    bytes.push_back(static_cast<char>(size >> 8));
    bytes.push_back(static_cast<char>(size & 0xff));
    return bytes + std::string(size, 'x');
  };
  EXPECT_THAT(Unpacker(with_string(kStringBytesMax)).status(), IsOk());
  EXPECT_THAT(Unpacker(with_string(kStringBytesMax + 1)).status(),
              IsInvalid("str size overflow"));
}

TEST(Unpacker, BoundsTheDepthOfArrays) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '\x91') + "\x01";
  };
  EXPECT_THAT(Unpacker(nested(kArrayDepthMax)).status(), IsOk());
  EXPECT_THAT(Unpacker(nested(kArrayDepthMax + 1)).status(),
              IsInvalid("depth size overflow"));
  EXPECT_THAT(Unpacker(nested(60000)).status(),
              IsInvalid("depth size overflow"));
}

TEST(Unpacker, SurvivesRandomBytes) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (!bytes.empty() && i % 2 == 0) bytes[0] = '\x93';
    Unpacker unpacker(bytes);
    uint64_t number = 0;
    std::string text;
    unpacker.Get(number);
    unpacker.Enter();
    unpacker.Get(text);
    unpacker.Leave();
    unpacker.Get(text);
  }
}

TEST(Packer, RowsOfTheJournalMayBeLarger) {
  Packer packer(kJournalLimits);
  packer.Array(kArrayElementsMax + 1);
  for (size_t i = 0; i < kArrayElementsMax; ++i) packer.Put(uint64_t{i});
  packer.Put(std::string(kStringBytesMax + 1, 'x'));
  EXPECT_THAT(packer.status(), IsOk());
  const std::string bytes = packer.Take();
  EXPECT_THAT(Unpacker(bytes).status(), IsInvalid("array"));

  Unpacker unpacker(bytes, kJournalLimits);
  uint64_t number = 0;
  std::string text;
  for (size_t i = 0; i < kArrayElementsMax; ++i) unpacker.Get(number);
  unpacker.Get(text);
  EXPECT_THAT(unpacker.status(), IsOk());
  EXPECT_EQ(number, kArrayElementsMax - 1);
  EXPECT_EQ(text.size(), kStringBytesMax + 1);
}

// ---- lists of fields

enum class Colour { kRed, kGreen };
constexpr Colour LastOf(Colour) { return Colour::kGreen; }

struct Inner {
  int number = 3;
  bool operator==(const Inner&) const = default;
};
auto Fields(As<Inner> auto& m) { return std::tie(m.number); }

struct Outer {
  Colour colour = Colour::kRed;
  std::vector<Inner> inner;
  std::map<std::string, double> map;
  std::optional<double> optional;
  std::pair<int, std::string> pair;
  JobId job;
  bool operator==(const Outer&) const = default;
};
auto Fields(As<Outer> auto& m) {
  return std::tie(m.colour, m.inner, m.map, m.optional, m.pair, m.job);
}

absl::StatusOr<Outer> ReadOuter(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Outer outer;
  GetFields(unpacker, outer);
  if (!unpacker.ok()) return unpacker.status();
  return outer;
}

std::string Write(const Outer& outer) {
  Packer packer;
  PutField(packer, outer);
  return packer.Take();
}

TEST(Fields, EveryKindOfFieldGoesRoundTrip) {
  const Outer outer{.colour = Colour::kGreen,
                    .inner = {{1}, {2}},
                    .map = {{"a", 1.5}, {"b", 2}},
                    .optional = 0.5,
                    .pair = {9, "nine"},
                    .job = JobId(12)};
  EXPECT_EQ(ReadOuter(Write(outer)).value(), outer);
  EXPECT_EQ(ReadOuter(Write(Outer{})).value(), Outer{});
}

TEST(Fields, AnEmptyArrayIsAllDefaults) {
  EXPECT_EQ(ReadOuter("\x90").value(), Outer{});
}

TEST(Fields, AnUnknownEnumeratorIsRefused) {
  EXPECT_THAT(ReadOuter("\x91\x02"), IsInvalid("field 1 is a choice"));
}

TEST(Fields, AMapWithAKeyTwiceIsRefused) {
  Packer packer;
  packer.Array(3);
  packer.Put(0);
  packer.Array(0);
  packer.Array(2);
  for (int i = 0; i < 2; ++i) {
    packer.Array(2);
    packer.Put(std::string_view("key"));
    packer.Put(1.0);
  }
  EXPECT_THAT(ReadOuter(packer.Take()), IsInvalid("field 3 names a key twice"));
}

}  // namespace
}  // namespace gavel
