// Measures how long a training waits for its batches, and its batches per
// second: through gavel::DataLoader with reading threads, with reading on the
// training thread, through LibTorch's DataLoader with as many workers, and with
// a batch that stays on the device. A step keeps the device busy for a while
// and reads one number back. Images are cropped, mirrored and normalized, which
// two threads do faster than a step.
//
//   bench_input [--threads N] [--turns N] [--device DEVICE] [--out FILE.json]
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/table.h"
#include "bench/torch_device.h"
#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "gavel/session.h"

namespace {

using gavel::bench::AtLeast;
using gavel::bench::Die;
using gavel::bench::Median;
using gavel::bench::Row;
using gavel::bench::SecondsSince;
using gavel::bench::ValueAtMost;
using gavel::bench::Wait;
using Example = torch::data::Example<>;

constexpr int64_t kBatchSize = 96;
constexpr size_t kBatches = 60;  // of a turn
constexpr int64_t kSide = 72;    // of a stored image; 64 of a crop
constexpr double kStep_s = 0.02;

// Decodes images from memory as a data set of photographs does.
class Images : public torch::data::datasets::Dataset<Images> {
 public:
  Images() : stored_(torch::randint(256, {256, 3, kSide, kSide}, at::kByte)) {}
  Example get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    at::Tensor crop = stored_[i % stored_.size(0)]
                          .narrow(1, i % 8, kSide - 8)
                          .narrow(2, i / 8 % 8, kSide - 8);
    if (i % 2 == 1) crop = crop.flip(2);
    return {crop.to(at::kFloat).div_(255).sub_(0.45).div_(0.225),
            at::scalar_tensor(i % 10, at::kLong)};
  }
  std::optional<size_t> size() const override {
    return kBatches * static_cast<size_t>(kBatchSize);
  }

 private:
  at::Tensor stored_;
};

// Keeps the device busy for about kStep_s.
class Step {
 public:
  explicit Step(c10::Device device)
      : work_(torch::zeros({1 << 18}, device)), device_(device) {
    Run(1);
    Wait(device_);
    const auto start = gavel::bench::Clock::now();
    Run(100);
    Wait(device_);
    kernels_ =
        std::max(1, static_cast<int>(100 * kStep_s / SecondsSince(start)));
  }
  double operator()(const at::Tensor& batch) {
    Run(kernels_);
    return work_.add_(batch.view(-1)[0]).slice(0, 0, 1).item<double>();
  }

 private:
  void Run(int kernels) {
    for (int i = 0; i < kernels; ++i) work_.add_(1);
  }

  at::Tensor work_;
  c10::Device device_;
  int kernels_ = 1;
};

struct Turn {
  double batches_per_s = 0;
  double waiting = 0;  // for batches, a part of the time
};

template <class Loader>
Turn Train(c10::Device device, Step& step, Loader& loader) {
  gavel::SessionOptions options;
  options.device = device.str();
  options.log = [](gavel::LogLevel, const std::string&) {};
  const auto session = gavel::Session::Create(options);
  const auto start = gavel::bench::Clock::now();
  for (auto& batch : gavel::Iterator(*session, loader)) step(batch.data);
  const double took_s = SecondsSince(start);
  if (!session->status().ok()) Die(session->status().message());
  const gavel::Profile profile = session->profile();
  if (profile.steps != kBatches) Die("the loop has left batches out");
  Turn turn{static_cast<double>(kBatches) / took_s, -1};
  for (const gavel::PhaseProfile& phase : profile.phases) {
    if (phase.name == "data") turn.waiting = phase.mean_s / profile.step_mean_s;
  }
  return turn;
}

Turn TrainByGavel(c10::Device device, Step& step, int threads) {
  gavel::DataLoader loader(
      Images(),
      {.batch_size = kBatchSize, .shuffle = false, .reading_threads = threads});
  return Train(device, step, loader);
}

Turn TrainByTorch(c10::Device device, Step& step, int workers) {
  const auto loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          Images().map(torch::data::transforms::Stack<>()),
          torch::data::DataLoaderOptions(kBatchSize)
              .workers(static_cast<size_t>(workers)));
  return Train(device, step, *loader);
}

// The upper bound: the training never waits for a batch.
Turn TrainWithoutInput(c10::Device device, Step& step) {
  const std::vector<Example> batches(
      kBatches, {torch::zeros({kBatchSize, 3, 64, 64}, device),
                 torch::zeros({kBatchSize}, device)});
  return Train(device, step, batches);
}

double MedianOf(const std::vector<Turn>& turns, double Turn::*figure) {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back(turn.*figure);
  return Median(values);
}

}  // namespace

int main(int argc, char** argv) {
  std::string out, device_name = "cpu";
  int threads = 2, turn_count = 5;
  gavel::bench::ReadFlags(argc, argv,
                          {{"--out", &out},
                           {"--device", &device_name},
                           {"--threads", &threads},
                           {"--turns", &turn_count}});
  const c10::Device device = gavel::bench::ChosenDevice(device_name);
  Step step(device);
  std::vector<Turn> ahead, alone, torch, bound;
  for (int turn = 0; turn < turn_count; ++turn) {
    ahead.push_back(TrainByGavel(device, step, threads));
    alone.push_back(TrainByGavel(device, step, 0));
    torch.push_back(TrainByTorch(device, step, threads));
    bound.push_back(TrainWithoutInput(device, step));
  }
  constexpr auto kRate = &Turn::batches_per_s;
  constexpr auto kWaiting = &Turn::waiting;
  const double rate = MedianOf(ahead, kRate);
  return gavel::bench::Report(
      {{"waiting for batches", 100 * MedianOf(ahead, kWaiting), "%",
        "no reading threads", 100 * MedianOf(alone, kWaiting), ValueAtMost(5)},
       {"batches", rate, "1/s", "no reading threads", MedianOf(alone, kRate)},
       {"batches", rate, "1/s", "LibTorch's DataLoader", MedianOf(torch, kRate),
        AtLeast(0.95)},
       {"batches", rate, "1/s", "a batch that stays", MedianOf(bound, kRate)}},
      out);
}
