#include <ATen/ops/arange.h>

#include "models/images.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

RgbImage Plain(int64_t height, int64_t width, uint8_t red, uint8_t green,
               uint8_t blue) {
  RgbImage image{height, width, {}};
  for (int64_t pixel = 0; pixel < height * width; ++pixel) {
    image.pixels.insert(image.pixels.end(), {red, green, blue});
  }
  return image;
}

// One that brightens from left to right.
RgbImage Ramp(int64_t height, int64_t width) {
  RgbImage image = Plain(height, width, 0, 0, 0);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto level = static_cast<uint8_t>(255 * x / (width - 1));
      for (int64_t channel = 0; channel < 3; ++channel) {
        image.pixels[static_cast<size_t>((y * width + x) * 3 + channel)] =
            level;
      }
    }
  }
  return image;
}

Normalization None() { return {{0, 0, 0}, {1, 1, 1}}; }

TEST(Jpeg, ComesBackAlmostAsItWas) {
  const RgbImage image = Ramp(40, 64);
  const auto decoded = DecodeJpeg(EncodeJpeg(image));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->height, 40);
  ASSERT_EQ(decoded->width, 64);
  ASSERT_EQ(decoded->pixels.size(), image.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    EXPECT_NEAR(decoded->pixels[i], image.pixels[i], 6);
  }
}

TEST(Jpeg, KeepsItsColours) {
  const auto decoded = DecodeJpeg(EncodeJpeg(Plain(16, 16, 200, 100, 20)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_NEAR(decoded->pixels[0], 200, 3);
  EXPECT_NEAR(decoded->pixels[1], 100, 3);
  EXPECT_NEAR(decoded->pixels[2], 20, 3);
}

TEST(Jpeg, IsRefusedWhereverItIsCutOff) {
  const std::string bytes = EncodeJpeg(Ramp(64, 64));
  for (size_t size = 0; size + 16 < bytes.size(); size += 13) {
    const auto decoded = DecodeJpeg(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(decoded.ok()) << size << " of " << bytes.size();
    EXPECT_THAT(std::string(decoded.status().message()),
                HasSubstr("not a whole JPEG image"));
  }
}

TEST(Jpeg, OtherBytesAreRefused) {
  for (const char* bytes : {"", "no image", "\x89PNG\r\n\x1a\n"}) {
    EXPECT_FALSE(DecodeJpeg(bytes).ok());
  }
  // Damage anywhere is refused or survived.
  const std::string bytes = EncodeJpeg(Ramp(32, 32));
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const auto decoded = DecodeJpeg(damaged);
    if (!decoded.ok()) continue;
    EXPECT_EQ(decoded->pixels.size(),
              static_cast<size_t>(decoded->height * decoded->width * 3));
  }
}

TEST(RandomCrop, LiesInTheImageAndHasTheAskedAreaAndShape) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const CropBox box = RandomCrop(300, 400, 0.08, random);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 300);
    ASSERT_LE(box.left + box.width, 400);
    const double area = static_cast<double>(box.height * box.width);
    EXPECT_GE(area, 0.07 * 300 * 400);
    const double ratio =
        static_cast<double>(box.width) / static_cast<double>(box.height);
    EXPECT_GT(ratio, 0.72);
    EXPECT_LT(ratio, 1.39);
  }
}

TEST(RandomCrop, IsTheMiddleOfAnImageThatHasNoSuchPart) {
  std::mt19937_64 random(1);
  EXPECT_EQ(RandomCrop(10, 4000, 0.9, random), CenterCrop(10, 4000, 1));
  EXPECT_EQ(CenterCrop(10, 4000, 1), (CropBox{0, 1995, 10, 10}));
  const CropBox one = RandomCrop(1, 1, 0.08, random);
  EXPECT_EQ(one, (CropBox{0, 0, 1, 1}));
}

TEST(RandomCrop, IsAFunctionOfTheSeed) {
  std::mt19937_64 first(5), second(5), third(6);
  const CropBox box = RandomCrop(300, 400, 0.08, first);
  EXPECT_EQ(RandomCrop(300, 400, 0.08, second), box);
  EXPECT_NE(RandomCrop(300, 400, 0.08, third), box);
}

TEST(ScaledTensor, OfTheSameSizeIsTheImage) {
  const RgbImage image = Ramp(8, 16);
  const at::Tensor tensor =
      ScaledTensor(image, {0, 0, 8, 16}, 8, 16, false, None());
  ASSERT_EQ(tensor.sizes(), at::IntArrayRef({3, 8, 16}));
  for (int64_t x = 0; x < 16; ++x) {
    EXPECT_NEAR(tensor[1][3][x].item<double>(),
                static_cast<double>(255 * x / 15) / 255, 1e-6);
  }
}

TEST(ScaledTensor, MirrorsAndCuts) {
  const RgbImage image = Ramp(8, 16);
  const CropBox box{2, 4, 4, 8};
  const at::Tensor plain = ScaledTensor(image, box, 4, 8, false, None());
  const at::Tensor flipped = ScaledTensor(image, box, 4, 8, true, None());
  EXPECT_TRUE(flipped.flip({2}).equal(plain));
  EXPECT_NEAR(plain[0][0][0].item<double>(), 4 * 17 / 255.0, 1e-6);
}

TEST(ScaledTensor, ShrinkingLeavesNoPixelOut) {
  RgbImage image = Plain(64, 64, 0, 0, 0);
  image.pixels[(17 * 64 + 33) * 3] = 255;  // one red pixel
  const at::Tensor tensor =
      ScaledTensor(image, {0, 0, 64, 64}, 4, 4, false, None());
  EXPECT_NEAR(tensor[0].sum().item<double>(), 1.0 / 256, 5e-4);
  EXPECT_EQ(tensor[1].sum().item<double>(), 0);
}

TEST(ScaledTensor, IsNormalizedByChannel) {
  const at::Tensor tensor = ScaledTensor(Plain(4, 4, 255, 0, 51), {0, 0, 4, 4},
                                         2, 2, false, kImageNetNormalization);
  EXPECT_NEAR(tensor[0][1][1].item<double>(), (1 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(tensor[1][1][1].item<double>(), (0 - 0.456) / 0.224, 1e-5);
  EXPECT_NEAR(tensor[2][1][1].item<double>(), (0.2 - 0.406) / 0.225, 1e-5);
}

}  // namespace
}  // namespace gavel::models
