#include "models/images.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::models {

// ---- One picture.

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

// ---- Datasets.

namespace {

constexpr int64_t kIdxClasses = 10;
// Two zero bytes, 8 for unsigned bytes, then the number of dimensions.
constexpr uint32_t kIdxMagicBase = 0x800;
constexpr size_t kIdxWordBytes = 4;

constexpr std::string_view kIdxRemedy =
    "give the folder with the four files of MNIST, unpacked (gunzip), or run "
    "./gavel-dev setup for the digits";

uint32_t IdxWordAt(std::string_view bytes, size_t index) {
  uint32_t word = 0;
  for (const char byte : bytes.substr(index * kIdxWordBytes, kIdxWordBytes)) {
    word = word << 8 | static_cast<uint8_t>(byte);
  }
  return word;
}

// Reads an IDX file of bytes into a tensor of `dimensions` dimensions.
absl::StatusOr<at::Tensor> ReadIdxFile(const std::string& path,
                                       size_t dimensions) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, kIdxRemedy));
  const size_t header_bytes = kIdxWordBytes * (1 + dimensions);
  if (bytes.size() < header_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: cut off in its header; fetch it again", path));
  }
  const auto magic = static_cast<uint32_t>(kIdxMagicBase + dimensions);
  if (IdxWordAt(bytes, 0) != magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: starts with 0x%08x and not with 0x%08x: not an IDX file of bytes "
        "in %d dimensions; is it still packed (gunzip)?",
        path, IdxWordAt(bytes, 0), magic, dimensions));
  }
  std::vector<int64_t> sizes;
  uint64_t data_bytes = 1;
  for (size_t index = 1; index <= dimensions; ++index) {
    sizes.push_back(IdxWordAt(bytes, index));
    // Both factors are at most 2^32, the second below it: no overflow.
    data_bytes =
        std::min<uint64_t>(data_bytes * IdxWordAt(bytes, index), kFileBytesMax);
  }
  if (data_bytes == 0 || bytes.size() - header_bytes != data_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: has %d bytes of data and its header says %d; fetch it again", path,
        bytes.size() - header_bytes, data_bytes));
  }
  return BytesTensor(std::string_view(bytes).substr(header_bytes)).view(sizes);
}

// The first of the usual prefixes of which there is a file.
std::string IdxPathPrefix(const std::string& folder, Split split) {
  if (split == Split::kTrain) return folder + "/train-";
  const std::string mnist = folder + "/t10k-";
  std::error_code error;
  const bool exists =
      std::filesystem::exists(mnist + "images-idx3-ubyte", error);
  return exists ? mnist : folder + "/test-";
}

}  // namespace

absl::StatusOr<ImageDataset> ReadIdxDataset(const std::string& folder,
                                            Split split) {
  const std::string prefix = IdxPathPrefix(folder, split);
  const std::string labels_path = prefix + "labels-idx1-ubyte";
  GAVEL_ASSIGN_OR_RETURN(at::Tensor images,
                         ReadIdxFile(prefix + "images-idx3-ubyte", 3));
  GAVEL_ASSIGN_OR_RETURN(at::Tensor labels, ReadIdxFile(labels_path, 1));
  if (labels.size(0) != images.size(0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d labels for %d images; the two files must be of one set",
        labels_path, labels.size(0), images.size(0)));
  }
  labels = labels.to(at::kLong);
  if (labels.max().item<int64_t>() >= kIdxClasses) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a label above %d; fetch it again", labels_path, kIdxClasses - 1));
  }
  return ImageDataset(images.unsqueeze(1), std::move(labels), kIdxClasses);
}

namespace {

constexpr int64_t kCifarClasses = 10;
constexpr int64_t kCifarChannels = 3;
constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarRecordBytes =
    1 + kCifarChannels * kCifarSide * kCifarSide;
constexpr int kCifarTrainFiles = 5;

constexpr std::string_view kCifarRemedy =
    "give the folder cifar-10-batches-bin of cifar-10-binary.tar.gz";

std::vector<std::string> CifarPaths(const std::string& folder, Split split) {
  if (split == Split::kTest) return {folder + "/test_batch.bin"};
  std::vector<std::string> paths;
  for (int file = 1; file <= kCifarTrainFiles; ++file) {
    paths.push_back(folder + "/data_batch_" + std::to_string(file) + ".bin");
  }
  return paths;
}

// Reads one file into [records, kCifarRecordBytes] bytes.
absl::StatusOr<at::Tensor> ReadCifarRecords(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, kCifarRemedy));
  if (bytes.empty() || bytes.size() % kCifarRecordBytes != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d bytes are not whole records of %d bytes; fetch it again", path,
        bytes.size(), kCifarRecordBytes));
  }
  at::Tensor records = BytesTensor(bytes).view({-1, kCifarRecordBytes});
  const auto label_max = records.select(1, 0).max().item<int64_t>();
  if (label_max >= kCifarClasses) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a label of %d, and CIFAR-10 has 0 to %d; is it CIFAR-100?", path,
        label_max, kCifarClasses - 1));
  }
  return records;
}

}  // namespace

bool IsCifar10Folder(const std::string& folder) {
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (const std::string& path : CifarPaths(folder, split)) {
      std::error_code error;
      if (std::filesystem::exists(path, error)) return true;
    }
  }
  return false;
}

absl::StatusOr<ImageDataset> ReadCifar10Dataset(const std::string& folder,
                                                Split split) {
  std::vector<at::Tensor> files;
  for (const std::string& path : CifarPaths(folder, split)) {
    GAVEL_ASSIGN_OR_RETURN(at::Tensor records, ReadCifarRecords(path));
    files.push_back(std::move(records));
  }
  const at::Tensor records = at::cat(files);
  const at::Tensor images =
      records.narrow(1, 1, kCifarRecordBytes - 1)
          .reshape({-1, kCifarChannels, kCifarSide, kCifarSide});
  return ImageDataset(images.contiguous(), records.select(1, 0).to(at::kLong),
                      kCifarClasses);
}

namespace {

// Grey levels 0..255 to -1..1.
at::Tensor Normalized(const at::Tensor& images) {
  return images.to(at::kFloat).div_(127.5).sub_(1);
}

}  // namespace

ImageDataset::ImageDataset(at::Tensor images, at::Tensor labels,
                           int64_t classes)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      classes_(classes) {}

Example ImageDataset::get(size_t index) const {
  const auto row = static_cast<int64_t>(index);
  return {Normalized(images_[row]), labels_[row]};
}

Example ImageDataset::all() const { return {Normalized(images_), labels_}; }

absl::StatusOr<ImageDataset> ReadImageDataset(const std::string& folder,
                                              Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(
        StrCat(folder,
               ": no such folder; give the one that holds the IDX or "
               "CIFAR-10 binary files"));
  }
  return IsCifar10Folder(folder) ? ReadCifar10Dataset(folder, split)
                                 : ReadIdxDataset(folder, split);
}

namespace {

namespace fs = std::filesystem;

struct ImageFile {
  std::string path;
  int64_t label = 0;
};

bool IsJpegName(const fs::path& path) {
  const std::string extension =
      absl::AsciiStrToLower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg";
}

// Lists the entries of the folder, sorted by name.
absl::StatusOr<std::vector<fs::path>> EntriesOf(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(
        StrCat(folder, ": no such folder; give one with JPEG images"));
  }
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    return absl::FailedPreconditionError(
        StrCat(folder, ": can't be listed: ", error.message()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

absl::Status AppendImages(const std::string& folder, int64_t label,
                          std::vector<ImageFile>* files) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<fs::path> entries,
                         EntriesOf(folder));
  const size_t before = files->size();
  for (const fs::path& path : entries) {
    if (IsJpegName(path)) files->push_back({path.string(), label});
  }
  if (files->size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(folder, ": no image (.jpg, .jpeg) in it; add some, or remove it"));
}

absl::StatusOr<RgbImage> ReadJpeg(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, "was it removed?"));
  absl::StatusOr<RgbImage> image = DecodeJpeg(bytes);
  if (image.ok()) return image;
  return absl::InvalidArgumentError(
      StrCat(path, ": ", std::string(image.status().message())));
}

// Files, and which of them are known to be broken. Thread-safe.
class ImageFiles {
 public:
  ImageFiles(std::vector<ImageFile> files, WarnFunction warn)
      : files_(std::move(files)), warn_(std::move(warn)) {}

  // Finds one that is whole, for the case that no other is any more.
  absl::Status FindSpare() {
    absl::Status first;
    for (size_t i = 0; i < files_.size(); ++i) {
      absl::StatusOr<RgbImage> image = ReadJpeg(files_[i].path);
      if (image.ok()) {
        spare_ = {*std::move(image), files_[i].label};
        return absl::OkStatus();
      }
      if (i == 0) first = image.status();
    }
    return absl::InvalidArgumentError(
        StrCat(std::string(first.message()), "; none of the ", files_.size(),
               " images can be read; fetch them again"));
  }

  LabelledImage Read(size_t index) {
    for (size_t i = 0; i < files_.size(); ++i) {
      const size_t at = (index + i) % files_.size();
      if (IsBroken(at)) continue;
      absl::StatusOr<RgbImage> image = ReadJpeg(files_[at].path);
      if (image.ok()) return {*std::move(image), files_[at].label};
      SetBroken(at, std::string(image.status().message()));
    }
    return spare_;
  }

  int64_t broken_count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(broken_.size());
  }

 private:
  bool IsBroken(size_t index) {
    const std::lock_guard lock(mutex_);
    return broken_.contains(index);
  }
  void SetBroken(size_t index, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!broken_.insert(index).second || !warn_) return;
    warn_(StrCat(why, "; training goes on without it"));
  }

  const std::vector<ImageFile> files_;
  const WarnFunction warn_;
  LabelledImage spare_;
  std::mutex mutex_;
  std::set<size_t> broken_;
};

absl::StatusOr<ImageSource> SourceOf(std::vector<ImageFile> files,
                                     std::vector<std::string> classes,
                                     WarnFunction warn) {
  const size_t size = files.size();
  const auto shared =
      std::make_shared<ImageFiles>(std::move(files), std::move(warn));
  GAVEL_RETURN_IF_ERROR(shared->FindSpare());
  return ImageSource{size, std::move(classes),
                     [shared](size_t index) { return shared->Read(index); },
                     [shared] { return shared->broken_count(); }};
}

}  // namespace

absl::StatusOr<ImageSource> OpenImageFolders(const std::string& folder,
                                             WarnFunction warn) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<fs::path> entries,
                         EntriesOf(folder));
  std::vector<ImageFile> files;
  std::vector<std::string> classes;
  for (const fs::path& path : entries) {
    std::error_code error;
    if (!fs::is_directory(path, error)) continue;
    GAVEL_RETURN_IF_ERROR(AppendImages(
        path.string(), static_cast<int64_t>(classes.size()), &files));
    classes.push_back(path.filename().string());
  }
  if (classes.empty()) {
    return absl::InvalidArgumentError(
        StrCat(folder,
               ": no folder in it; put the images of each class into "
               "a folder of their own"));
  }
  return SourceOf(std::move(files), std::move(classes), std::move(warn));
}

absl::StatusOr<ImageSource> OpenImageFolder(const std::string& folder,
                                            WarnFunction warn) {
  std::vector<ImageFile> files;
  GAVEL_RETURN_IF_ERROR(AppendImages(folder, 0, &files));
  return SourceOf(std::move(files), {folder}, std::move(warn));
}

namespace {

constexpr double kCenterFraction = 224.0 / 256.0;
constexpr double kJitterFraction = 256.0 / 286.0;

std::mt19937_64 CropRandom(uint64_t seed, int64_t epoch, size_t index) {
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

at::Tensor CutImage(const RgbImage& image, const CropOptions& options,
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
  std::mt19937_64 random = CropRandom(options_.seed, epoch, index);
  return {CutImage(one.image, options_, random),
          at::scalar_tensor(one.label, at::TensorOptions(at::kLong))};
}

UnpairedImages::UnpairedImages(ImageSource first, ImageSource second,
                               CropOptions options)
    : first_(std::move(first)), second_(std::move(second)), options_(options) {}

size_t UnpairedImages::size() const {
  return std::max(first_.size, second_.size);
}

Example UnpairedImages::get(size_t index, int64_t epoch) const {
  std::mt19937_64 random = CropRandom(options_.seed, epoch, index);
  const size_t other = static_cast<size_t>(random() % second_.size);
  const LabelledImage first = first_.read(index % first_.size);
  const LabelledImage second = second_.read(other);
  at::Tensor data = CutImage(first.image, options_, random);
  return {std::move(data), CutImage(second.image, options_, random)};
}

namespace {

using Colour = std::array<double, 3>;  // red, green, blue in [0, 1]

constexpr int64_t kHues = 5;

class PixelRandom {
 public:
  PixelRandom(uint64_t seed, size_t index) : random_(Seeded(seed, index)) {}
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

RgbImage BlankImage(int64_t side) {
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
  PixelRandom draw(options.seed, index);
  const Colour hue =
      HueColour(static_cast<double>(label % kHues) / double{kHues});
  const double period = draw.Between(5, 12);
  const double phase = draw.Between(0, 2 * std::numbers::pi);
  const double light = draw.Between(0.5, 1);
  LabelledImage one{BlankImage(options.side), label};
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
  PixelRandom draw(options.seed, index);
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
  LabelledImage one{BlankImage(options.side), 0};
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
