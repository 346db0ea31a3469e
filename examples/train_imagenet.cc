// Trains ResNet-50, or VGG-16 (--model vgg16), on folders of JPEG images in
// ImageNet's form (--data FOLDER with train/CLASS/*.jpg and val/CLASS/*.jpg),
// or without --data on synthetic images of stripes. Threads read ahead and
// apply random crops and flips. Runs alone or under a coordinator, on one
// worker or as a gang. At the end it prints one line of JSON with the loss and
// accuracy on the validation images.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "absl/status/status.h"
#include "examples/training.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "models/image_models.h"
#include "models/images.h"

namespace {

namespace functional = torch::nn::functional;
using gavel::examples::OrFail;
using gavel::models::Crop;
using gavel::models::CroppedImages;
using gavel::models::ImageSource;
using gavel::models::ResNet;
using gavel::models::Vgg;

// The published schedule divides the learning rate by 10 after each third of
// the epochs.
constexpr double kDecay = 0.1;
constexpr int kPhases = 3;
// The learning rate of a batch of 256 is 0.1 for ResNet (P. Goyal et al.,
// 2017), and 0.01 for VGG, which has no normalization (as published).
constexpr double kResNetRate = 0.1 / 256;  // for each image
constexpr double kVggRate = 0.01 / 256;
constexpr double kVggDropout = 0.5;

struct Flags : gavel::examples::TrainingFlags {
  Flags() { learning_rate = 0; }
  bool vgg = false;
  int64_t side = 0;
  int64_t width = 64;
  double dropout = kVggDropout;
  int64_t images = 2000;
  int reading_threads = 2;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  app.get_option("--lr")->check(CLI::NonNegativeNumber);
  AddDataFlags(app, flags,
               "folder with train/CLASS/*.jpg and val/CLASS/*.jpg; empty: "
               "synthetic images",
               "images");
  AddGangFlags(app, flags);
  app.add_option("--side", flags.side,
                 "of what the network sees, in pixels; 0: 224, of synthetic "
                 "images 32")
      ->check(CLI::Range(0, 4096));
  app.add_option_function<std::string>(
         "--model",
         [&flags](const std::string& name) { flags.vgg = name == "vgg16"; },
         "resnet50 (default) or vgg16")
      ->check(CLI::IsMember({"resnet50", "vgg16"}));
  app.add_option("--width", flags.width, "64: the published network")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.dropout, "of VGG-16's hidden layers")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--images", flags.images, "how many synthetic ones")
      ->check(CLI::PositiveNumber);
  app.add_option("--reading-threads", flags.reading_threads,
                 "that decode and cut images while others are trained on")
      ->check(CLI::Range(0, 256));
}

struct Images {
  ImageSource train;
  ImageSource validation;
};

Images OpenImages(const Flags& flags) {
  if (flags.data.empty()) {
    return {gavel::models::StripeImages(
                {.size = static_cast<size_t>(flags.images), .seed = 1}),
            gavel::models::StripeImages({.size = 200, .seed = 2})};
  }
  const auto warn = gavel::examples::PrintWarning;
  Images images{
      OrFail(gavel::models::OpenImageFolders(flags.data + "/train", warn)),
      OrFail(gavel::models::OpenImageFolders(flags.data + "/val", warn))};
  if (images.train.classes != images.validation.classes) {
    gavel::examples::Fail(flags.data +
                          ": train/ and val/ have not the same folders; one "
                          "of each class belongs in both");
  }
  return images;
}

// The mean loss, and the fraction of images that are classified correctly.
struct Score {
  double loss = 0;
  double accuracy = 0;
};

template <class Model>
Score Evaluate(Model& model, const CroppedImages& images,
               gavel::Session& session) {
  const torch::NoGradGuard no_grad;
  model->eval();
  Score sum;
  gavel::DataLoader loader(
      images, {.batch_size = 100, .shuffle = false, .reading_threads = 2});
  for (const auto& batch : loader) {
    const torch::Tensor logits = model(batch.data.to(session.device()));
    const torch::Tensor labels = batch.target.to(session.device());
    const torch::Tensor loss = functional::cross_entropy(
        logits, labels,
        functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    sum.loss += loss.item<double>();
    sum.accuracy += logits.argmax(1).eq(labels).sum().item<double>();
  }
  const auto size = static_cast<double>(images.size());
  return {sum.loss / size, sum.accuracy / size};
}

void SetLearningRate(torch::optim::SGD& optimizer, const Flags& flags,
                     int64_t batch_size, int64_t epoch) {
  const double full =
      flags.learning_rate > 0
          ? flags.learning_rate
          : (flags.vgg ? kVggRate : kResNetRate) * double(batch_size);
  const auto phase = epoch * kPhases / std::max<int64_t>(flags.epochs, 1);
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(full * std::pow(kDecay, phase));
  }
}

int64_t SideOf(const Flags& flags) {
  if (flags.side > 0) return flags.side;
  return flags.data.empty() ? 32 : 224;
}

template <class Model>
int Train(const Flags& flags, const Images& images, Model model) {
  const int64_t side = SideOf(flags);
  const CroppedImages train(
      images.train, {.side = side,
                     // A smaller part of an image may not show its stripes.
                     .area_min = flags.data.empty() ? 0.3 : 0.08,
                     .seed = flags.seed});
  torch::optim::SGD optimizer(
      model->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
  auto loader =
      LoaderOf(train, flags,
               {.drop_last = true, .reading_threads = flags.reading_threads});
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::DataParallel parallel(*session, model);
  gavel::examples::StepLoss step_loss(*session);

  while (epoch < flags.epochs && !session->stopped()) {
    SetLearningRate(optimizer, flags,
                    flags.global_batch_size > 0
                        ? flags.global_batch_size
                        : flags.batch_size * session->world_size(),
                    epoch);
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const auto loss =
          functional::cross_entropy(model(batch.data), batch.target);
      (loss * session->loss_scale()).backward();
      step_loss.Add(loss);
      if (!session->last_micro_batch()) continue;
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const CroppedImages validation(images.validation,
                                   {.crop = Crop::kCenter, .side = side});
    const Score score = Evaluate(model, validation, *session);
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"broken_images\": %lld, "
        "\"broken_validation_images\": %lld, \"validation_loss\": %.9g, "
        "\"validation_accuracy\": %.4f}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        static_cast<long long>(images.train.broken_count()),
        static_cast<long long>(images.validation.broken_count()), score.loss,
        score.accuracy);
  }
  return session->Finish();
}

int Run(const Flags& flags) {
  const Images images = OpenImages(flags);
  const auto classes = static_cast<int64_t>(images.train.classes.size());
  Seed(flags);
  if (flags.vgg) {
    return Train(flags, images,
                 Vgg(gavel::models::VggOptions{.classes = classes,
                                               .width = flags.width,
                                               .dropout = flags.dropout}));
  }
  return Train(flags, images,
               ResNet(gavel::models::ResNetOptions{
                   .depth = gavel::models::ResNetDepth::k50,
                   .stem = gavel::models::ResNetStem::kLargeImages,
                   .classes = classes,
                   .width = flags.width}));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains ResNet-50 or VGG-16 on folders of images.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}
