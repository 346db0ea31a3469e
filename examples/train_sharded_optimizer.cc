// Data parallel training with the optimizer's state divided among the workers
// of a gang: each has the whole model, but Adam's averages only of its part of
// the parameters. Adam needs 8 bytes a parameter for them, which W workers have
// once instead of W times.
//
//   ./train_sharded_optimizer                                          alone
//   torchrun --nproc-per-node 2 --no-python ./train_sharded_optimizer  divided
//
// The method is ZeRO-1 of Rajbhandari et al., "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models" (2020), section 5.1.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/session.h"

namespace {

using torch::Tensor;

constexpr int64_t kInputs = 16;
constexpr int64_t kBatch = 24;
constexpr int64_t kSteps = 40;

int64_t Number(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// All parameters in a row, of which each worker's optimizer steps a part.
class OwnPart {
 public:
  OwnPart(const gavel::Session& session, std::vector<Tensor> parameters)
      : parameters_(std::move(parameters)) {
    size_ = torch::nn::utils::parameters_to_vector(parameters_).numel();
    // As torch::chunk() cuts: the last part may be shorter, or empty.
    const int64_t workers = session.world_size();
    const int64_t each = (size_ + workers - 1) / workers;
    begin_ = std::min(size_, each * session.rank());
    const int64_t end = std::min(size_, begin_ + each);
    values = InARow().narrow(0, begin_, end - begin_).clone();
  }

  // Before the optimizer's step.
  void TakeGradients() {
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : parameters_) {
      gradients.push_back(parameter.grad().reshape(-1));
    }
    values.mutable_grad() = OwnOf(torch::cat(gradients)).clone();
  }
  // After it: from all workers to all.
  void GiveValues(gavel::Session& session) {
    Tensor all = torch::zeros({size_}, values.options());
    OwnOf(all).copy_(values);
    static_cast<void>(session.AllReduce(all));
    const torch::NoGradGuard no_grad;
    int64_t from = 0;
    for (Tensor& parameter : parameters_) {
      parameter.copy_(
          all.narrow(0, from, parameter.numel()).view_as(parameter));
      from += parameter.numel();
    }
  }
  int64_t size() const { return size_; }

  Tensor values;

 private:
  Tensor InARow() const {
    return torch::nn::utils::parameters_to_vector(parameters_).detach();
  }
  Tensor OwnOf(const Tensor& row) const {
    return row.narrow(0, begin_, values.numel());
  }

  std::vector<Tensor> parameters_;
  int64_t size_ = 0;
  int64_t begin_ = 0;
};

}  // namespace

int main() {
  gavel::SessionOptions options;
  // The model's parameters are in no optimizer; this worker's part of them is.
  options.require_tracked_optimizer = false;
  const gavel::Status status = gavel::ReadEnvironment(&options);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 2;
  }
  auto session = gavel::Session::Create(options);
  torch::manual_seed(1);  // the same weights on all workers
  const int64_t hidden = Number("HIDDEN", 64);
  torch::nn::Sequential model(torch::nn::Linear(kInputs, hidden),
                              torch::nn::Tanh(),
                              torch::nn::Linear(hidden, kInputs));
  OwnPart part(*session, model->parameters());
  torch::optim::Adam optimizer({part.values}, 0.003);
  int64_t next = 0;

  session->Track("model", model);
  session->Track("part", part.values, gavel::Sharded{0, part.size()});
  session->Track("optimizer", optimizer);
  session->Track("next", next);
  gavel::DataParallel parallel(*session, model);  // averages the gradients

  const std::chrono::milliseconds pause(Number("STEP_MS", 0));
  double loss = 0;
  const int64_t steps = Number("STEPS", kSteps);
  while (next < steps && session->Boundary()) {
    torch::manual_seed(static_cast<uint64_t>(1000 + next));
    // Each worker has an equal share of the batch.
    const Tensor batch =
        torch::randn({kBatch, kInputs})
            .chunk(session->world_size())[static_cast<size_t>(session->rank())]
            .to(session->device());
    const Tensor error =
        (model->forward(batch) - torch::sin(batch.cumsum(1))).square().mean();
    model->zero_grad();
    error.backward();
    part.TakeGradients();
    optimizer.step();
    part.GiveValues(*session);
    Tensor mean = error.detach().clone();
    static_cast<void>(session->AllReduce(mean, gavel::ReduceOp::kMean));
    loss = mean.item<double>();
    session->Report("loss", loss);
    std::this_thread::sleep_for(pause);
    ++next;
    session->StepDone();
  }
  std::printf("{\"loss\": %.6f, \"hexadecimal\": \"%a\", \"workers\": %d}\n",
              loss, loss, session->world_size());
  return session->Finish();
}
