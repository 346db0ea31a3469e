#include "models/synthetic_images.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <string>

namespace gavel::models {
namespace {

using Colour = std::array<double, 3>;  // red, green, blue in [0, 1]

constexpr int64_t kHues = 5;

class Draw {
 public:
  Draw(uint64_t seed, size_t index) : random_(Seeded(seed, index)) {}
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }

 private:
  static std::mt19937_64 Seeded(uint64_t seed, size_t index) {
    std::seed_seq seeds{
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
        static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
    return std::mt19937_64(seeds);
  }
  std::mt19937_64 random_;
};

// A full colour of the circle; `turn` in [0, 1).
Colour HueColour(double turn) {
  Colour colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    const double angle =
        2 * std::numbers::pi * (turn - static_cast<double>(channel) / 3);
    colour[channel] = 0.5 + 0.5 * std::cos(angle);
  }
  return colour;
}

RgbImage Empty(int64_t side) {
  RgbImage image{side, side, {}};
  image.pixels.resize(static_cast<size_t>(side * side * 3));
  return image;
}

void SetPixel(RgbImage* image, int64_t y, int64_t x, const Colour& colour) {
  for (size_t channel = 0; channel < 3; ++channel) {
    const double level = std::clamp(colour[channel], 0.0, 1.0);
    image->pixels[static_cast<size_t>((y * image->width + x) * 3) + channel] =
        static_cast<uint8_t>(std::lround(255 * level));
  }
}

LabelledImage Stripes(const SyntheticImagesOptions& options, size_t index) {
  const auto label = static_cast<int64_t>(index) % (2 * kHues);
  const bool upright = label >= kHues;
  Draw draw(options.seed, index);
  const Colour hue =
      HueColour(static_cast<double>(label % kHues) / double{kHues});
  const double period = draw.Between(5, 12);
  const double phase = draw.Between(0, 2 * std::numbers::pi);
  const double light = draw.Between(0.5, 1);
  LabelledImage one{Empty(options.side), label};
  for (int64_t y = 0; y < options.side; ++y) {
    for (int64_t x = 0; x < options.side; ++x) {
      const double along = static_cast<double>(upright ? x : y);
      const double wave =
          0.5 + 0.5 * std::sin(2 * std::numbers::pi * along / period + phase);
      Colour colour;
      for (size_t channel = 0; channel < 3; ++channel) {
        colour[channel] =
            light * wave * hue[channel] + draw.Between(-0.15, 0.15);
      }
      SetPixel(&one.image, y, x, colour);
    }
  }
  return one;
}

struct Disc {
  double y, x, radius;
};

LabelledImage Discs(Style style, const SyntheticImagesOptions& options,
                    size_t index) {
  Draw draw(options.seed, index);
  const auto side = static_cast<double>(options.side);
  std::vector<Disc> discs(1 + static_cast<size_t>(draw.Between(0, 3)));
  for (Disc& disc : discs) {
    disc.radius = side * draw.Between(0.1, 0.25);
    disc.y = draw.Between(0, side);
    disc.x = draw.Between(0, side);
  }
  const bool blue = style == Style::kBlue;
  const Colour ground = blue ? Colour{0.5, 0.75, 1} : Colour{1, 0.75, 0.4};
  const Colour front = blue ? Colour{0, 0.1, 0.4} : Colour{0.4, 0.1, 0};
  LabelledImage one{Empty(options.side), 0};
  for (int64_t y = 0; y < options.side; ++y) {
    for (int64_t x = 0; x < options.side; ++x) {
      const bool inside =
          std::any_of(discs.begin(), discs.end(), [&](const Disc& disc) {
            return std::hypot(static_cast<double>(y) - disc.y,
                              static_cast<double>(x) - disc.x) < disc.radius;
          });
      Colour colour = inside ? front : ground;
      for (double& level : colour) level += draw.Between(-0.05, 0.05);
      SetPixel(&one.image, y, x, colour);
    }
  }
  return one;
}

}  // namespace

ImageSource StripeImages(const SyntheticImagesOptions& options) {
  ImageSource source;
  source.size = options.size;
  for (const char* direction : {"lying", "upright"}) {
    for (int64_t hue = 0; hue < kHues; ++hue) {
      source.classes.push_back(direction + std::to_string(hue));
    }
  }
  source.read = [options](size_t index) { return Stripes(options, index); };
  source.broken_count = [] { return int64_t{0}; };
  return source;
}

ImageDataset StripeDataset(const SyntheticImagesOptions& options) {
  const auto size = static_cast<int64_t>(options.size);
  // As the pixels come: [size, height, width, channels].
  at::Tensor images =
      at::empty({size, options.side, options.side, 3}, at::kByte);
  at::Tensor labels = at::empty({size}, at::kLong);
  auto* pixels = images.mutable_data_ptr<uint8_t>();
  for (int64_t index = 0; index < size; ++index) {
    const LabelledImage one = Stripes(options, static_cast<size_t>(index));
    pixels =
        std::copy(one.image.pixels.begin(), one.image.pixels.end(), pixels);
    labels.mutable_data_ptr<int64_t>()[index] = one.label;
  }
  return ImageDataset(images.permute({0, 3, 1, 2}).contiguous(), labels,
                      2 * kHues);
}

ImageSource DiscImages(Style style, const SyntheticImagesOptions& options) {
  ImageSource source;
  source.size = options.size;
  source.classes = {style == Style::kBlue ? "blue" : "orange"};
  source.read = [style, options](size_t index) {
    return Discs(style, options, index);
  };
  source.broken_count = [] { return int64_t{0}; };
  return source;
}

}  // namespace gavel::models
