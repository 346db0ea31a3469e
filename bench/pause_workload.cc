#include "bench/pause_workload.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <utility>

#include "bench/torch_device.h"
#include "models/image_models.h"
#include "models/text_models.h"

namespace gavel::bench {
namespace {

constexpr int64_t kRows = 1'000'000;
constexpr int64_t kColumns = 256;

std::unique_ptr<Workload> Make(std::shared_ptr<torch::nn::Module> model,
                               double momentum, c10::Device device,
                               std::function<at::Tensor()> loss) {
  auto workload = std::make_unique<Workload>();
  model->to(device);
  workload->device = device;
  workload->optimizer = std::make_unique<torch::optim::SGD>(
      model->parameters(), torch::optim::SGDOptions(0.01).momentum(momentum));
  workload->model = std::move(model);
  workload->loss = std::move(loss);
  return workload;
}

std::unique_ptr<Workload> MakeResNet(c10::Device device) {
  models::ResNet model(models::ResNetOptions{});
  const at::Tensor images = torch::rand({1, 3, 32, 32});
  const at::Tensor labels = torch::randint(10, {1});
  return Make(model.ptr(), 0.9, device, [=]() mutable {
    return torch::nn::functional::cross_entropy(model(images.to(device)),
                                                labels.to(device));
  });
}

std::unique_ptr<Workload> MakeLstm(c10::Device device) {
  constexpr int64_t kWords = 10'000;
  models::LstmLanguageModel model(models::LstmLanguageModelOptions{
      .vocabulary = kWords, .embedding = 200, .hidden = 200, .layers = 2});
  const at::Tensor tokens = torch::randint(kWords, {1, 35});
  return Make(model.ptr(), 0, device, [=]() mutable {
    const at::Tensor there = tokens.to(device);
    return torch::nn::functional::cross_entropy(model(there).flatten(0, 1),
                                                there.flatten());
  });
}

class TableImpl : public torch::nn::Module {
 public:
  // Without random initialization, which a restarted process would pay for.
  TableImpl()
      : table_(register_module("table",
                               torch::nn::Embedding::from_pretrained(
                                   torch::zeros({kRows, kColumns}),
                                   torch::nn::EmbeddingFromPretrainedOptions()
                                       .freeze(false)
                                       .sparse(true)))),
        score_(register_module("score", torch::nn::Linear(kColumns, 1))) {}
  at::Tensor forward(const at::Tensor& rows) { return score_(table_(rows)); }

 private:
  torch::nn::Embedding table_;
  torch::nn::Linear score_;
};
TORCH_MODULE(Table);

std::unique_ptr<Workload> MakeTable(c10::Device device) {
  Table model;
  const at::Tensor rows = torch::randint(kRows, {64});
  return Make(model.ptr(), 0, device,
              [=]() mutable { return model(rows.to(device)).square().mean(); });
}

}  // namespace

void Workload::Step() {
  optimizer->zero_grad();
  loss().backward();
  optimizer->step();
  Wait(device);
}

uint64_t Workload::StateBytes() const {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : model->parameters()) bytes += tensor.nbytes();
  for (const at::Tensor& tensor : model->buffers()) bytes += tensor.nbytes();
  for (const auto& [key, state] : optimizer->state()) {
    const auto& sgd = static_cast<const torch::optim::SGDParamState&>(*state);
    if (sgd.momentum_buffer().defined()) {
      bytes += sgd.momentum_buffer().nbytes();
    }
  }
  return bytes;
}

void Workload::Save(const std::string& path) {
  torch::serialize::OutputArchive archive, model_archive, optimizer_archive;
  model->save(model_archive);
  optimizer->save(optimizer_archive);
  archive.write("model", model_archive);
  archive.write("optimizer", optimizer_archive);
  archive.save_to(path);
}

void Workload::Load(const std::string& path) {
  torch::serialize::InputArchive archive, model_archive, optimizer_archive;
  archive.load_from(path);
  archive.read("model", model_archive);
  archive.read("optimizer", optimizer_archive);
  model->load(model_archive);
  optimizer->load(optimizer_archive);
}

std::unique_ptr<Workload> MakeWorkload(const std::string& name,
                                       c10::Device device) {
  torch::manual_seed(1);
  if (name == "resnet18") return MakeResNet(device);
  if (name == "lstm") return MakeLstm(device);
  if (name == "embedding") return MakeTable(device);
  return nullptr;
}

}  // namespace gavel::bench
