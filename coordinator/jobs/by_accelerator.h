// Who has which accelerators: for each of them a few values, nearly always one
// or none. The engine keeps two. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_JOBS_BY_ACCELERATOR_H_
#define GAVEL_COORDINATOR_JOBS_BY_ACCELERATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/ids.h"

namespace gavel {

template <class T>
class ByAccelerator {
 public:
  // What is there of `id`, in the order in which it came. Until the next
  // change.
  std::span<const T> At(AcceleratorId id) const {
    const uint64_t index = id.value() - 1;
    if (index >= values_.size()) return {};
    return {values_[index].data(), values_[index].size()};
  }
  // Of ids beyond it nothing is there.
  size_t size() const { return values_.size(); }
  void Add(AcceleratorId id, T value) {
    if (values_.size() < id.value()) values_.resize(id.value());
    values_[id.value() - 1].push_back(std::move(value));
  }
  // The first one of `id` for which `is_it` holds; false: there is none.
  template <class Predicate>
  bool Remove(AcceleratorId id, Predicate is_it) {
    const std::span<const T> there = At(id);
    const auto found = std::find_if(there.begin(), there.end(), is_it);
    if (found == there.end()) return false;
    auto& values = values_[id.value() - 1];
    values.erase(values.begin() + (found - there.begin()));
    return true;
  }

  // All state, by accelerator, for snapshots.
  using Entries = std::vector<std::pair<AcceleratorId, T>>;
  // More accelerators than any cluster has.
  static constexpr uint64_t kIdMax = uint64_t{1} << 22;
  Entries ToEntries() const {
    Entries entries;
    for (size_t i = 0; i < values_.size(); ++i) {
      for (const T& value : values_[i]) {
        entries.emplace_back(AcceleratorId(i + 1), value);
      }
    }
    return entries;
  }
  // False: some are of no accelerator that can be.
  bool TakeEntries(Entries entries) {
    values_.clear();
    for (auto& [id, value] : entries) {
      if (!id.valid() || id.value() > kIdMax) return false;
      Add(id, std::move(value));
    }
    return true;
  }

 private:
  // As many as take no more room than where they are else.
  static constexpr size_t kInline = std::max<size_t>(1, 16 / sizeof(T));
  std::vector<absl::InlinedVector<T, kInline>> values_;  // by id - 1
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_JOBS_BY_ACCELERATOR_H_
