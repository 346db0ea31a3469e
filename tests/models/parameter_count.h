#ifndef GAVEL_TESTS_MODELS_PARAMETER_COUNT_H_
#define GAVEL_TESTS_MODELS_PARAMETER_COUNT_H_

#include <torch/nn/module.h>

#include <cstdint>

namespace gavel::testing {

// Numbers that a module learns; a tensor that is used twice counts once.
inline int64_t ParameterCount(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MODELS_PARAMETER_COUNT_H_
