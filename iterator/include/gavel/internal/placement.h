// Moves the tensors inside a batch to a device. Part of gavel/iterator.h.
#ifndef GAVEL_INTERNAL_PLACEMENT_H_
#define GAVEL_INTERNAL_PLACEMENT_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gavel/status.h"

namespace gavel::internal {

// A copy on `device` takes the place of the handle; nothing happens when the
// tensor is there already or is undefined. Throws what LibTorch throws.
GAVEL_EXPORT void PlaceTensor(at::Tensor& tensor, at::Device device);

template <class T, class = void>
struct IsTuple : std::false_type {};
template <class T>
struct IsTuple<T, std::void_t<decltype(std::tuple_size<T>::value)>>
    : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T, class = void>
struct IsContainer : std::false_type {};
template <class T>
struct IsContainer<
    T, std::void_t<typename T::value_type, decltype(std::declval<T&>().begin()),
                   decltype(std::declval<T&>().end())>> : std::true_type {};

// Members, not functions, of these names.
template <class T, class = void>
struct HasData : std::false_type {};
template <class T>
struct HasData<T, std::void_t<decltype(T::data)>>
    : std::is_member_object_pointer<decltype(&T::data)> {};
template <class T, class = void>
struct HasTarget : std::false_type {};
template <class T>
struct HasTarget<T, std::void_t<decltype(T::target)>>
    : std::is_member_object_pointer<decltype(&T::target)> {};

template <class T>
constexpr bool HoldsTensors();

template <class Tuple, size_t... i>
constexpr bool AnyHoldsTensors(std::index_sequence<i...>) {
  return (HoldsTensors<std::tuple_element_t<i, Tuple>>() || ...);
}

template <class T>
constexpr bool HoldsTensors() {
  if constexpr (std::is_const_v<T> || !std::is_class_v<T>) {
    return false;
  } else if constexpr (std::is_base_of_v<at::Tensor, T>) {
    return true;
  } else if constexpr (IsTuple<T>::value) {
    return AnyHoldsTensors<T>(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (IsOptional<T>::value || IsContainer<T>::value) {
    return HoldsTensors<typename T::value_type>();
  } else if constexpr (HasData<T>::value && HasTarget<T>::value) {
    return HoldsTensors<decltype(T::data)>() ||
           HoldsTensors<decltype(T::target)>();
  } else if constexpr (HasData<T>::value) {
    return HoldsTensors<decltype(T::data)>();
  } else {
    return false;
  }
}

template <class T>
void Place(T& value, at::Device device) {
  if constexpr (!HoldsTensors<T>()) {
    // Nothing to move.
  } else if constexpr (std::is_base_of_v<at::Tensor, T>) {
    PlaceTensor(value, device);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([device](auto&... part) { (Place(part, device), ...); }, value);
  } else if constexpr (IsOptional<T>::value) {
    if (value) Place(*value, device);
  } else if constexpr (IsContainer<T>::value) {
    for (auto& part : value) Place(part, device);
  } else {
    Place(value.data, device);
    if constexpr (HasTarget<T>::value) Place(value.target, device);
  }
}

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_PLACEMENT_H_
