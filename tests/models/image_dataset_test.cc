#include "models/images.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

constexpr size_t kRecordBytes = 3073;

std::string BigEndian(const std::vector<uint32_t>& words) {
  std::string bytes;
  for (const uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<char>(word >> shift & 0xff));
    }
  }
  return bytes;
}

// Two images of 1 x 3 pixels, labelled 7 and 9.
void WriteIdx(const TemporaryFolder& folder, const std::string& prefix) {
  using namespace std::string_literals;
  folder.Write(prefix + "-images-idx3-ubyte",
               BigEndian({0x803, 2, 1, 3}) + "\x00\xff\x00\x01\x02\x03"s);
  folder.Write(prefix + "-labels-idx1-ubyte",
               BigEndian({0x801, 2}) + "\x07\x09");
}

// A record whose pixels are the colour's number (0, 1, 2) throughout.
std::string CifarRecord(char label) {
  std::string record(1, label);
  for (const char colour : {'\0', '\1', '\2'})
    record += std::string(1024, colour);
  return record;
}

TEST(IdxDataset, ReadsImagesOfAnySizeAndTheirLabels) {
  const TemporaryFolder folder;
  WriteIdx(folder, "train");
  ASSERT_OK_AND_ASSIGN(const ImageDataset dataset,
                       ReadIdxDataset(folder.path(), Split::kTrain));
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.channels(), 1);
  EXPECT_EQ(dataset.height(), 1);
  EXPECT_EQ(dataset.width(), 3);
  const auto [image, label] = dataset.get(0);
  EXPECT_EQ(label.item<int64_t>(), 7);
  EXPECT_EQ(image[0][0][0].item<float>(), -1);
  EXPECT_EQ(image[0][0][1].item<float>(), 1);
  EXPECT_EQ(dataset.get(1).target.item<int64_t>(), 9);
}

TEST(IdxDataset, TakesTheTestImagesUnderBothUsualNames) {
  const TemporaryFolder folder;
  WriteIdx(folder, "t10k");
  EXPECT_OK(ReadIdxDataset(folder.path(), Split::kTest));
  const TemporaryFolder other;
  WriteIdx(other, "test");
  EXPECT_OK(ReadIdxDataset(other.path(), Split::kTest));
}

TEST(IdxDataset, NamesTheFileThatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
              StatusIs(kNotFound, "/train-images-idx3-ubyte: no such file; "));
}

TEST(IdxDataset, RefusesAWrongMagicNumber) {
  const TemporaryFolder folder;
  WriteIdx(folder, "train");
  folder.Write("train-images-idx3-ubyte", "\x1f\x8b a packed file, as fetched");
  EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
              IsInvalid("gunzip"));
}

TEST(IdxDataset, RefusesAFileOfAnotherLengthThanItsHeaderSays) {
  for (const std::string data : {"12345", "1234567"}) {
    const TemporaryFolder folder;
    WriteIdx(folder, "train");
    folder.Write("train-images-idx3-ubyte", BigEndian({0x803, 2, 1, 3}) + data);
    EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
                IsInvalid("its header says 6; fetch it again"));
  }
}

TEST(IdxDataset, RefusesHeadersThatAreCutOffOrAbsurd) {
  for (const auto& header : std::vector<std::vector<uint32_t>>{
           {}, {0x803, 2, 1}, {0x803, 0, 8, 8}, {0x803, ~0u, ~0u, ~0u}}) {
    const TemporaryFolder folder;
    WriteIdx(folder, "train");
    folder.Write("train-images-idx3-ubyte", BigEndian(header));
    EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
                IsInvalid("train-images-idx3-ubyte: "));
  }
}

TEST(IdxDataset, RefusesLabelsThatDoNotFitTheImages) {
  const TemporaryFolder folder;
  WriteIdx(folder, "train");
  folder.Write("train-labels-idx1-ubyte", BigEndian({0x801, 1}) + "\x07");
  EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
              IsInvalid("1 labels for 2 images"));
  folder.Write("train-labels-idx1-ubyte", BigEndian({0x801, 2}) + "\x07\x0a");
  EXPECT_THAT(ReadIdxDataset(folder.path(), Split::kTrain),
              IsInvalid("a label above 9"));
}

TEST(Cifar10Dataset, ReadsTheRecordsOfAllFilesInOrder) {
  const TemporaryFolder folder;
  for (char file = 1; file <= 5; ++file) {
    folder.Write("data_batch_" + std::to_string(file) + ".bin",
                 CifarRecord(file) + CifarRecord(0));
  }
  ASSERT_OK_AND_ASSIGN(const ImageDataset dataset,
                       ReadCifar10Dataset(folder.path(), Split::kTrain));
  EXPECT_EQ(dataset.size(), 10);
  EXPECT_EQ(dataset.channels(), 3);
  EXPECT_EQ(dataset.height(), 32);
  const auto [image, label] = dataset.get(8);
  EXPECT_EQ(label.item<int64_t>(), 5);
  for (const int colour : {0, 1, 2}) {
    const at::Tensor levels = image[colour].add(1).mul(127.5);
    EXPECT_NEAR(levels.min().item<float>(), colour, 1e-4);
    EXPECT_NEAR(levels.max().item<float>(), colour, 1e-4);
  }
}

TEST(Cifar10Dataset, NamesTheFileThatIsMissingCutOffOrWrong) {
  const TemporaryFolder folder;
  EXPECT_THAT(ReadCifar10Dataset(folder.path(), Split::kTest),
              StatusIs(kNotFound, "/test_batch.bin: no such file; "));
  folder.Write("test_batch.bin", CifarRecord(1).substr(0, kRecordBytes - 1));
  EXPECT_THAT(ReadCifar10Dataset(folder.path(), Split::kTest),
              IsInvalid("3072 bytes are not whole records"));
  folder.Write("test_batch.bin", CifarRecord(10));
  EXPECT_THAT(ReadCifar10Dataset(folder.path(), Split::kTest),
              IsInvalid("is it CIFAR-100?"));
  folder.Write("test_batch.bin", "");
  EXPECT_THAT(ReadCifar10Dataset(folder.path(), Split::kTest),
              IsInvalid("/test_batch.bin: 0 bytes"));
}

TEST(ReadImageDataset, FindsOutWhichFormAFolderHolds) {
  const TemporaryFolder idx;
  WriteIdx(idx, "train");
  ASSERT_OK_AND_ASSIGN(const ImageDataset digits,
                       ReadImageDataset(idx.path(), Split::kTrain));
  EXPECT_EQ(digits.channels(), 1);
  const TemporaryFolder cifar;
  cifar.Write("test_batch.bin", CifarRecord(3));
  ASSERT_OK_AND_ASSIGN(const ImageDataset photos,
                       ReadImageDataset(cifar.path(), Split::kTest));
  EXPECT_EQ(photos.channels(), 3);
  EXPECT_THAT(ReadImageDataset("/no/such/folder", Split::kTrain),
              StatusIs(kNotFound, "/no/such/folder: no such folder"));
}

TEST(ImageDataset, AllIsEveryGetInOrder) {
  const TemporaryFolder folder;
  WriteIdx(folder, "train");
  ASSERT_OK_AND_ASSIGN(const ImageDataset dataset,
                       ReadIdxDataset(folder.path(), Split::kTrain));
  const auto [images, labels] = dataset.all();
  for (size_t index = 0; index < dataset.size(); ++index) {
    const auto row = static_cast<int64_t>(index);
    EXPECT_TRUE(images[row].equal(dataset.get(index).data));
    EXPECT_TRUE(labels[row].equal(dataset.get(index).target));
  }
}

}  // namespace
}  // namespace gavel::models
