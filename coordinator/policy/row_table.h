// A hash table that numbers rows, so that equal rows have the same number. The
// table stores hashes only: rows stay with the caller, which compares those
// with equal hashes. Called by JobRows, job_classes.h and PriceClasses. A value
// without locks.
#ifndef GAVEL_COORDINATOR_POLICY_ROW_TABLE_H_
#define GAVEL_COORDINATOR_POLICY_ROW_TABLE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace gavel {

// Returns the hash of a row that is extended by `value`, given the hash of the
// row so far. -0 and 0 give the same hash.
inline uint64_t AddToHash(uint64_t hash, double value) {
  hash ^= std::bit_cast<uint64_t>(value + 0.0);
  hash *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads the bits
  return hash ^ (hash >> 29);
}

inline uint64_t AddToHash(uint64_t hash, std::span<const double> values) {
  for (const double value : values) hash = AddToHash(hash, value);
  return hash;
}

class RowTable {
 public:
  // Returns the number of the row that has this hash and for which
  // is_row(number) is true. If there is none, the row is new and gets the next
  // number, which is size() before the call.
  template <class IsRow>
  uint32_t Number(uint64_t hash, IsRow is_row) {
    if (2 * hashes_.size() >= slots_.size()) Grow();
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != kEmptySlot; slot = Next(slot)) {
      const uint32_t number = slots_[slot];
      if (hashes_[number] == hash && is_row(number)) return number;
    }
    slots_[slot] = static_cast<uint32_t>(hashes_.size());
    hashes_.push_back(hash);
    return slots_[slot];
  }
  size_t size() const { return hashes_.size(); }

 private:
  static constexpr uint32_t kEmptySlot = std::numeric_limits<uint32_t>::max();

  size_t Next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void Grow() {
    constexpr size_t kSlotsMin = 64;
    slots_.assign(slots_.empty() ? kSlotsMin : 4 * slots_.size(), kEmptySlot);
    for (size_t number = 0; number < hashes_.size(); ++number) {
      size_t slot = hashes_[number] & (slots_.size() - 1);
      while (slots_[slot] != kEmptySlot) slot = Next(slot);
      slots_[slot] = static_cast<uint32_t>(number);
    }
  }

  std::vector<uint64_t> hashes_;  // by number
  // Open addressing. The number of slots is a power of two, and at most half of
  // them are used.
  std::vector<uint32_t> slots_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_ROW_TABLE_H_
