// Pictures as a network takes them: cut, scaled, mirrored, normalized. Datasets
// for gavel::DataLoader: what an epoch gets of an image depends on (seed,
// epoch, index) alone, so that a restart sees the same crops.
//
// Values; several threads may read.
#ifndef GAVEL_MODELS_CROPPED_IMAGES_H_
#define GAVEL_MODELS_CROPPED_IMAGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "models/example.h"
#include "models/image_source.h"

namespace gavel::models {

enum class Crop : uint8_t {
  kRandom,  // RandomCrop() from `area_min` of the area on, and RandomFlip()
  kCenter,  // a square of 7/8 of the shorter side, to test what kRandom trained
  kJitter,  // 256/286 of each side anywhere, and RandomFlip(), as CycleGAN has
  kWhole,   // the whole image, whatever its shape
};

struct CropOptions {
  Crop crop = Crop::kRandom;
  int64_t side = 224;  // of the result, which is a square
  double area_min = 0.08;
  uint64_t seed = 0;
  Normalization normalization = kImageNetNormalization;
};

class CroppedImages {
 public:
  CroppedImages(ImageSource source, CropOptions options);

  size_t size() const { return source_.size; }
  int64_t classes() const {
    return static_cast<int64_t>(source_.classes.size());
  }
  // [3, side, side] floats, and the label, a scalar.
  Example get(size_t index, int64_t epoch) const;

 private:
  ImageSource source_;
  CropOptions options_;
};

// Two kinds of pictures that do not belong together: each image of `first`
// beside one of `second`, another one in each epoch. As many as the larger
// source has.
class UnpairedImages {
 public:
  UnpairedImages(ImageSource first, ImageSource second, CropOptions options);

  size_t size() const;
  // [3, side, side] floats each: `data` of the first kind, `target` of the
  // second.
  Example get(size_t index, int64_t epoch) const;

 private:
  ImageSource first_;
  ImageSource second_;
  CropOptions options_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_CROPPED_IMAGES_H_
