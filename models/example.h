// One sample of a dataset, or a batch of them: what goes into a model and what
// should come out. A value; tensors are shared handles.
#ifndef GAVEL_MODELS_EXAMPLE_H_
#define GAVEL_MODELS_EXAMPLE_H_

#include <ATen/core/Tensor.h>

namespace gavel::models {

// The names are those of torch::data::Example, so that loaders stack them.
struct Example {
  at::Tensor data;
  at::Tensor target;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_EXAMPLE_H_
