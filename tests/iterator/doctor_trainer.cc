// A training program for `gavel doctor`: six epochs of eight steps with a
// learning rate schedule, a moving average and an evaluation after each epoch.
//
//   doctor_trainer MODE
//
// With the mode "whole" it tracks all of that, as with "short", which has two
// epochs. Others leave something out: scheduler, average, epoch, or micro (the
// optimizer steps after every second batch, and nobody tracks their number); or
// leave the loop early: break; or keep memory on the accelerator: memory.
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"

namespace {

constexpr int64_t kEpochs = 6;
constexpr int64_t kEpochsOfShort = 2;
constexpr int kBatchesBeforeBreak = 5;

struct Sample {
  at::Tensor data;
  at::Tensor target;
};

class Line {
 public:
  Sample get(size_t index) const {
    const double x = static_cast<double>(index) / 32 - 1;
    return {torch::tensor({x, x * x}, torch::kFloat),
            torch::tensor({0.5 * x + 0.1}, torch::kFloat)};
  }
  size_t size() const { return 64; }
};

class Training {
 public:
  explicit Training(std::string mode) : mode_(std::move(mode)) {
    session_->Track("model", model_);
    session_->Track("optimizer", optimizer_);
    if (mode_ != "scheduler") session_->Track("scheduler", scheduler_);
    if (mode_ != "average") session_->Track("average", average_);
    if (mode_ != "epoch") session_->Track("epoch", epoch_);
  }

  int Run() {
    const int64_t epochs = mode_ == "short" ? kEpochsOfShort : kEpochs;
    while (epoch_ < epochs && !session_->stopped()) {
      Epoch();
      if (session_->stopped()) break;
      Evaluate();
      scheduler_.step();
      ++epoch_;
    }
    return session_->Finish();
  }

 private:
  void Epoch() {
    int batches = 0;  // of this process, which nobody tracks
    for (auto& batch : gavel::Iterator(*session_, loader_)) {
      if (mode_ == "memory" && !kept_.defined()) {
        kept_ = torch::zeros({1 << 18}, session_->device());
      }
      if (mode_ == "break" && ++batches > kBatchesBeforeBreak) break;
      const bool micro = mode_ == "micro";
      if (!micro) optimizer_.zero_grad();
      const at::Tensor loss =
          (model_->forward(batch.data) - batch.target).square().mean();
      loss.backward();
      if (!micro || ++micro_batches_ % 2 == 0) optimizer_.step();
      if (micro && micro_batches_ % 2 == 0) optimizer_.zero_grad();
      const torch::NoGradGuard no_grad;
      average_.mul_(0.9).add_(model_->weight, 0.1);
      session_->Report("loss", loss);
    }
  }

  void Evaluate() {
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::ones({1, 2}, session_->device());
    session_->Report("model", model_->forward(x).sum());
    session_->Report("average", x.matmul(average_.t()).sum());
  }

  const std::string mode_;
  torch::nn::Linear model_{2, 1};
  torch::optim::SGD optimizer_{model_->parameters(),
                               torch::optim::SGDOptions(0.1).momentum(0.9)};
  torch::optim::StepLR scheduler_{optimizer_, 1, 0.5};
  at::Tensor average_ = model_->weight.detach().clone();
  at::Tensor kept_;
  int64_t epoch_ = 0;
  int64_t micro_batches_ = 0;
  gavel::DataLoader<Line> loader_{Line(), {.batch_size = 8}};
  std::unique_ptr<gavel::Session> session_ = gavel::Session::FromEnvironment();
};

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(3);
  return Training(argc > 1 ? argv[1] : "").Run();
}
