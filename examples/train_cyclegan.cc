// Trains CycleGAN to translate between two kinds of unpaired images. --data
// FOLDER has the JPEG images in trainA/, trainB/, testA/ and testB/, as
// published. Without --data the images are synthetic scenes in blue and in
// orange. Runs alone or under a coordinator.
//
// Prints one line of JSON at the end: how far test images are from themselves
// after both translations and, for synthetic scenes, which exist in both
// styles, how far each translation is from the true image.
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "examples/training.h"
#include "gavel/iterator.h"
#include "models/image_models.h"
#include "models/images.h"

namespace {

namespace functional = torch::nn::functional;
using gavel::examples::OrFail;
using gavel::models::Crop;
using gavel::models::CropOptions;
using gavel::models::CycleGan;
using gavel::models::DiscImages;
using gavel::models::ImageSource;
using gavel::models::Style;
using gavel::models::UnpairedImages;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    batch_size = 1;
    learning_rate = 0.0002;
  }
  int64_t side = 0;
  int64_t blocks = 0;
  int64_t width = 64;
  int64_t images = 400;
  int reading_threads = 2;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags,
               "folder with trainA, trainB, testA and testB; empty: synthetic "
               "images",
               "images of each kind");
  app.add_option("--side", flags.side,
                 "of the images, in pixels, a multiple of 4 from 24 on; 0: "
                 "256, of synthetic images 32")
      ->check(CLI::Range(0, 2048));
  app.add_option("--blocks", flags.blocks,
                 "of a generator; 0: 9 from 256 pixels on, else 6")
      ->check(CLI::Range(0, 50));
  app.add_option("--width", flags.width, "64: the published networks")
      ->check(CLI::PositiveNumber);
  app.add_option("--images", flags.images, "how many synthetic ones of a kind")
      ->check(CLI::PositiveNumber);
  app.add_option("--reading-threads", flags.reading_threads,
                 "that decode and cut images while others are trained on")
      ->check(CLI::Range(0, 256));
}

// The images of kinds A and B.
struct Images {
  ImageSource train_a, train_b, test_a, test_b;
};

Images OpenImages(const Flags& flags) {
  if (flags.data.empty()) {
    const auto size = static_cast<size_t>(flags.images);
    // The two kinds show different scenes in training, but the same scenes in
    // the test, where a translation is compared with the true image.
    return {DiscImages(Style::kBlue, {.size = size, .seed = 1}),
            DiscImages(Style::kOrange, {.size = size, .seed = 2}),
            DiscImages(Style::kBlue, {.size = 40, .seed = 3}),
            DiscImages(Style::kOrange, {.size = 40, .seed = 3})};
  }
  const auto open = [&flags](const char* name) {
    return OrFail(gavel::models::OpenImageFolder(
        flags.data + "/" + name, gavel::examples::PrintWarning));
  };
  return {open("trainA"), open("trainB"), open("testA"), open("testB")};
}

// The rate is constant for half of the epochs and then falls to 0, as
// published.
void SetLearningRate(torch::optim::Adam& optimizer, const Flags& flags,
                     int64_t epoch) {
  const double left = static_cast<double>(flags.epochs - epoch) /
                      static_cast<double>(flags.epochs - flags.epochs / 2);
  optimizer.param_groups()[0].options().set_lr(flags.learning_rate *
                                               std::min(1.0, left));
}

// Mean absolute differences between test images, whose values are in [-1, 1].
struct Score {
  double cycle = 0;         // between A -> B -> A and A
  double translation = 0;   // between A -> B and B
  double untranslated = 0;  // between A and B
};

Score Evaluate(CycleGan& networks, const Images& images,
               const CropOptions& options, const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  const gavel::models::CroppedImages a(images.test_a, options);
  const gavel::models::CroppedImages b(images.test_b, options);
  networks->eval();
  Score sum;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto real_a = a.get(i, 0).data.unsqueeze(0).to(device);
    const auto real_b = b.get(i % b.size(), 0).data.unsqueeze(0).to(device);
    const auto fake_b = networks->to_b(real_a);
    const auto back = networks->to_a(fake_b);
    sum.cycle += functional::l1_loss(back, real_a).item<double>();
    sum.translation += functional::l1_loss(fake_b, real_b).item<double>();
    sum.untranslated += functional::l1_loss(real_a, real_b).item<double>();
  }
  const auto size = static_cast<double>(a.size());
  return {sum.cycle / size, sum.translation / size, sum.untranslated / size};
}

void PrintScore(const Flags& flags, int64_t steps, const Images& images,
                const Score& score) {
  const auto broken = [](const ImageSource& a, const ImageSource& b) {
    return static_cast<long long>(a.broken_count() + b.broken_count());
  };
  std::printf(
      "{\"data\": \"%s\", \"steps\": %lld, \"broken_images\": %lld, "
      "\"broken_test_images\": %lld, \"cycle_error\": %.6f",
      DataLabel(flags), static_cast<long long>(steps),
      broken(images.train_a, images.train_b),
      broken(images.test_a, images.test_b), score.cycle);
  if (flags.data.empty()) {
    std::printf(", \"translation_error\": %.6f, \"untranslated_error\": %.6f",
                score.translation, score.untranslated);
  }
  std::printf("}\n");
}

int Train(const Flags& flags, const Images& images) {
  CropOptions crops{.crop = Crop::kJitter,
                    .side = flags.side > 0       ? flags.side
                            : flags.data.empty() ? 32
                                                 : 256,
                    .seed = flags.seed,
                    .normalization = {}};
  Seed(flags);
  const int64_t blocks = flags.blocks > 0    ? flags.blocks
                         : crops.side >= 256 ? 9
                                             : 6;
  CycleGan networks(
      gavel::models::CycleGanOptions{.blocks = blocks, .width = flags.width});
  const auto adam =
      torch::optim::AdamOptions(flags.learning_rate).betas({0.5, 0.999});
  torch::optim::Adam generators(networks->GeneratorParameters(), adam);
  torch::optim::Adam discriminators(networks->DiscriminatorParameters(), adam);
  gavel::models::ImageBuffer buffer_a, buffer_b;
  std::mt19937_64 random(flags.seed);
  auto loader =
      LoaderOf(UnpairedImages(images.train_a, images.train_b, crops), flags,
               {.drop_last = true, .reading_threads = flags.reading_threads});
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  session->Track("networks", networks);
  session->Track("generators", generators);
  session->Track("discriminators", discriminators);
  session->Track("buffer_a", buffer_a.images());
  session->Track("buffer_b", buffer_b.images());
  session->Track("random", random);
  session->Track("epoch", epoch);

  while (epoch < flags.epochs && !session->stopped()) {
    SetLearningRate(generators, flags, epoch);
    SetLearningRate(discriminators, flags, epoch);
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const at::Tensor& real_a = batch.data;
      const at::Tensor& real_b = batch.target;
      generators.zero_grad();
      const auto generated = networks->Generate(real_a, real_b);
      generated.loss.backward();
      generators.step();

      discriminators.zero_grad();  // the generators' backward() added to them
      const auto verdict_loss = networks->Judge(
          real_a, real_b, buffer_a.Exchange(generated.fake_a, random),
          buffer_b.Exchange(generated.fake_b, random));
      verdict_loss.backward();
      discriminators.step();
      session->Report("loss", generated.loss);
      session->Report("discriminator_loss", verdict_loss);
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished()) {
    crops.crop = Crop::kWhole;
    const Score score = Evaluate(networks, images, crops, session->device());
    PrintScore(flags, session->steps_done(), images, score);
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains CycleGAN on two folders of images.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  // The generator halves the sides twice, and the last norm of the
  // discriminator needs more than one pixel.
  if (flags.side != 0 && (flags.side < 24 || flags.side % 4 != 0)) {
    gavel::examples::Fail("--side has to be a multiple of 4, at least 24");
  }
  return Train(flags, OpenImages(flags));
}
