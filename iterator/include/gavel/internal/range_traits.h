// What a range of batches can do, by the functions that it has. Part of
// gavel/iterator.h.
#ifndef GAVEL_INTERNAL_RANGE_TRAITS_H_
#define GAVEL_INTERNAL_RANGE_TRAITS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <type_traits>
#include <utility>

namespace torch::data {
template <typename Dataset, typename Sampler>
class StatelessDataLoader;
namespace samplers {
class DistributedRandomSampler;
class DistributedSequentialSampler;
class RandomSampler;
class SequentialSampler;
class StreamSampler;
}  // namespace samplers
}  // namespace torch::data

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

// Loaders of torch::data whose order is LibTorch's own: a function of its
// generator when the loop is begun, or of nothing.
template <class Sampler>
struct IsTorchSampler : std::false_type {};
template <>
struct IsTorchSampler<torch::data::samplers::RandomSampler> : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::SequentialSampler>
    : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::StreamSampler> : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::DistributedRandomSampler>
    : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::DistributedSequentialSampler>
    : std::true_type {};
template <class Dataset, class Sampler>
IsTorchSampler<Sampler> OrderOf(
    const torch::data::StatelessDataLoader<Dataset, Sampler>*);
std::false_type OrderOf(const void*);
template <class R>
using HasTorchOrder = decltype(OrderOf(static_cast<const R*>(nullptr)));

template <class R, class = void>
struct HasSteps : std::false_type {};
template <class R>
struct HasSteps<R, std::void_t<decltype(std::declval<const R&>().has_step())>>
    : std::true_type {};

template <class R, class = void>
struct IsNumbered : std::false_type {};
template <class R>
struct IsNumbered<
    R, std::void_t<decltype(std::declval<const R&>().loader_number()),
                   decltype(std::declval<R&>().RestartEpoch(std::string()))>>
    : std::true_type {};

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
