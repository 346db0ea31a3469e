// Trains ResNet-18 on small images: handwritten digits by default, or a folder
// of CIFAR-10 binary or MNIST IDX files (--data); without any on made-up
// stripes. Alone or under a coordinator,
// on one worker or as a gang: with --global-batch-size the steps are the same
// on any number of workers, so that the job may grow and shrink. Prints one
// line of JSON at the end: the loss and accuracy on the test images.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "examples/training.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "gavel/session.h"
#include "models/image_models.h"
#include "models/images.h"

namespace {

namespace functional = torch::nn::functional;
using gavel::examples::OrFail;
using gavel::models::Example;
using gavel::models::ImageDataset;
using gavel::models::ResNet;
using gavel::models::Split;
using gavel::models::StripeDataset;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    data = GAVEL_DIGITS_DIR;
    learning_rate = 0.02;
  }
  int64_t width = 16;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags, "folder of CIFAR-10 or IDX files", "images");
  AddGangFlags(app, flags);
  app.add_option("--width", flags.width, "64: the published ResNet-18")
      ->check(CLI::PositiveNumber);
}

struct Score {
  double loss = 0;
  double accuracy = 0;
};

Score Evaluate(ResNet& model, const ImageDataset& dataset,
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
  Seed(flags);
  ResNet model(gavel::models::ResNetOptions{.channels = train.channels(),
                                            .classes = train.classes(),
                                            .width = flags.width});
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(flags.learning_rate)
                                  .momentum(0.9)
                                  .weight_decay(5e-4));
  // Without the last, smaller batch, whose statistics would be poor.
  auto loader = LoaderOf(train, flags, {.drop_last = true});
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::DataParallel parallel(*session, model);
  gavel::examples::StepLoss step_loss(*session);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      torch::Tensor loss;
      {
        const gavel::Span span(*session, "forward");
        loss = functional::cross_entropy(model(batch.data), batch.target);
      }
      {
        const gavel::Span span(*session, "backward");
        (loss * session->loss_scale()).backward();
      }
      step_loss.Add(loss);
      if (!session->last_micro_batch()) continue;
      const gavel::Span span(*session, "optimizer");
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const Score score = Evaluate(model, test, session->device());
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"test_loss\": %.9g, "
        "\"test_accuracy\": %.4f}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        score.loss, score.accuracy);
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains ResNet-18 on small images.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  UseDefaultData(app, flags);
  if (flags.data.empty()) {
    return Train(flags, StripeDataset({.size = 2000, .side = 32, .seed = 1}),
                 StripeDataset({.size = 500, .side = 32, .seed = 2}));
  }
  return Train(flags, OrFail(ReadImageDataset(flags.data, Split::kTrain)),
               OrFail(ReadImageDataset(flags.data, Split::kTest)));
}
