// Sorts by a 64-bit key, and entries of equal keys by a comparison: for the
// candidates of large rounds and the demands of many jobs. Pure functions.
#ifndef GAVEL_CORE_RADIX_SORT_H_
#define GAVEL_CORE_RADIX_SORT_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gavel {

// Maps finite doubles and infinities to integers in the same order. 0 and -0
// give the same integer.
inline uint64_t OrderedBits(double value) {
  const auto bits = std::bit_cast<uint64_t>(value + 0.0);
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// The inverse of OrderedBits.
inline double FromOrderedBits(uint64_t ordered) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return std::bit_cast<double>((ordered & kSign) != 0 ? ordered & ~kSign
                                                      : ~ordered);
}

// Sorts by `before`, which must order by Entry::key first. The radix passes use
// only the highest kRadixPasses digits among the bits in which keys differ, the
// least significant of them first. Entries that are equal in these digits are
// then sorted by `before`.
inline constexpr int kRadixBits = 11;
inline constexpr int kRadixPasses = 2;
inline constexpr size_t kRadixSortMin = 1024;  // below it std::sort is faster

template <class Entry, class Before>
void RadixSort(std::span<Entry> entries, Before before) {
  if (entries.size() < kRadixSortMin) {
    return std::sort(entries.begin(), entries.end(), before);
  }
  uint64_t differ = 0;
  for (const Entry& entry : entries) differ |= entry.key ^ entries[0].key;
  const int shift =
      std::max(0, 64 - std::countl_zero(differ) - kRadixPasses * kRadixBits);
  constexpr size_t kDigits = size_t{1} << kRadixBits;
  std::vector<Entry> other(entries.size());
  std::span<Entry> from = entries;
  std::span<Entry> to = other;
  for (int pass = 0; pass < kRadixPasses; ++pass) {
    const int low = std::min(63, shift + pass * kRadixBits);
    const auto digit = [&](const Entry& entry) {
      return static_cast<size_t>(entry.key >> low) % kDigits;
    };
    std::array<uint32_t, kDigits> next{};
    for (const Entry& entry : from) ++next[digit(entry)];
    uint32_t begin = 0;
    for (uint32_t& count : next) begin += std::exchange(count, begin);
    for (const Entry& entry : from) to[next[digit(entry)]++] = entry;
    std::swap(from, to);
  }
  static_assert(kRadixPasses % 2 == 0, "the result is in `entries`");
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin + 1;
    while (end < entries.size() &&
           entries[end].key >> shift == entries[begin].key >> shift) {
      ++end;
    }
    if (end - begin > 1) {
      std::sort(entries.begin() + static_cast<std::ptrdiff_t>(begin),
                entries.begin() + static_cast<std::ptrdiff_t>(end), before);
    }
    begin = end;
  }
}

}  // namespace gavel

#endif  // GAVEL_CORE_RADIX_SORT_H_
