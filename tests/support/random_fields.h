// Fills every field of a struct that has a list of fields (core/packer.h) with
// values from a seeded generator, none of them its default. For round trips of
// messages and events.
#ifndef GAVEL_TESTS_SUPPORT_RANDOM_FIELDS_H_
#define GAVEL_TESTS_SUPPORT_RANDOM_FIELDS_H_

#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/packer.h"

namespace gavel::testing {

class RandomFields {
 public:
  explicit RandomFields(uint64_t seed) : random_(seed) {}

  template <HasFields T>
  void Fill(T& value) {
    std::apply([this](auto&... field) { (this->Fill(field), ...); },
               Fields(value));
  }
  // Small and huge numbers are equally likely: each has its own encoding.
  void Fill(uint64_t& value) { value = (random_() >> random_() % 63) | 1; }
  void Fill(int64_t& value) {
    value = static_cast<int64_t>(random_()) >> random_() % 62 | 1;
  }
  void Fill(int& value) {
    value = static_cast<int>(random_()) >> random_() % 30 | 2;
  }
  void Fill(bool& value) { value = true; }
  void Fill(double& value) {
    value = std::uniform_real_distribution<double>(-1e9, 1e9)(random_);
  }
  void Fill(std::string& value) {
    value.resize(1 + random_() % 40);
    for (char& c : value) c = static_cast<char>(random_());
  }
  template <Enumeration T>
  void Fill(T& value) {
    value = LastOf(T{});
  }
  template <class Tag>
  void Fill(Id<Tag>& id) {
    uint64_t value = 0;
    Fill(value);
    id = Id<Tag>(value);
  }
  template <class T>
  void Fill(std::vector<T>& values) {
    values.resize(1 + random_() % 4);
    for (T& value : values) Fill(value);
  }
  template <class A, class B>
  void Fill(std::pair<A, B>& pair) {
    Fill(pair.first);
    Fill(pair.second);
  }
  template <class T>
  void Fill(std::optional<T>& value) {
    Fill(value.emplace());
  }
  template <class K, class V>
  void Fill(std::map<K, V>& map) {
    for (size_t i = 0; i <= random_() % 4; ++i) {
      K key{};
      Fill(key);
      Fill(map[key]);
    }
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_RANDOM_FIELDS_H_
