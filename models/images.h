// Labelled images as datasets: in memory (MNIST's IDX files, CIFAR-10), from
// folders of JPEG files, or generated, and cropped as a network takes them.
//
// All are values: copies share their data, which nobody writes after
// construction, so that several threads may read.
#ifndef GAVEL_MODELS_IMAGES_H_
#define GAVEL_MODELS_IMAGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/dataset.h"
#include "models/rgb_image.h"

namespace gavel::models {

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
