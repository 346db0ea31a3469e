// Learning rates as functions of the step alone, so that a checkpoint has
// nothing of them to keep, and what else of optimizers several workloads need.
#ifndef GAVEL_MODELS_SCHEDULE_H_
#define GAVEL_MODELS_SCHEDULE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

namespace gavel::models {

struct WarmUp {
  double peak = 0.001;  // reached when the warm-up is over
  int64_t steps = 0;
};

// Linear warm-up, then with the inverse square root of the step. A. Vaswani et
// al., Attention Is All You Need, NeurIPS 2017, section 5.3, whose peak is
// (width x steps)^-0.5. step: those done before, >= 0.
double InverseSquareRootRate(int64_t step, const WarmUp& warm_up);

// Linear warm-up, then half a cosine down to a tenth of the peak at
// `steps_total`, and that from there on. T. Brown et al., Language Models are
// Few-Shot Learners, NeurIPS 2020, appendix B.
double CosineRate(int64_t step, const WarmUp& warm_up, int64_t steps_total);

void SetLearningRate(torch::optim::Optimizer& optimizer, double rate);

// The parameters in two groups for AdamW: matrices, which decay by
// `weight_decay`, and biases and norms, which do not. Ibid.
std::vector<torch::optim::OptimizerParamGroup> DecayGroups(
    const torch::nn::Module& module, double learning_rate, double weight_decay);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_SCHEDULE_H_
