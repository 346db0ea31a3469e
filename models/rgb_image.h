// One picture of a JPEG file: decoding, cropping, and scaling into a tensor.
// The code uses libjpeg-turbo and no operator of LibTorch, so that loader
// threads do not start further threads.
//
// The functions keep no state and are thread-safe.
#ifndef GAVEL_MODELS_RGB_IMAGE_H_
#define GAVEL_MODELS_RGB_IMAGE_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel::models {

// Pixels in rows from the top, 3 bytes each: red, green, blue.
struct RgbImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // height * width * 3
};

inline constexpr int64_t kImageSideMax = 20'000;

// Decodes colour, grey and CMYK files. INVALID_ARGUMENT, without a file's name:
// not a JPEG, truncated, damaged, or wider or higher than kImageSideMax.
absl::StatusOr<RgbImage> DecodeJpeg(std::string_view bytes);

// `quality`: 1 to 100. For tests and generated data.
std::string EncodeJpeg(const RgbImage& image, int quality = 95);

// A rectangle in an image, in pixels.
struct CropBox {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const CropBox&, const CropBox&) = default;
};

// A part of `scale_min` to all of the area, of an aspect ratio from 3/4 to 4/3,
// anywhere in the image. C. Szegedy et al., Going Deeper with Convolutions,
// CVPR 2015, section 6. `scale_min`: in (0, 1].
CropBox RandomCrop(int64_t height, int64_t width, double scale_min,
                   std::mt19937_64& random);

// The square in the middle that is `fraction` of the shorter side.
CropBox CenterCrop(int64_t height, int64_t width, double fraction);

// `fraction` of each side, anywhere in the image.
CropBox PlacedCrop(int64_t height, int64_t width, double fraction,
                   std::mt19937_64& random);

// True in half of the cases.
bool RandomFlip(std::mt19937_64& random);

// By channel, of values in [0, 1].
struct Normalization {
  std::array<float, 3> mean = {0.5F, 0.5F, 0.5F};
  std::array<float, 3> deviation = {0.5F, 0.5F, 0.5F};
};

// The values of ImageNet's training images, which all published networks use.
inline constexpr Normalization kImageNetNormalization = {
    {0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};

// [3, height, width] floats: the box scaled to that size (bilinear, with a
// support that grows when it shrinks, so that nothing is left out), mirrored
// when `flip`, and normalized. The box lies within the image and is not empty.
at::Tensor ScaledTensor(const RgbImage& image, const CropBox& box,
                        int64_t height, int64_t width, bool flip,
                        const Normalization& normalization);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_RGB_IMAGE_H_
