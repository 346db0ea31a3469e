// A map of few entries in one piece of memory: a vector in the order of keys,
// searched from its beginning. Not thread-safe.
#ifndef GAVEL_CORE_FLAT_MAP_H_
#define GAVEL_CORE_FLAT_MAP_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace gavel {

// As std::map<K, V, std::less<>>, but that an insertion or a removal moves the
// entries.
template <class K, class V>
class FlatMap {
 public:
  using key_type = K;
  using mapped_type = V;
  using value_type = std::pair<K, V>;
  using key_compare = std::less<>;

  auto begin() { return entries_.begin(); }
  auto begin() const { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

  template <class Key>
  auto find(const Key& key) {
    return FindIn(*this, key);
  }
  template <class Key>
  auto find(const Key& key) const {
    return FindIn(*this, key);
  }
  template <class Key>
  bool contains(const Key& key) const {
    return find(key) != end();
  }
  // The entry of `key`, added when it is new.
  template <class Key>
  V& operator[](const Key& key) {
    const auto place = NotBefore(key);
    if (place != end() && place->first == key) return place->second;
    return entries_.emplace(place, K(key), V())->second;
  }
  // Where the key is there already, nothing.
  void insert(value_type entry) {
    const auto place = NotBefore(entry.first);
    if (place != end() && place->first == entry.first) return;
    entries_.insert(place, std::move(entry));
  }
  template <class Predicate>
  size_t EraseIf(Predicate predicate) {
    return std::erase_if(entries_, predicate);
  }

 private:
  template <class Map, class Key>
  static auto FindIn(Map& map, const Key& key) {
    auto place = map.begin();
    while (place != map.end() && !(place->first == key)) ++place;
    return place;
  }
  template <class Key>
  auto NotBefore(const Key& key) {
    auto place = begin();
    while (place != end() && place->first < key) ++place;
    return place;
  }

  std::vector<value_type> entries_;
};

}  // namespace gavel

#endif  // GAVEL_CORE_FLAT_MAP_H_
