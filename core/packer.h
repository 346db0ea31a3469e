// Writes and reads one msgpack array, field by field, within bounds. The codecs
// of messages (core/codec.cc) and of journal events
// (coordinator/engine/event.cc) are made of it, through lists of fields:
// see Fields() below. Included by codecs only.
//
// Of msgpack only arrays, integers, booleans, 64-bit floats, strings and nil
// (in tails that are skipped) are read; maps, bin and ext are refused.
//
// Errors are sticky: after the first one every read gives a default, and
// status() says what went wrong. Neither throws. Not thread-safe; the Unpacker
// borrows its bytes.
#ifndef GAVEL_CORE_PACKER_H_
#define GAVEL_CORE_PACKER_H_

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"

namespace gavel {

// Bounds that both keep: elements of any one array, bytes of any one string,
// arrays within arrays.
inline constexpr size_t kArrayElementsMax = 4096;
inline constexpr size_t kStringBytesMax = 60 * 1024;
inline constexpr size_t kArrayDepthMax = 16;

// How large arrays and strings may get. Frames keep to the bounds above; rows
// of the journal, which nobody else writes, may hold a whole allocation.
struct PackLimits {
  size_t array_elements = kArrayElementsMax;
  size_t string_bytes = kStringBytesMax;
};
inline constexpr PackLimits kJournalLimits = {size_t{1} << 28, size_t{1} << 28};

// Appends values; arrays are opened with their number of elements.
class Packer {
 public:
  explicit Packer(PackLimits limits = {}) : limits_(limits) {}
  void Array(size_t elements);
  void Put(uint64_t value);
  void Put(int64_t value);
  void Put(int value) { Put(static_cast<int64_t>(value)); }
  void Put(bool value);
  void Put(double value);  // the bits are kept
  void Put(std::string_view value);
  void Put(const std::string& value) { Put(std::string_view(value)); }
  void Put(const char*) = delete;

  size_t size() const { return bytes_.size(); }
  // RESOURCE_EXHAUSTED once an array or a string was beyond the bounds: an
  // Unpacker would refuse the bytes.
  const absl::Status& status() const { return status_; }
  // The bytes; leaves the Packer empty.
  std::string Take();

 private:
  PackLimits limits_;
  std::string bytes_;
  absl::Status status_;
};

// Reads what a Packer wrote. The whole input is parsed once, by the
// constructor, which enters its outermost array. Status: INVALID_ARGUMENT,
// naming the field by its position ("field 3.1: ...", counted from 1).
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes, PackLimits limits = {});
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;
  ~Unpacker();

  // Fields of the present array, in order. Past its end they give the value
  // that `out` already has (fields are only appended).
  void Get(uint64_t& out);
  void Get(int64_t& out);
  void Get(int& out);
  void Get(bool& out);
  void Get(double& out);
  void Get(std::string& out);
  // Enters the array that is the next field, and returns its number of
  // elements; 0 if there is no such field. Leave() continues after that array,
  // even if elements are unread. Call both in pairs, also after an error.
  size_t Enter();
  void Leave();
  // Whether something was left unread in an array that was left, or in the
  // outermost one: fields that this version does not know.
  bool passed_over() const;
  // Records an error of the caller's own about the field just read.
  void Fail(std::string_view what);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  struct Parsed;  // keeps msgpack.hpp out of this header
  void Wrong(std::string_view expected);

  std::unique_ptr<Parsed> parsed_;
  bool passed_over_ = false;
  absl::Status status_;
};

// ---- Whole structs, by their lists of fields.
//
// Packed and unpacked by one list, so that the two directions can never
// disagree. A struct takes part by such a list, found by argument-dependent
// lookup:
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
// Abseil are known here.

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

#endif  // GAVEL_CORE_PACKER_H_
