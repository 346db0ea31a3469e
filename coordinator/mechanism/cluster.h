// Servers and accelerators as the coordinator knows them. The engine owns one;
// the mechanism reads it. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_CLUSTER_H_
#define GAVEL_COORDINATOR_MECHANISM_CLUSTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/ids.h"
#include "core/locality.h"
#include "core/messages.h"

namespace gavel {

// kUnreachable: its agent is silent; quarantined until it returns and says
// what runs there. kLost: the device failed, as ForgetLost says for how long.
enum class AcceleratorState : uint8_t { kUsable, kUnreachable, kLost };

struct Accelerator {
  AcceleratorId id;
  std::string server;
  int index = 0;  // on its server
  AcceleratorInfo info;
  AcceleratorState state = AcceleratorState::kUsable;
  bool drained = false;    // for nobody to start on
  bool leaving = false;    // its agent ends: the same, until the next Join
  bool forgotten = false;  // its server was; only its id is still taken
  // Drained by the coordinator: why. And the uncorrectable errors of its memory
  // that it was drained for last.
  std::string drained_for = "";
  uint64_t errors_known = 0;
  // Drained by itself, and not only with its server: stays so when that is
  // resumed.
  bool drained_alone = false;
  // An opaque job has it until its end: policies and rounds count on the rest.
  bool reserved = false;
  std::string rack = "";  // of its server; empty: not known
  bool may_start() const {
    return state == AcceleratorState::kUsable && !drained && !leaving;
  }
  bool usable() const { return may_start() && !reserved; }
};

class Cluster {
 public:
  // Adds a server or takes it back after an absence: all its accelerators are
  // kUsable again (but kLost ones), drained ones stay so, as do new ones where
  // all others are. Accelerators keep their ids by uuid; one
  // that the server no longer declares becomes kUnreachable.
  // INVALID_ARGUMENT: duplicate uuid in `accelerators`.
  absl::Status Join(std::string_view server,
                    const std::vector<AcceleratorInfo>& accelerators,
                    std::string_view rack = "");
  // Returns the error that Join would return.
  static absl::Status CheckUuids(
      std::string_view server,
      const std::vector<AcceleratorInfo>& accelerators);
  void MarkUnreachable(std::string_view server);
  void MarkLost(AcceleratorId accelerator);
  // It was not lost after all.
  void MarkFound(AcceleratorId accelerator, bool reachable);
  // `why` empty: as before, if it is drained. `alone`: by itself; else it is
  // that as it was before.
  void SetDrained(AcceleratorId accelerator, bool drained,
                  std::string_view why = "", bool alone = false);
  void SetReserved(AcceleratorId accelerator, bool reserved);
  void NoteErrors(AcceleratorId accelerator, uint64_t errors);
  void SetLeaving(std::string_view server);
  // The server and its accelerators are no more; ids are not given again.
  void Forget(std::string_view server);
  // The server's lost accelerators are only unreachable, until the next Join.
  void ForgetLost(std::string_view server);

  // Types in the order in which they first appeared; indices stay valid for
  // ever, types with no usable accelerator left keep theirs.
  const std::vector<std::string>& types() const { return types_; }
  // Some server declares, or did, an accelerator of it.
  bool HasType(size_t type) const { return declared_.at(type) > 0; }
  // Some accelerator of it takes one process only, so no two jobs share one.
  bool IsExclusive(size_t type) const { return exclusive_.at(type) > 0; }
  // Usable accelerators of each type, [J].
  const std::vector<int>& Capacity() const { return capacity_; }
  // Index into types(); -1 when the type is unknown.
  int TypeIndex(std::string_view type) const;

  // In the order of ids, forgotten ones too. Element i has id i + 1.
  const std::vector<Accelerator>& accelerators() const { return accelerators_; }
  size_t size() const { return accelerators_.size() - forgotten_; }
  const Accelerator& accelerator(AcceleratorId id) const;
  int TypeOf(AcceleratorId id) const;
  // Invalid: there is none.
  AcceleratorId Find(std::string_view server, std::string_view uuid) const;
  // By accelerator id - 1: the index of its type, kUnusable for one that is not
  // usable().
  static constexpr uint32_t kUnusable = std::numeric_limits<uint32_t>::max();
  std::span<const uint32_t> usable_types() const { return usable_types_; }
  // Servers by name, with the ids of their accelerators.
  const std::map<std::string, std::vector<AcceleratorId>, std::less<>>&
  servers() const {
    return servers_;
  }

  // All accelerators, those of a server one after the other, servers by name.
  struct Place {
    AcceleratorId id;
    uint32_t server = 0;  // how many servers come before its own
    // Numbers from 0 of its group and of its rack; kNowhere: it is in none.
    uint32_t group = kNowhere;
    uint32_t rack = kNowhere;
  };
  static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
  const std::vector<Place>& places() const;
  // The tightest level that has all of these; that of one alone is kServer.
  Locality LevelOf(std::span<const AcceleratorId> ids) const;

  // All state, for snapshots; call CountUsable after reading it.
  template <class C>
  static auto State(C& c) {
    return std::tie(c.accelerators_, c.type_of_, c.types_, c.servers_);
  }
  void CountUsable();

 private:
  // A server's accelerator, added to its `ids` when it is new.
  AcceleratorId FindOrAdd(std::string_view server,
                          std::vector<AcceleratorId>& ids,
                          std::string_view uuid);
  // Index of `type`, added when it is new.
  int AddType(std::string_view type);
  void SetState(Accelerator& accelerator, AcceleratorState state);
  // Adds `accelerator` to the counts below, which must not have it, or takes it
  // out of them. So a change costs the same whatever the cluster's size.
  void Count(const Accelerator& accelerator);
  void Uncount(const Accelerator& accelerator);
  void AddToType(const Accelerator& accelerator, int count);
  template <class Change>
  void Alter(AcceleratorId id, const Change& change);

  std::vector<Accelerator> accelerators_;
  std::vector<int> type_of_;  // by accelerator, index into types_
  std::vector<std::string> types_;
  std::vector<uint32_t> usable_types_;  // by accelerator
  // By type: the number of accelerators that are usable, of those that are not
  // forgotten, and of exclusive ones among the latter.
  std::vector<int> capacity_;
  std::vector<int> declared_;
  std::vector<int> exclusive_;
  size_t forgotten_ = 0;  // of accelerators_
  std::map<std::string, std::vector<AcceleratorId>, std::less<>> servers_;
  mutable std::vector<Place> places_;  // made when asked for; empty: not yet
};

// Keeps a few values for each accelerator, nearly always one or none: for
// example, the jobs that have it. The engine keeps two of these. A value
// without locks: not thread-safe.

template <class T>
class ByAccelerator {
 public:
  // Returns the values of `id`, in the order in which they came. The span is
  // valid until the next change.
  std::span<const T> At(AcceleratorId id) const {
    const uint64_t index = id.value() - 1;
    if (index >= values_.size()) return {};
    return {values_[index].data(), values_[index].size()};
  }
  // Ids beyond this have no values.
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
  // As many values as fit into the space of the heap pointer and its capacity.
  static constexpr size_t kInline = std::max<size_t>(1, 16 / sizeof(T));
  std::vector<absl::InlinedVector<T, kInline>> values_;  // by id - 1
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_CLUSTER_H_
