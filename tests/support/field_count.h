// FieldCount<T>: how many members the aggregate T has, from how many
// initialisers it takes. Tells when a list of fields forgot one.
#ifndef GAVEL_TESTS_SUPPORT_FIELD_COUNT_H_
#define GAVEL_TESTS_SUPPORT_FIELD_COUNT_H_

#include <cstddef>
#include <utility>

namespace gavel::testing {

struct AnyValue {
  template <class T>
  operator T() const;  // never called
};

template <class T, size_t... index>
constexpr bool TakesInitialisers(std::index_sequence<index...>) {
  return requires { T{(static_cast<void>(index), AnyValue{})...}; };
}

template <class T, size_t count = 0>
constexpr size_t FieldCount() {
  if constexpr (TakesInitialisers<T>(std::make_index_sequence<count + 1>())) {
    return FieldCount<T, count + 1>();
  } else {
    return count;
  }
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_FIELD_COUNT_H_
