#include "tests/iterator/training.h"

#include <ATen/Parallel.h>
#include <stdlib.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "tests/support/test_device.h"

namespace gavel::testing {
namespace {

struct Sample {
  at::Tensor data;
  at::Tensor target;
};

// Points and the side of a curve on which they lie.
class Points {
 public:
  Sample get(size_t index) const {
    const double x = static_cast<double>(index % 12) / 6 - 1;
    const double y = static_cast<double>(index / 12) / 4 - 1;
    return {torch::tensor({x, y}, torch::kFloat),
            torch::tensor(x * x > y ? 1 : 0, torch::kLong)};
  }
  size_t size() const { return 96; }
};

std::string BytesOf(torch::nn::Module& module) {
  std::string bytes;
  const auto add = [&bytes](const at::Tensor& tensor) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(host.const_data_ptr()),
                 host.nbytes());
  };
  for (const at::Tensor& tensor : module.parameters()) add(tensor);
  for (const at::Tensor& tensor : module.buffers()) add(tensor);
  return bytes;
}

}  // namespace

std::function<void(LogLevel, const std::string&)> Lines::Sink() {
  return [this](LogLevel, const std::string& line) {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_.push_back(line);
  };
}

int Lines::Count(const std::string& part) const {
  std::lock_guard<std::mutex> lock(mutex_);
  int count = 0;
  for (const std::string& line : lines_) {
    if (line.find(part) != std::string::npos) ++count;
  }
  return count;
}

std::string Lines::Text() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const std::string& line : lines_) text += line + "\n";
  return text;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "gavel-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Outcome Train(SessionOptions options, const TrainingOptions& training) {
  at::set_num_threads(1);  // as on a CPU slot of one thread
  torch::manual_seed(7);
  torch::nn::Sequential model(
      torch::nn::Linear(2, 16), torch::nn::BatchNorm1d(16),
      torch::nn::Dropout(0.3), torch::nn::Linear(16, 2));
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  DataLoaderOptions data;
  data.batch_size = 16;
  data.seed = 3;
  DataLoader loader(Points(), data);

  Outcome outcome;
  auto session = Session::Create(std::move(options));
  session->Track("model", model);
  if (training.track_optimizer) session->Track("optimizer", optimizer);
  session->Track("epoch", outcome.epoch);
  if (training.before_loop) training.before_loop(*session);
  while (outcome.epoch < training.epochs && !session->stopped()) {
    for (auto& batch : Iterator(*session, loader)) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          model->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      session->Report("loss", loss);
      outcome.losses.push_back(loss.item<double>());
      outcome.device = batch.data.device();
      if (training.after_step) training.after_step(*session);
    }
    if (!session->stopped() && training.after_epoch) {
      training.after_epoch(*session, *model);
    }
    if (!session->stopped()) ++outcome.epoch;
  }
  outcome.exit_code = session->Finish();
  outcome.finished = session->finished();
  outcome.status = session->status();
  outcome.steps_done = session->steps_done();
  outcome.weights = BytesOf(*model);
  return outcome;
}

const Outcome& Uninterrupted() {
  static const Outcome outcome = [] {
    SessionOptions options;
    options.device = ReferenceDevice();
    options.log = [](LogLevel, const std::string&) {};
    return Train(std::move(options));
  }();
  return outcome;
}

}  // namespace gavel::testing
