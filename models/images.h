// Pictures of JPEG files, and labelled images as datasets: in memory (MNIST's
// IDX files, CIFAR-10), from folders of JPEG files, or generated, and cropped
// as a network takes them.
#ifndef GAVEL_MODELS_IMAGES_H_
#define GAVEL_MODELS_IMAGES_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/dataset.h"

namespace gavel::models {

// ---- One picture of a JPEG file: decoding, cropping, and scaling into a
// tensor. By libjpeg-turbo and no operator of LibTorch, so that loader threads
// do not start further threads. Functions without state, thread-safe.

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

// ---- Datasets.
//
// All are values: copies share their data, which nobody writes after
// construction, so that several threads may read.

enum class Split { kTrain, kTest };

// Labelled images in memory.
class ImageDataset {
 public:
  // `images`: [size, channels, height, width] bytes. `labels`: [size] int64,
  // each in [0, classes). size > 0.
  ImageDataset(at::Tensor images, at::Tensor labels, int64_t classes);

  size_t size() const { return static_cast<size_t>(images_.size(0)); }
  int64_t channels() const { return images_.size(1); }
  int64_t height() const { return images_.size(2); }
  int64_t width() const { return images_.size(3); }
  int64_t classes() const { return classes_; }

  // One image as floats in [-1, 1], [channels, height, width], and its label, a
  // scalar. index < size().
  Example get(size_t index) const;

  // All of them, with a first dimension of size().
  Example all() const;

 private:
  at::Tensor images_;
  at::Tensor labels_;
  int64_t classes_;
};

// Reads CIFAR-10 when the folder holds its binary files, IDX otherwise.
// NOT_FOUND or INVALID_ARGUMENT, naming the file and what to do.
absl::StatusOr<ImageDataset> ReadImageDataset(const std::string& folder,
                                              Split split);

// Images and labels in the IDX form of MNIST, of any image size: a folder with
// {train,test}-images-idx3-ubyte and {train,test}-labels-idx1-ubyte, or t10k-*
// for the test images as MNIST itself names them.
// Format: Y. LeCun et al., http://yann.lecun.com/exdb/mnist/. Big endian.
//
// NOT_FOUND: a file is missing. INVALID_ARGUMENT: wrong magic number, cut off,
// too long, a label above 9, or not one label per image.
absl::StatusOr<ImageDataset> ReadIdxDataset(const std::string& folder,
                                            Split split);

// CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin for
// training and test_batch.bin. Each is a sequence of 3,073-byte records: a
// label, then the red, green and blue planes of a 32 x 32 image.
// Format and data: https://www.cs.toronto.edu/~kriz/cifar.html

// True when the folder holds any file of CIFAR-10.
bool IsCifar10Folder(const std::string& folder);

// NOT_FOUND: a file is missing. INVALID_ARGUMENT: not whole records, none, or a
// label above 9.
absl::StatusOr<ImageDataset> ReadCifar10Dataset(const std::string& folder,
                                                Split split);

struct LabelledImage {
  RgbImage image;
  int64_t label = 0;  // index of its class
};

// Images that are read one by one. Several threads may call `read` at once,
// with an index below `size`. Its result depends on the index only.
struct ImageSource {
  size_t size = 0;
  std::vector<std::string> classes;  // their names
  std::function<LabelledImage(size_t)> read;
  // The number of files so far that can't be read. `warn` was called once for
  // each.
  std::function<int64_t()> broken_count;
};

// Called with one line per file that can't be read, perhaps by several threads
// at once.
using WarnFunction = std::function<void(const std::string&)>;

// A folder for each class, named like it, with JPEG files (.jpg, .jpeg, in any
// case), as ImageNet's train/; classes and files in the order of their names,
// other files are ignored. Files are read when they are asked for: in place of
// one that is cut off or damaged the next whole one is taken, and `warn`
// called. NOT_FOUND: no such folder. INVALID_ARGUMENT: no classes, a class
// without images, or not one image that can be read.
absl::StatusOr<ImageSource> OpenImageFolders(const std::string& folder,
                                             WarnFunction warn);

// The same of the files in one folder, whose name is the only class.
absl::StatusOr<ImageSource> OpenImageFolder(const std::string& folder,
                                            WarnFunction warn);

// CroppedImages and UnpairedImages are datasets for gavel::DataLoader. The crop
// of an image depends on (seed, epoch, index) alone, so that a restarted job
// sees the same crops.

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

// Unpaired images of two kinds: each image of `first` comes with a random one
// of `second`, another one in each epoch. The size is that of the larger
// source.
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

// Generated images let a trainer run without any download. They are a function
// of (seed, index) alone. A program that prints a result on them says that it
// is synthetic.

struct SyntheticImagesOptions {
  size_t size = 0;    // images, > 0
  int64_t side = 48;  // pixels, >= 8
  uint64_t seed = 0;
};

// Ten classes: stripes of five hues, upright or lying, of any width and
// brightness, in noise. Neither the hue nor the direction alone determines the
// class, and a mirrored crop changes neither.
ImageSource StripeImages(const SyntheticImagesOptions& options);

// The same, all in memory.
ImageDataset StripeDataset(const SyntheticImagesOptions& options);

// Scenes of a few dark discs on a light ground, in blue or in orange. With the
// same index and seed, both styles have the same discs, so that the quality of
// a translation can be measured.
enum class Style : uint8_t { kBlue, kOrange };
ImageSource DiscImages(Style style, const SyntheticImagesOptions& options);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_IMAGES_H_
