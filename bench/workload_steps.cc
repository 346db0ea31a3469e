#include "bench/workload_steps.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <random>
#include <utility>

#include "models/actor_critic.h"
#include "models/image_models.h"
#include "models/recommendation.h"
#include "models/text_models.h"

namespace gavel::bench {
namespace {

using Steps = std::unique_ptr<WorkloadSteps>;

// A step with one loss of one model, and with one optimizer.
template <class Model, class Optimizer, class Loss>
Steps MakeSteps(Model model, std::unique_ptr<Optimizer> optimizer,
                models::Example batch, Loss loss_of) {
  auto steps = std::make_unique<WorkloadSteps>();
  steps->batch = std::move(batch);
  steps->step = [model, loss_of, optimizer = optimizer.get()](
                    const models::Example& one) mutable {
    optimizer->zero_grad();
    at::Tensor loss = loss_of(model, one);
    loss.backward();
    optimizer->step();
    return loss;
  };
  steps->model = model.ptr();
  steps->optimizers.push_back(std::move(optimizer));
  return steps;
}

Steps MakeResNet(const models::ResNetOptions& options, int64_t batch_size,
                 int64_t side) {
  models::ResNet model(options);
  auto sgd = std::make_unique<torch::optim::SGD>(
      model->parameters(),
      torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  return MakeSteps(model, std::move(sgd),
                   {torch::rand({batch_size, 3, side, side}),
                    torch::randint(options.classes, {batch_size})},
                   [](models::ResNet& one, const models::Example& batch) {
                     return torch::nn::functional::cross_entropy(
                         one(batch.data), batch.target);
                   });
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

Steps MakeTransformer() {
  constexpr int64_t kWords = 8'000;
  models::Transformer model(models::TransformerOptions{.vocabulary = kWords});
  auto adam = std::make_unique<torch::optim::Adam>(
      model->parameters(),
      torch::optim::AdamOptions(1e-4).betas({0.9, 0.98}).eps(1e-9));
  return MakeSteps(model, std::move(adam),
                   {torch::randint(10, kWords, {2, 16}),
                    torch::randint(10, kWords, {2, 16})},
                   [](models::Transformer& one, const models::Example& batch) {
                     return models::TranslationLoss(
                         one(batch.data, batch.target), batch.target, 0.1);
                   });
}

Steps MakeGpt() {
  constexpr int64_t kWords = 10'000;
  models::Gpt model(models::GptOptions{.vocabulary = kWords,
                                       .length = 64,
                                       .width = 384,
                                       .heads = 6,
                                       .layers = 6});
  auto adam = std::make_unique<torch::optim::AdamW>(model->parameters(), 1e-4);
  return MakeSteps(
      model, std::move(adam),
      {torch::randint(kWords, {1, 64}), torch::randint(kWords, {1, 64})},
      [](models::Gpt& one, const models::Example& batch) {
        return torch::nn::functional::cross_entropy(
            one(batch.data).flatten(0, 1), batch.target.flatten());
      });
}

// The model has as many items as MovieLens 20M.
Steps MakeRecommendation() {
  constexpr int64_t kItems = 20'108;
  models::RecommendationAutoencoder model(
      models::RecommendationAutoencoderOptions{.items = kItems});
  auto adam = std::make_unique<torch::optim::Adam>(model->parameters(), 1e-3);
  const at::Tensor likes = torch::rand({64, kItems}).gt(0.99).to(at::kFloat);
  return MakeSteps(
      model, std::move(adam), {likes, likes},
      [](models::RecommendationAutoencoder& one, const models::Example& batch) {
        return models::MultinomialLoss(one(batch.data), batch.target);
      });
}

// An actor's learning step on 20 pictures, without the game.
Steps MakeActorCritic() {
  constexpr int64_t kPictures = 20;
  models::ActorCritic model(models::ActorCriticOptions{});
  auto adam = std::make_unique<torch::optim::Adam>(
      model->parameters(), torch::optim::AdamOptions(1e-4).amsgrad(true));
  at::Tensor advantages = torch::randn({kPictures});
  return MakeSteps(
      model, std::move(adam),
      {torch::rand({kPictures, 4, 84, 84}), torch::randint(3, {kPictures})},
      [advantages](models::ActorCritic& one,
                   const models::Example& batch) mutable {
        advantages = advantages.to(batch.data.device());
        return models::ActorCriticLoss(one(batch.data), batch.target,
                                       advantages, advantages, {});
      });
}

// The networks are those for 128 pixels; the images have 32.
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

// To add a workload, add a row here and in workload_steps.py.
const std::pair<const char*, Steps (*)()> kWorkloads[] = {
    {"resnet18", MakeResNet18},
    {"resnet50", MakeResNet50},
    {"lstm", MakeLanguageModel},
    {"transformer", MakeTransformer},
    {"gpt", MakeGpt},
    {"recommendation", MakeRecommendation},
    {"a3c", MakeActorCritic},
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

std::unique_ptr<WorkloadSteps> MakeWorkloadSteps(const std::string& name,
                                                 c10::Device device) {
  torch::manual_seed(1);
  for (const auto& [known, make] : kWorkloads) {
    if (name != known) continue;
    Steps steps = make();
    steps->model->to(device);
    steps->batch = {steps->batch.data.to(device),
                    steps->batch.target.to(device)};
    return steps;
  }
  return nullptr;
}

}  // namespace gavel::bench
