// Pictures that are made up, for trainers that run without any download: a
// function of (seed, index) alone. Whoever prints a result on them says that it
// is synthetic.
#ifndef GAVEL_MODELS_SYNTHETIC_IMAGES_H_
#define GAVEL_MODELS_SYNTHETIC_IMAGES_H_

#include <cstddef>
#include <cstdint>

#include "models/image_dataset.h"
#include "models/image_source.h"

namespace gavel::models {

struct SyntheticImagesOptions {
  size_t size = 0;    // images, > 0
  int64_t side = 48;  // pixels, >= 8
  uint64_t seed = 0;
};

// Ten classes: stripes of five hues, upright or lying, of any width and
// brightness, in noise. Neither the hue nor the direction alone tells the
// class, and both stay what they are in a mirrored part of the image.
ImageSource StripeImages(const SyntheticImagesOptions& options);

// The same, all in memory.
ImageDataset StripeDataset(const SyntheticImagesOptions& options);

// Scenes of a few dark discs on a light ground, in blue or in orange. What
// there is to see (how many, where, how large) is the same at the same index
// and seed in both styles: that tells how good a translation is.
enum class Style : uint8_t { kBlue, kOrange };
ImageSource DiscImages(Style style, const SyntheticImagesOptions& options);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_SYNTHETIC_IMAGES_H_
