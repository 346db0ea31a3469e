#include "models/rgb_image.h"

#include <ATen/ops/empty.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel::models {
namespace {

struct DestroyJpegHandle {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using JpegHandle = std::unique_ptr<void, DestroyJpegHandle>;

const uint8_t* JpegData(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

absl::Status Damaged(void* handle) {
  return absl::InvalidArgumentError(
      StrCat("not a whole JPEG image (", tjGetErrorStr2(handle), ")"));
}

// Adobe's CMYK, which is stored inverted: full ink is 0.
void KeepColour(const std::vector<uint8_t>& inks, std::vector<uint8_t>* rgb) {
  for (size_t pixel = 0; pixel < inks.size() / 4; ++pixel) {
    const int key = inks[4 * pixel + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      (*rgb)[3 * pixel + channel] =
          static_cast<uint8_t>(inks[4 * pixel + channel] * key / 255);
    }
  }
}

}  // namespace

absl::StatusOr<RgbImage> DecodeJpeg(std::string_view bytes) {
  const JpegHandle handle(tjInitDecompress());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(handle.get(), JpegData(bytes), bytes.size(), &width,
                          &height, &subsampling, &colours) != 0) {
    return Damaged(handle.get());
  }
  if (width < 1 || height < 1) {
    return absl::InvalidArgumentError(
        "not a whole JPEG image (it has no size)");
  }
  if (width > kImageSideMax || height > kImageSideMax) {
    return absl::InvalidArgumentError(
        StrCat("an image of ", width, " x ", height, " pixels, at most ",
               kImageSideMax, " a side are read; scale it down"));
  }
  RgbImage image{height, width, {}};
  const size_t pixels =
      static_cast<size_t>(width) * static_cast<size_t>(height);
  image.pixels.resize(pixels * 3);
  const bool has_inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<uint8_t> inks(has_inks ? pixels * 4 : 0);
  // By default TurboJPEG only warns about a file that ends too early, and fills
  // the rest with grey, hence TJFLAG_STOPONWARNING.
  if (tjDecompress2(handle.get(), JpegData(bytes), bytes.size(),
                    has_inks ? inks.data() : image.pixels.data(), width, 0,
                    height, has_inks ? TJPF_CMYK : TJPF_RGB,
                    TJFLAG_STOPONWARNING) != 0) {
    return Damaged(handle.get());
  }
  if (has_inks) KeepColour(inks, &image.pixels);
  return image;
}

std::string EncodeJpeg(const RgbImage& image, int quality) {
  const JpegHandle handle(tjInitCompress());
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): TurboJPEG's
  std::string encoded;
  if (tjCompress2(handle.get(), image.pixels.data(),
                  static_cast<int>(image.width), 0,
                  static_cast<int>(image.height), TJPF_RGB, &bytes, &size,
                  TJSAMP_420, quality, TJFLAG_ACCURATEDCT) == 0) {
    encoded.assign(reinterpret_cast<const char*>(bytes), size);
  }
  tjFree(bytes);
  return encoded;
}

namespace {

constexpr int kChannels = 3;
constexpr double kRatioMax = 4.0 / 3.0;
constexpr int kCropAttempts = 10;

// In [0, 1); the same with every standard library.
double DrawUnit(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

double DrawBetween(double low, double high, std::mt19937_64& random) {
  return low + (high - low) * DrawUnit(random);
}

// Draws an integer from 0 to `last`.
int64_t DrawUpTo(int64_t last, std::mt19937_64& random) {
  return std::min(last, static_cast<int64_t>(DrawUnit(random) *
                                             static_cast<double>(last + 1)));
}

// The inputs of one output, and their weights, which add up to 1.
struct Weights {
  int64_t first = 0;
  std::vector<float> shares;
};

// The triangle filter along one side of `in` pixels that becomes `out`.
std::vector<Weights> TriangleWeights(int64_t in, int64_t out, bool reverse) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  std::vector<Weights> weights(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min(in, static_cast<int64_t>(center + support + 0.5));
    Weights& one = weights[static_cast<size_t>(reverse ? out - 1 - i : i)];
    one.first = first;
    double sum = 0;
    for (int64_t j = first; j < end; ++j) {
      const double distance = (static_cast<double>(j) + 0.5 - center) / support;
      const double share = std::max(0.0, 1 - std::abs(distance));
      one.shares.push_back(static_cast<float>(share));
      sum += share;
    }
    for (float& share : one.shares) share /= static_cast<float>(sum);
  }
  return weights;
}

}  // namespace

CropBox CenterCrop(int64_t height, int64_t width, double fraction) {
  const int64_t shorter = std::min(height, width);
  const auto side = std::clamp<int64_t>(
      std::llround(fraction * static_cast<double>(shorter)), 1, shorter);
  return {(height - side) / 2, (width - side) / 2, side, side};
}

CropBox RandomCrop(int64_t height, int64_t width, double scale_min,
                   std::mt19937_64& random) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < kCropAttempts; ++attempt) {
    const double part = area * DrawBetween(scale_min, 1, random);
    const double log_ratio = std::log(kRatioMax);
    const double ratio = std::exp(DrawBetween(-log_ratio, log_ratio, random));
    const int64_t crop_width = std::llround(std::sqrt(part * ratio));
    const int64_t crop_height = std::llround(std::sqrt(part / ratio));
    if (crop_width < 1 || crop_width > width || crop_height < 1 ||
        crop_height > height) {
      continue;
    }
    const int64_t top = DrawUpTo(height - crop_height, random);
    const int64_t left = DrawUpTo(width - crop_width, random);
    return {top, left, crop_height, crop_width};
  }
  return CenterCrop(height, width, 1);  // of a very long image
}

CropBox PlacedCrop(int64_t height, int64_t width, double fraction,
                   std::mt19937_64& random) {
  const auto part = [fraction](int64_t side) {
    return std::clamp<int64_t>(
        std::llround(fraction * static_cast<double>(side)), 1, side);
  };
  CropBox box{0, 0, part(height), part(width)};
  box.top = DrawUpTo(height - box.height, random);
  box.left = DrawUpTo(width - box.width, random);
  return box;
}

bool RandomFlip(std::mt19937_64& random) { return random() >> 63 != 0; }

at::Tensor ScaledTensor(const RgbImage& image, const CropBox& box,
                        int64_t height, int64_t width, bool flip,
                        const Normalization& normalization) {
  const auto columns = TriangleWeights(box.width, width, flip);
  const auto rows = TriangleWeights(box.height, height, false);
  // Along the rows first: [box.height, width, channels].
  std::vector<float> narrow(
      static_cast<size_t>(box.height * width * kChannels));
  float* out = narrow.data();
  for (int64_t y = 0; y < box.height; ++y) {
    const uint8_t* row = image.pixels.data() +
                         ((box.top + y) * image.width + box.left) * kChannels;
    for (const Weights& column : columns) {
      const uint8_t* pixel = row + column.first * kChannels;
      float sums[kChannels] = {};
      for (const float share : column.shares) {
        for (const int channel : {0, 1, 2}) {
          sums[channel] += share * static_cast<float>(pixel[channel]);
        }
        pixel += kChannels;
      }
      out = std::copy_n(sums, kChannels, out);
    }
  }
  const at::Tensor tensor =
      at::empty({kChannels, height, width}, at::TensorOptions(at::kFloat));
  auto* const values = static_cast<float*>(tensor.data_ptr());
  const int64_t stride = width * kChannels;
  std::vector<float> sums(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y) {
    const Weights& one = rows[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.0F);
    const float* row = narrow.data() + one.first * stride;
    for (const float share : one.shares) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += share * row[i];
      row += stride;
    }
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      const auto index = static_cast<size_t>(channel);
      const float scale = 1 / (255 * normalization.deviation[index]);
      const float shift =
          normalization.mean[index] / normalization.deviation[index];
      float* const to = values + (channel * height + y) * width;
      for (int64_t x = 0; x < width; ++x) {
        to[x] =
            sums[static_cast<size_t>(x * kChannels + channel)] * scale - shift;
      }
    }
  }
  return tensor;
}

}  // namespace gavel::models
