// One training step of each workload, always on the same batch. bench_workloads
// times it. The models have the published sizes, and a CPU needs a fraction of
// a second for a batch. bench/workload_steps.py has the same steps in Python.
#ifndef GAVEL_BENCH_WORKLOAD_STEPS_H_
#define GAVEL_BENCH_WORKLOAD_STEPS_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/dataset.h"

namespace gavel::bench {

struct WorkloadSteps {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
  models::Example batch;
  // Trains on the batch and returns the loss.
  std::function<at::Tensor(const models::Example& batch)> step;

  int64_t ParameterCount() const;
};

std::vector<std::string> WorkloadNames();

// Null if there is no such workload.
std::unique_ptr<WorkloadSteps> MakeWorkloadSteps(const std::string& name,
                                                 c10::Device device);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_WORKLOAD_STEPS_H_
