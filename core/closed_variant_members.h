// The members of ClosedVariant. Included by the one file that compiles those of
// a variant.
#ifndef GAVEL_CORE_CLOSED_VARIANT_MEMBERS_H_
#define GAVEL_CORE_CLOSED_VARIANT_MEMBERS_H_

#include "core/closed_variant.h"

namespace gavel {
namespace internal {

template <class V, size_t... place>
V MoveOutOf(size_t wanted, void* value, std::index_sequence<place...>) {
  using Make = V (*)(void*);
  static constexpr Make kMakers[] = {[](void* from) {
    using T = std::variant_alternative_t<place, V>;
    return V(std::in_place_index<place>, std::move(*static_cast<T*>(from)));
  }...};
  return kMakers[wanted](value);
}

}  // namespace internal

template <class V>
ClosedVariant<V>::ClosedVariant() = default;

template <class V>
ClosedVariant<V>::ClosedVariant(const ClosedVariant& other) = default;

template <class V>
ClosedVariant<V>::ClosedVariant(ClosedVariant&& other) noexcept = default;

template <class V>
ClosedVariant<V>& ClosedVariant<V>::operator=(const ClosedVariant& other) =
    default;

template <class V>
ClosedVariant<V>& ClosedVariant<V>::operator=(ClosedVariant&& other) noexcept =
    default;

template <class V>
ClosedVariant<V>::~ClosedVariant() = default;

template <class V>
ClosedVariant<V>::ClosedVariant(size_t place, void* value)
    : V(internal::MoveOutOf<V>(
          place, value, std::make_index_sequence<std::variant_size_v<V>>())) {}

}  // namespace gavel

#endif  // GAVEL_CORE_CLOSED_VARIANT_MEMBERS_H_
