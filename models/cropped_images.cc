#include "models/cropped_images.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <random>
#include <utility>

namespace gavel::models {
namespace {

constexpr double kCenterFraction = 224.0 / 256.0;
constexpr double kJitterFraction = 256.0 / 286.0;

std::mt19937_64 RandomOf(uint64_t seed, int64_t epoch, size_t index) {
  const auto epoch_bits = static_cast<uint64_t>(epoch);
  std::seed_seq seeds{static_cast<uint32_t>(seed),
                      static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(epoch_bits),
                      static_cast<uint32_t>(epoch_bits >> 32),
                      static_cast<uint32_t>(index),
                      static_cast<uint32_t>(index >> 32)};
  return std::mt19937_64(seeds);
}

CropBox BoxOf(const RgbImage& image, const CropOptions& options,
              std::mt19937_64& random) {
  switch (options.crop) {
    case Crop::kRandom:
      return RandomCrop(image.height, image.width, options.area_min, random);
    case Crop::kCenter:
      return CenterCrop(image.height, image.width, kCenterFraction);
    case Crop::kJitter:
      return PlacedCrop(image.height, image.width, kJitterFraction, random);
    case Crop::kWhole:
      break;
  }
  return {0, 0, image.height, image.width};
}

at::Tensor Cut(const RgbImage& image, const CropOptions& options,
               std::mt19937_64& random) {
  const CropBox box = BoxOf(image, options, random);
  const bool flips =
      options.crop == Crop::kRandom || options.crop == Crop::kJitter;
  const bool flip = flips && RandomFlip(random);
  return ScaledTensor(image, box, options.side, options.side, flip,
                      options.normalization);
}

}  // namespace

CroppedImages::CroppedImages(ImageSource source, CropOptions options)
    : source_(std::move(source)), options_(options) {}

Example CroppedImages::get(size_t index, int64_t epoch) const {
  const LabelledImage one = source_.read(index);
  std::mt19937_64 random = RandomOf(options_.seed, epoch, index);
  return {Cut(one.image, options_, random),
          at::scalar_tensor(one.label, at::TensorOptions(at::kLong))};
}

UnpairedImages::UnpairedImages(ImageSource first, ImageSource second,
                               CropOptions options)
    : first_(std::move(first)), second_(std::move(second)), options_(options) {}

size_t UnpairedImages::size() const {
  return std::max(first_.size, second_.size);
}

Example UnpairedImages::get(size_t index, int64_t epoch) const {
  std::mt19937_64 random = RandomOf(options_.seed, epoch, index);
  const size_t other = static_cast<size_t>(random() % second_.size);
  const LabelledImage first = first_.read(index % first_.size);
  const LabelledImage second = second_.read(other);
  at::Tensor data = Cut(first.image, options_, random);
  return {std::move(data), Cut(second.image, options_, random)};
}

}  // namespace gavel::models
