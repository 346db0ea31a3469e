// The trainings that bench/pause.cc pauses: synthetic data, small batches, so
// that what is measured is pausing more than training.
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

  // Returns when the device is done.
  void Step();
  // Of parameters, buffers and momentum: what a checkpoint has.
  uint64_t StateBytes() const;
  // With torch::save: what the original Gavel's jobs do before they end.
  void Save(const std::string& path);
  void Load(const std::string& path);
};

// "resnet18" (11.2 million parameters, SGD with momentum, an image of 32 x 32),
// "lstm" (two layers over 10,000 words, SGD), "embedding" (1 GB: a table of a
// million rows, of which a step reads a few, SGD). Null: no such name.
std::unique_ptr<Workload> MakeWorkload(const std::string& name,
                                       c10::Device device);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_PAUSE_WORKLOAD_H_
