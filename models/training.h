// Tools for training loops: learning rates, the parameter groups of AdamW, and
// mixed precision. A learning rate is a function of the step alone, so that a
// checkpoint need not hold it.
#ifndef GAVEL_MODELS_TRAINING_H_
#define GAVEL_MODELS_TRAINING_H_

#include <ATen/autocast_mode.h>
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
// (width x steps)^-0.5. step: the number of steps done before, >= 0.
double InverseSquareRootRate(int64_t step, const WarmUp& warm_up);

// Linear warm-up, then half a cosine down to a tenth of the peak at
// `steps_total`, constant after that. T. Brown et al., Language Models are
// Few-Shot Learners, NeurIPS 2020, appendix B.
double CosineRate(int64_t step, const WarmUp& warm_up, int64_t steps_total);

void SetLearningRate(torch::optim::Optimizer& optimizer, double rate);

// The parameters in two groups for AdamW: matrices, which decay by
// `weight_decay`, and biases and norms, which do not. Ibid.
std::vector<torch::optim::OptimizerParamGroup> DecayGroups(
    const torch::nn::Module& module, double learning_rate, double weight_decay);

// While an object of this class lives, LibTorch computes matrix products on
// that kind of device in bfloat16, and operations that need it in float32.
// Weights and gradients stay float32. Since bfloat16 has the same range, no
// loss scaling is needed. It is for forward passes, whose precision backward()
// follows, and affects this thread only.
class MixedPrecision {
 public:
  // enabled false: nothing changes.
  MixedPrecision(at::DeviceType device, bool enabled)
      : device_(device),
        enabled_before_(at::autocast::is_autocast_enabled(device)),
        type_before_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    if (!enabled) return;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
  }
  ~MixedPrecision() {
    // The cached bfloat16 copies of the weights are valid for one step only.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_before_);
    at::autocast::set_autocast_dtype(device_, type_before_);
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_before_;
  at::ScalarType type_before_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_TRAINING_H_
