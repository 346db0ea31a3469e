// The trainings that bench/pause.cc pauses. They use synthetic data and small
// batches, so that the benchmark measures pausing more than training.
#ifndef GAVEL_BENCH_PAUSE_WORKLOAD_H_
#define GAVEL_BENCH_PAUSE_WORKLOAD_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>

namespace gavel::bench {

struct Workload {
  std::shared_ptr<torch::nn::Module> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<at::Tensor()> loss;  // of one batch
  c10::Device device{c10::kCPU};

  // Does one step, and returns when the device is done.
  void Step();
  // The size of parameters, buffers and momentum, all of which a checkpoint
  // has.
  uint64_t StateBytes() const;
  // Save and Load use torch::save and torch::load, as the original Gavel's jobs
  // do before they end and after they start.
  void Save(const std::string& path);
  void Load(const std::string& path);
};

// "resnet18" (11.2 million parameters, SGD with momentum, an image of 32 x 32),
// "lstm" (two layers over 10,000 words, SGD), "embedding" (1 GB: a table of a
// million rows, of which a step reads a few, SGD). Null for another name.
std::unique_ptr<Workload> MakeWorkload(const std::string& name,
                                       c10::Device device);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_PAUSE_WORKLOAD_H_
