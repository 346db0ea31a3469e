#include <turbojpeg.h>

#include <memory>

#include "absl/status/status.h"
#include "core/text.h"
#include "models/rgb_image.h"

namespace gavel::models {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Destroy>;

const uint8_t* Data(std::string_view bytes) {
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
  const Handle handle(tjInitDecompress());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(handle.get(), Data(bytes), bytes.size(), &width,
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
  // A file that ends too early is a warning only, and grey from there on.
  if (tjDecompress2(handle.get(), Data(bytes), bytes.size(),
                    has_inks ? inks.data() : image.pixels.data(), width, 0,
                    height, has_inks ? TJPF_CMYK : TJPF_RGB,
                    TJFLAG_STOPONWARNING) != 0) {
    return Damaged(handle.get());
  }
  if (has_inks) KeepColour(inks, &image.pixels);
  return image;
}

std::string EncodeJpeg(const RgbImage& image, int quality) {
  const Handle handle(tjInitCompress());
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

}  // namespace gavel::models
