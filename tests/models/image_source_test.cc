#include <ATen/TensorOperators.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "models/images.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// An image whose red tells which one it is.
std::string Jpeg(uint8_t red) {
  RgbImage image{24, 32, {}};
  for (int pixel = 0; pixel < 24 * 32; ++pixel) {
    image.pixels.insert(image.pixels.end(), {red, 10, 10});
  }
  return EncodeJpeg(image);
}

class ImageFolders : public Test {
 protected:
  void SetUp() override {
    for (const char* name : {"cat", "dog"}) {
      std::filesystem::create_directory(folder_.PathOf(name));
    }
    folder_.Write("cat/1.jpg", Jpeg(10));
    folder_.Write("cat/2.JPEG", Jpeg(60));
    folder_.Write("dog/1.jpeg", Jpeg(110));
    folder_.Write("dog/2.jpg", Jpeg(160));
    folder_.Write("dog/notes.txt", "no image");
    folder_.Write("notes.txt", "no folder");
  }
  ImageSource Open() {
    auto source = OpenImageFolders(folder_.path(), [this](const auto& line) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(line);
    });
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  std::string ErrorOf(const std::string& folder) {
    const auto source = OpenImageFolders(folder, nullptr);
    EXPECT_FALSE(source.ok());
    return std::string(source.status().message());
  }

  TemporaryFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(ImageFolders, AreTheClassesInTheOrderOfTheirNames) {
  const ImageSource source = Open();
  EXPECT_EQ(source.size, 4);
  EXPECT_THAT(source.classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(source.read(1).label, 0);
  EXPECT_EQ(source.read(2).label, 1);
  EXPECT_NEAR(source.read(3).image.pixels[0], 160, 3);
  EXPECT_EQ(source.broken_count(), 0);
}

TEST_F(ImageFolders, TrainingGoesOnWithoutABrokenFileWhichIsSaidOnce) {
  folder_.Write("dog/1.jpeg", Jpeg(110).substr(0, Jpeg(110).size() - 12));
  const ImageSource source = Open();
  for (int time = 0; time < 3; ++time) {
    const LabelledImage next = source.read(2);
    EXPECT_NEAR(next.image.pixels[0], 160, 3);
    EXPECT_EQ(next.label, 1);
  }
  EXPECT_EQ(source.broken_count(), 1);
  ASSERT_EQ(warnings_.size(), 1);
  EXPECT_THAT(warnings_[0], HasSubstr(folder_.PathOf("dog/1.jpeg") +
                                      ": not a whole JPEG image ("));
  EXPECT_THAT(warnings_[0], HasSubstr("; training goes on without it"));
}

TEST_F(ImageFolders, AFileThatIsRemovedLaterDoesNotEndTheTraining) {
  const ImageSource source = Open();
  std::filesystem::remove_all(folder_.PathOf("cat"));
  std::filesystem::remove_all(folder_.PathOf("dog"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&source, i] { EXPECT_EQ(source.read(i).label, 0); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(source.broken_count(), 4);
  EXPECT_EQ(warnings_.size(), 4);
}

TEST_F(ImageFolders, WithoutImagesAreRefusedByName) {
  EXPECT_THAT(ErrorOf("/no/such/folder"),
              HasSubstr("/no/such/folder: no such folder"));
  EXPECT_THAT(ErrorOf(folder_.PathOf("cat")), HasSubstr("no folder in it"));
  std::filesystem::create_directory(folder_.PathOf("eel"));
  EXPECT_THAT(ErrorOf(folder_.path()),
              HasSubstr(folder_.PathOf("eel") + ": no image"));
}

TEST_F(ImageFolders, OfBrokenFilesOnlyAreRefused) {
  for (const char* name :
       {"cat/1.jpg", "cat/2.JPEG", "dog/1.jpeg", "dog/2.jpg"}) {
    folder_.Write(name, "no JPEG");
  }
  EXPECT_THAT(ErrorOf(folder_.path()),
              HasSubstr("cat/1.jpg: not a whole JPEG image"));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("none of the 4 images"));
}

TEST_F(ImageFolders, OneFolderIsOneClass) {
  const auto source = OpenImageFolder(folder_.PathOf("dog"), nullptr);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->size, 2);
  EXPECT_FALSE(OpenImageFolder(folder_.path(), nullptr).ok());
}

TEST_F(ImageFolders, AreCroppedByEpochAndIndexAlone) {
  const CroppedImages images(Open(), {.side = 16, .seed = 3});
  const CroppedImages again(Open(), {.side = 16, .seed = 3});
  const Example one = images.get(2, 5);
  EXPECT_EQ(one.data.sizes(), at::IntArrayRef({3, 16, 16}));
  EXPECT_EQ(one.target.item<int64_t>(), 1);
  again.get(1, 1);  // whatever was read before
  EXPECT_TRUE(again.get(2, 5).data.equal(one.data));
}

TEST(CroppedImages, AreOthersInEachEpochButNotInTheMiddle) {
  const ImageSource source = StripeImages({.size = 20, .seed = 1});
  const CroppedImages random(source, {.side = 24});
  EXPECT_FALSE(random.get(3, 0).data.equal(random.get(3, 1).data));
  const CroppedImages middle(source, {.crop = Crop::kCenter, .side = 24});
  EXPECT_TRUE(middle.get(3, 0).data.equal(middle.get(3, 1).data));
}

TEST(StripeImages, AreAFunctionOfSeedAndIndexWithAllClasses) {
  const ImageSource source = StripeImages({.size = 20, .seed = 1});
  const ImageSource other = StripeImages({.size = 20, .seed = 2});
  EXPECT_EQ(source.classes.size(), 10);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(source.read(i).label, static_cast<int64_t>(i % 10));
  }
  EXPECT_EQ(source.read(4).image.pixels, source.read(4).image.pixels);
  EXPECT_NE(source.read(4).image.pixels, other.read(4).image.pixels);
}

TEST(UnpairedImages, AreAsManyAsTheLargerSourceHas) {
  const UnpairedImages images(
      DiscImages(Style::kBlue, {.size = 3, .seed = 1}),
      DiscImages(Style::kOrange, {.size = 7, .seed = 2}),
      {.crop = Crop::kCenter, .side = 16});
  EXPECT_EQ(images.size(), 7);
  const Example pair = images.get(6, 0);
  EXPECT_EQ(pair.data.sizes(), at::IntArrayRef({3, 16, 16}));
  EXPECT_EQ(pair.target.sizes(), at::IntArrayRef({3, 16, 16}));
  // Blue is the first kind, and the partner changes with the epoch.
  EXPECT_GT((pair.data[2] - pair.data[0]).mean().item<double>(), 0);
  EXPECT_LT((pair.target[2] - pair.target[0]).mean().item<double>(), 0);
  bool differs = false;
  for (int64_t epoch = 1; epoch < 5; ++epoch) {
    differs = differs || !images.get(6, epoch).target.equal(pair.target);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace gavel::models
