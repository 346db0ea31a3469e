// Trains ResNet-18 on small images: handwritten digits by default, or a folder
// of CIFAR-10 binary or MNIST IDX files (--data). Alone or under a coordinator,
// on one worker or as a gang: with --global-batch-size the steps are the same
// on any number of workers, so that the job may grow and shrink. Prints one
// line of JSON at the end: the loss and accuracy on the test images.
#include <ATen/Context.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "gavel/data_loader.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/image_dataset.h"
#include "models/resnet.h"

namespace {

namespace functional = torch::nn::functional;
using gavel::models::Example;
using gavel::models::ImageDataset;
using gavel::models::ResNet18;
using gavel::models::Split;

struct Flags {
  std::string data = GAVEL_DIGITS_DIR;
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t batch_size = 32;
  int64_t global_batch_size = 0;
  double learning_rate = 0.02;
  int64_t width = 16;
  uint64_t seed = 1;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.option_defaults()->always_capture_default();
  app.add_option("--data", flags.data, "folder of CIFAR-10 or IDX files");
  app.add_option("--epochs", flags.epochs, "times to go through the data");
  app.add_option("--steps", flags.steps, "end after so many; 0: by epochs");
  app.add_option("--batch-size", flags.batch_size, "images per step and worker")
      ->check(CLI::PositiveNumber);
  app.add_option("--global-batch-size", flags.global_batch_size,
                 "images per step of all workers, at most --batch-size at once;"
                 " 0: --batch-size on each")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", flags.learning_rate, "learning rate")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", flags.width, "64: the published ResNet-18")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", flags.seed, "of weights and order of the images");
}

struct Score {
  double loss = 0;
  double accuracy = 0;
};

Score Evaluate(ResNet18& model, const ImageDataset& dataset,
               const torch::Device& device) {
  constexpr int64_t kBatchSize = 500;
  const torch::NoGradGuard no_grad;
  const Example all = dataset.all();
  const auto size = static_cast<int64_t>(dataset.size());
  model->eval();
  Score sum;
  for (int64_t from = 0; from < size; from += kBatchSize) {
    const int64_t count = std::min(kBatchSize, size - from);
    const auto images = all.data.narrow(0, from, count).to(device);
    const auto labels = all.target.narrow(0, from, count).to(device);
    const auto logits = model(images);
    const auto loss = functional::cross_entropy(
        logits, labels,
        functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    sum.loss += loss.item<double>();
    sum.accuracy += logits.argmax(1).eq(labels).sum().item<double>();
  }
  return {sum.loss / static_cast<double>(size),
          sum.accuracy / static_cast<double>(size)};
}

int Train(const Flags& flags, const ImageDataset& train,
          const ImageDataset& test) {
  torch::manual_seed(flags.seed);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  ResNet18 model(gavel::models::ResNetOptions{.channels = train.channels(),
                                              .classes = train.classes(),
                                              .width = flags.width});
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(flags.learning_rate)
                                  .momentum(0.9)
                                  .weight_decay(5e-4));
  // Without the last, smaller batch, whose statistics would be poor.
  gavel::DataLoader loader(train,
                           {.batch_size = flags.batch_size,
                            .seed = flags.seed,
                            .drop_last = true,
                            .global_batch_size = flags.global_batch_size});
  int64_t epoch = 0;

  gavel::SessionOptions options;
  options.steps_total = flags.steps;
  if (const auto status = gavel::ReadEnvironment(&options); !status.ok()) {
    std::cerr << "train_image: " << status.message() << "\n";
    return 1;
  }
  auto session = gavel::Session::Create(options);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::DataParallel parallel(*session, model);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const auto loss =
          functional::cross_entropy(model(batch.data), batch.target);
      (loss * session->loss_scale()).backward();
      if (!session->last_micro_batch()) continue;
      optimizer.step();
      optimizer.zero_grad();
      session->Report("loss", loss);
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const Score score = Evaluate(model, test, session->device());
    std::printf(
        "{\"steps\": %lld, \"test_loss\": %.9g, \"test_accuracy\": %.4f}\n",
        static_cast<long long>(session->steps_done()), score.loss,
        score.accuracy);
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains ResNet-18 on small images.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  const auto train = ReadImageDataset(flags.data, Split::kTrain);
  const auto test = ReadImageDataset(flags.data, Split::kTest);
  for (const auto& status : {train.status(), test.status()}) {
    if (status.ok()) continue;
    std::cerr << "train_image: " << status.message() << "\n";
    return 1;
  }
  return Train(flags, *train, *test);
}
