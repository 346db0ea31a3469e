// The tensors inside a batch, and how they come to a device. Part of
// gavel/iterator.h.
#ifndef GAVEL_INTERNAL_PLACEMENT_H_
#define GAVEL_INTERNAL_PLACEMENT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gavel/status.h"

namespace gavel::internal {

// A copy on `device` takes the place of the handle; nothing happens when the
// tensor is there already or is undefined. Throws what LibTorch throws.
GAVEL_EXPORT void PlaceTensor(at::Tensor& tensor, at::Device device);
// A copy in memory that the device reads by itself takes the place of the
// handle, where there is such memory. Any thread.
GAVEL_EXPORT void PinTensor(at::Tensor& tensor);

// Returns a hash of `before` and of the tensor's values, of which only the
// first ones count where there are many. The values of a tensor on an
// accelerator do not count. Throws what LibTorch throws.
GAVEL_EXPORT uint64_t HashTensor(uint64_t before, const at::Tensor& tensor);
GAVEL_EXPORT uint64_t HashText(const char* data, size_t size_bytes);

// Copies to a device beside what its current stream does. One thread.
class GAVEL_EXPORT CopyStream {
 public:
  explicit CopyStream(at::Device device);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  at::Device device() const;
  // As PlaceTensor(), but one that is pinned must not be written to until the
  // copy is used, which has to begin with Use().
  void Copy(at::Tensor& tensor) const;
  // Work that the device's current stream is given from now on sees the copy.
  void Use(const at::Tensor& copy);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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

// Calls visit(at::Tensor&) for each tensor in `value`.
template <class T, class Visit>
void VisitTensors(T& value, const Visit& visit) {
  if constexpr (!HoldsTensors<T>()) {
    // There is none.
  } else if constexpr (std::is_base_of_v<at::Tensor, T>) {
    visit(value);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... part) { (VisitTensors(part, visit), ...); }, value);
  } else if constexpr (IsOptional<T>::value) {
    if (value) VisitTensors(*value, visit);
  } else if constexpr (IsContainer<T>::value) {
    for (auto& part : value) VisitTensors(part, visit);
  } else {
    VisitTensors(value.data, visit);
    if constexpr (HasTarget<T>::value) VisitTensors(value.target, visit);
  }
}

template <class T>
void Place(T& value, at::Device device) {
  VisitTensors(value,
               [device](at::Tensor& tensor) { PlaceTensor(tensor, device); });
}

// A hash of a batch's tensors, or of the batch itself where that is numbers or
// text; 0: it can't be told.
template <class T>
uint64_t FingerprintOf(const T& batch) {
  if constexpr (HoldsTensors<T>()) {
    uint64_t hash = 0;
    VisitTensors(const_cast<T&>(batch), [&hash](const at::Tensor& tensor) {
      hash = HashTensor(hash, tensor);
    });
    return hash;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    const T value = batch;
    return HashText(reinterpret_cast<const char*>(&value), sizeof(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string>) {
    const std::string text = batch;
    return HashText(text.data(), text.size());
  } else if constexpr (IsContainer<T>::value) {
    uint64_t hash = 1;
    for (const auto& part : batch) {
      const uint64_t both[] = {hash, FingerprintOf(part)};
      if (both[1] == 0) return 0;
      hash = HashText(reinterpret_cast<const char*>(both), sizeof(both));
    }
    return hash;
  } else {
    return 0;
  }
}

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_PLACEMENT_H_
