// Packs and unpacks whole structs by their lists of fields, so that the two
// directions can never disagree. A struct takes part by such a list, found by
// argument-dependent lookup:
//
//   auto Fields(As<Generation> auto& generation) {
//     return std::tie(generation.epoch, generation.step);
//   }
//
// and an enumeration by its last enumerator:
//
//   constexpr PauseTier LastOf(PauseTier) { return PauseTier::kKeep; }
//
// A struct becomes an array of its fields; Fields() is only ever appended to.
// Ids, pairs, optionals, the containers of the standard library and maps of
// Abseil are known here. Included by codecs only: core/message_fields.h and the
// engine's event codec.
#ifndef GAVEL_CORE_FIELDS_H_
#define GAVEL_CORE_FIELDS_H_

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/packer.h"

namespace gavel {

// T is S or const S.
template <class T, class S>
concept As = std::same_as<std::remove_const_t<T>, S>;

template <class T>
concept HasFields = requires(T& value) {
  Fields(value);
};

template <class T>
concept PackedDirectly = std::same_as<T, uint64_t> ||
    std::same_as<T, int64_t> || std::same_as<T, int> || std::same_as<T, bool> ||
    std::same_as<T, double> || std::same_as<T, std::string>;

template <class T>
concept Enumeration = std::is_enum_v<T>;

// std::vector and std::deque.
template <class C>
concept Sequence = !std::same_as<C, std::string> && requires(C & values) {
  values.push_back(std::declval<typename C::value_type>());
};

// Maps, multimaps and sets of the standard library, and Abseil's tree
// containers.
template <class C>
concept SortedContainer = requires {
  typename C::key_compare;
};
// Hash maps. They have no order, so their entries are written in the order of
// the keys.
template <class C>
concept HashMap = requires {
  typename C::hasher;
  typename C::mapped_type;
};
template <class C>
concept KeyedContainer = SortedContainer<C> || HashMap<C>;
// Maps that hold each key at most once.
template <class C>
concept MapOfUniqueKeys = KeyedContainer<C> && requires(C& map) {
  map[std::declval<const typename C::key_type&>()];
};
// ReadEntry<C>::Type is the type as which an entry of C is read: the key, or a
// pair of key and value.
template <class C>
struct ReadEntry {
  using Type = typename C::key_type;
};
template <KeyedContainer C>
requires requires { typename C::mapped_type; }
struct ReadEntry<C> {
  using Type = std::pair<typename C::key_type, typename C::mapped_type>;
};

// ---- GetFields() reads the fields of `out` from the array that the Unpacker
// has entered already, as it has the outermost one. GetField() enters the array
// first.

template <HasFields T>
void GetFields(Unpacker& unpacker, T& out) {
  std::apply([&](auto&... field) { (GetField(unpacker, field), ...); },
             Fields(out));
}

// ---- writing

template <PackedDirectly T>
void PutField(Packer& packer, const T& value) {
  packer.Put(value);
}

template <Enumeration T>
void PutField(Packer& packer, T value) {
  packer.Put(static_cast<uint64_t>(value));
}

template <HasFields T>
void PutField(Packer& packer, const T& value) {
  const auto fields = Fields(value);
  packer.Array(std::tuple_size_v<decltype(fields)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             fields);
}

template <class Tag>
void PutField(Packer& packer, Id<Tag> id) {
  packer.Put(id.value());
}

template <class A, class B>
void PutField(Packer& packer, const std::pair<A, B>& pair) {
  packer.Array(2);
  PutField(packer, pair.first);
  PutField(packer, pair.second);
}

template <class T>
void PutField(Packer& packer, const std::optional<T>& value) {
  packer.Array(value.has_value() ? 1 : 0);
  if (value.has_value()) PutField(packer, *value);
}

template <class C>
requires Sequence<C> || SortedContainer<C>
void PutField(Packer& packer, const C& entries) {
  packer.Array(entries.size());
  for (const auto& entry : entries) PutField(packer, entry);
}

template <HashMap C>
void PutField(Packer& packer, const C& entries) {
  std::vector<const typename C::value_type*> ordered;
  for (const auto& entry : entries) ordered.push_back(&entry);
  std::ranges::sort(
      ordered, {},
      [](const auto* entry) -> const auto& { return entry->first; });
  packer.Array(ordered.size());
  for (const auto* entry : ordered) PutField(packer, *entry);
}

// ---- reading

template <PackedDirectly T>
void GetField(Unpacker& unpacker, T& out) {
  unpacker.Get(out);
}

template <Enumeration T>
void GetField(Unpacker& unpacker, T& out) {
  auto number = static_cast<uint64_t>(out);
  unpacker.Get(number);
  if (number > static_cast<uint64_t>(LastOf(T{}))) {
    return unpacker.Fail("is a choice that this version does not know");
  }
  out = static_cast<T>(number);
}

template <HasFields T>
void GetField(Unpacker& unpacker, T& out) {
  unpacker.Enter();
  GetFields(unpacker, out);
  unpacker.Leave();
}

template <class Tag>
void GetField(Unpacker& unpacker, Id<Tag>& out) {
  uint64_t value = out.value();
  unpacker.Get(value);
  out = Id<Tag>(value);
}

template <Sequence C>
void GetField(Unpacker& unpacker, C& out) {
  const size_t size = unpacker.Enter();
  out.clear();
  for (size_t i = 0; i < size && unpacker.ok(); ++i) {
    typename C::value_type value{};
    GetField(unpacker, value);
    out.push_back(std::move(value));
  }
  unpacker.Leave();
}

template <class A, class B>
void GetField(Unpacker& unpacker, std::pair<A, B>& out) {
  unpacker.Enter();
  GetField(unpacker, out.first);
  GetField(unpacker, out.second);
  unpacker.Leave();
}

template <class T>
void GetField(Unpacker& unpacker, std::optional<T>& out) {
  out.reset();
  if (unpacker.Enter() > 0) GetField(unpacker, out.emplace());
  unpacker.Leave();
}

template <KeyedContainer C>
void GetField(Unpacker& unpacker, C& out) {
  std::vector<typename ReadEntry<C>::Type> entries;
  GetField(unpacker, entries);
  out.clear();
  for (auto& entry : entries) {
    const size_t before = out.size();
    out.insert(std::move(entry));
    if (MapOfUniqueKeys<C> && out.size() == before) {
      return unpacker.Fail("names a key twice");
    }
  }
}

}  // namespace gavel

#endif  // GAVEL_CORE_FIELDS_H_
