// What a range of batches can do, by the functions that it has. Part of
// gavel/iterator.h.
#ifndef GAVEL_INTERNAL_RANGE_TRAITS_H_
#define GAVEL_INTERNAL_RANGE_TRAITS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <type_traits>
#include <utility>

namespace gavel::internal {

template <class R, class = void>
struct IsPositioned : std::false_type {};
template <class R>
struct IsPositioned<
    R, std::void_t<decltype(std::declval<const R&>().SavePosition()),
                   decltype(std::declval<R&>().LoadPosition(std::string()))>>
    : std::true_type {};

template <class R, class = void>
struct IsSharded : std::false_type {};
template <class R>
struct IsSharded<R, std::void_t<decltype(std::declval<R&>().SetShard(0, 1))>>
    : std::true_type {};

template <class R, class = void>
struct HasMicroBatches : std::false_type {};
template <class R>
struct HasMicroBatches<
    R, std::void_t<decltype(std::declval<const R&>().last_micro_batch()),
                   decltype(std::declval<const R&>().loss_scale())>>
    : std::true_type {};

template <class R, class = void>
struct HasGlobalBatch : std::false_type {};
template <class R>
struct HasGlobalBatch<
    R, std::void_t<decltype(std::declval<const R&>().global_batch_size())>>
    : std::true_type {};

template <class R, class = void>
struct IsPlaced : std::false_type {};
template <class R>
struct IsPlaced<R, std::void_t<decltype(std::declval<R&>().SetDevice(
                       std::declval<at::Device>()))>> : std::true_type {};

// torch::data::DataLoaderBase, which this header does not include.
template <class R, class = void>
struct IsTorchDataLoader : std::false_type {};
template <class R>
struct IsTorchDataLoader<
    R, std::void_t<typename R::BatchRequestType, typename R::BatchType,
                   decltype(std::declval<R&>().options())>> : std::true_type {};

// torch::data's iterators give a reference to a batch that is used once.
template <class R, class Inner>
decltype(auto) TakeBatch(Inner& inner) {
  if constexpr (IsTorchDataLoader<R>::value) {
    return std::move(*inner);
  } else {
    return *inner;
  }
}

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_RANGE_TRAITS_H_
