#include "bench/workload_steps.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <random>
#include <utility>

#include "models/cyclegan.h"
#include "models/lstm_language_model.h"
#include "models/resnet.h"

namespace gavel::bench {
namespace {

using Steps = std::unique_ptr<WorkloadSteps>;

Steps MakeResNet(const models::ResNetOptions& options, int64_t batch_size,
                 int64_t side) {
  models::ResNet model(options);
  auto steps = std::make_unique<WorkloadSteps>();
  auto sgd = std::make_unique<torch::optim::SGD>(
      model->parameters(),
      torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  steps->batch = {torch::rand({batch_size, 3, side, side}),
                  torch::randint(options.classes, {batch_size})};
  steps->step = [model,
                 optimizer = sgd.get()](const models::Example& batch) mutable {
    optimizer->zero_grad();
    at::Tensor loss =
        torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    loss.backward();
    optimizer->step();
    return loss;
  };
  steps->model = model.ptr();
  steps->optimizers.push_back(std::move(sgd));
  return steps;
}

Steps MakeResNet18() { return MakeResNet({}, 2, 32); }

Steps MakeResNet50() {
  return MakeResNet({.depth = models::ResNetDepth::k50,
                     .stem = models::ResNetStem::kLargeImages,
                     .classes = 1000},
                    2, 64);
}

Steps MakeLanguageModel() {
  constexpr int64_t kWords = 10'000;
  models::LstmLanguageModel model(models::LstmLanguageModelOptions{
      .vocabulary = kWords, .embedding = 200, .hidden = 200, .layers = 2});
  auto steps = std::make_unique<WorkloadSteps>();
  auto adam = std::make_unique<torch::optim::Adam>(model->parameters(), 0.003);
  steps->batch = {torch::randint(kWords, {2, 35}),
                  torch::randint(kWords, {2, 35})};
  steps->step = [model,
                 optimizer = adam.get()](const models::Example& batch) mutable {
    optimizer->zero_grad();
    at::Tensor loss = torch::nn::functional::cross_entropy(
        model(batch.data).flatten(0, 1), batch.target.flatten());
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer->step();
    return loss;
  };
  steps->model = model.ptr();
  steps->optimizers.push_back(std::move(adam));
  return steps;
}

// The networks for 128 pixels, on images of 32.
Steps MakeCycleGan() {
  models::CycleGan model(models::CycleGanOptions{.blocks = 6});
  const auto options = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
  auto steps = std::make_unique<WorkloadSteps>();
  auto generators = std::make_unique<torch::optim::Adam>(
      model->GeneratorParameters(), options);
  auto discriminators = std::make_unique<torch::optim::Adam>(
      model->DiscriminatorParameters(), options);
  steps->batch = {torch::rand({1, 3, 32, 32}), torch::rand({1, 3, 32, 32})};
  steps->step = [model, generator = generators.get(),
                 discriminator = discriminators.get()](
                    const models::Example& batch) mutable {
    generator->zero_grad();
    auto generated = model->Generate(batch.data, batch.target);
    generated.loss.backward();
    generator->step();
    discriminator->zero_grad();
    model->Judge(batch.data, batch.target, generated.fake_a, generated.fake_b)
        .backward();
    discriminator->step();
    return generated.loss;
  };
  steps->model = model.ptr();
  steps->optimizers.push_back(std::move(generators));
  steps->optimizers.push_back(std::move(discriminators));
  return steps;
}

// A new workload is a row here, and one in workload_steps.py.
const std::pair<const char*, Steps (*)()> kWorkloads[] = {
    {"resnet18", MakeResNet18},
    {"resnet50", MakeResNet50},
    {"lstm", MakeLanguageModel},
    {"cyclegan", MakeCycleGan},
};

}  // namespace

int64_t WorkloadSteps::ParameterCount() const {
  int64_t count = 0;
  for (const at::Tensor& one : model->parameters()) count += one.numel();
  return count;
}

std::vector<std::string> WorkloadNames() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kWorkloads) names.emplace_back(name);
  return names;
}

std::unique_ptr<WorkloadSteps> MakeWorkloadSteps(const std::string& name) {
  torch::manual_seed(1);
  for (const auto& [known, make] : kWorkloads) {
    if (name == known) return make();
  }
  return nullptr;
}

}  // namespace gavel::bench
