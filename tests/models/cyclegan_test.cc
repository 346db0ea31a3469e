#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include "models/image_models.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

int64_t CountParameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

// The authors' implementation prints 11.378 M and 2.765 M.
TEST(CycleGan, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(CountParameters(*CycleGanGenerator(CycleGanOptions{})), 11'378'179);
  EXPECT_EQ(CountParameters(*CycleGanGenerator(CycleGanOptions{.blocks = 6})),
            7'837'699);
  EXPECT_EQ(CountParameters(*CycleGanDiscriminator(CycleGanOptions{})),
            2'764'737);
}

TEST(CycleGan, GeneratesImagesOfTheSameSizeWithinTheirRange) {
  const torch::NoGradGuard no_grad;
  CycleGanGenerator generator(CycleGanOptions{.blocks = 1, .width = 4});
  const at::Tensor images = generator(at::randn({2, 3, 32, 32}));
  EXPECT_EQ(images.sizes(), at::IntArrayRef({2, 3, 32, 32}));
  EXPECT_LE(images.abs().max().item<double>(), 1);
}

TEST(CycleGan, JudgesPatches) {
  const torch::NoGradGuard no_grad;
  CycleGanDiscriminator discriminator(CycleGanOptions{.width = 4});
  EXPECT_EQ(discriminator(at::randn({1, 3, 32, 32})).sizes(),
            at::IntArrayRef({1, 1, 2, 2}));
  EXPECT_EQ(discriminator(at::randn({1, 3, 256, 256})).sizes(),
            at::IntArrayRef({1, 1, 30, 30}));
}

TEST(CycleGan, EveryParameterGetsAGradient) {
  torch::manual_seed(1);
  CycleGanGenerator generator(CycleGanOptions{.blocks = 2, .width = 4});
  CycleGanDiscriminator discriminator(CycleGanOptions{.width = 4});
  discriminator(generator(at::randn({1, 3, 32, 32}))).square().sum().backward();
  for (const torch::nn::Module* module :
       {static_cast<const torch::nn::Module*>(generator.get()),
        static_cast<const torch::nn::Module*>(discriminator.get())}) {
    for (const auto& parameter : module->named_parameters()) {
      EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
    }
  }
}

at::Tensor Numbered(int number) {
  return at::full({1, 3, 2, 2}, static_cast<double>(number));
}

TEST(ImageBuffer, GivesNewImagesAndOldOnesOnceItIsFull) {
  ImageBuffer buffer;
  std::mt19937_64 random(1);
  std::multiset<int> put_in, given;
  int given_at_once = 0;
  for (int i = 0; i < 400; ++i) {
    put_in.insert(i);
    const at::Tensor seen = buffer.Exchange(Numbered(i), random);
    ASSERT_EQ(seen.sizes(), at::IntArrayRef({1, 3, 2, 2}));
    const int number = seen.flatten()[0].item<int>();
    if (i < 50) {
      EXPECT_EQ(number, i);
    }
    given_at_once += number == i ? 1 : 0;
    given.insert(number);
  }
  EXPECT_EQ(buffer.images().size(), 50);
  // The first 50 images are given at once, and about half of the others.
  EXPECT_GT(given_at_once, 50 + 350 * 0.4);
  EXPECT_LT(given_at_once, 50 + 350 * 0.6);
  // No image is given twice, except the first 50, which also stay in the
  // buffer.
  for (const int number : given) {
    EXPECT_LE(given.count(number), number < 50 ? 2 : 1) << number;
  }
}

TEST(ImageBuffer, KeepsWhatItWasGiven) {
  ImageBuffer buffer;
  std::mt19937_64 random(1);
  at::Tensor image = Numbered(7);
  buffer.Exchange(image, random);
  image.zero_();
  EXPECT_EQ(buffer.images()[0].flatten()[0].item<int>(), 7);
}

}  // namespace
}  // namespace gavel::models
