// An optimizer class as a user writes one: SGD with momentum whose rate falls
// with a counter, and that remembers its last gradients.
#ifndef GAVEL_TESTS_ITERATOR_OWN_OPTIMIZER_H_
#define GAVEL_TESTS_ITERATOR_OWN_OPTIMIZER_H_

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gavel/optimizer_kind.h"

namespace gavel::testing {

struct OwnOptions : public torch::optim::OptimizerCloneableOptions<OwnOptions> {
  OwnOptions() = default;
  explicit OwnOptions(double rate) { lr = rate; }
  double get_lr() const override { return lr; }
  void set_lr(double rate) override { lr = rate; }
  double lr = 0.01;
  float momentum = 0.9f;
  std::optional<int> remembered = 2;
  std::string note = "two\nlines";
};

struct OwnState : public torch::optim::OptimizerCloneableParamState<OwnState> {
  int step = 0;
  at::Tensor momentum;
  at::Tensor never;  // stays undefined
  std::deque<at::Tensor> last;
};

class OwnOptimizer : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<at::Tensor> parameters,
                        const OwnOptions& options = {})
      : Optimizer(std::move(parameters),
                  std::make_unique<OwnOptions>(options)) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure != nullptr) loss = closure();
    at::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      const auto& options = dynamic_cast<OwnOptions&>(group.options());
      for (at::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) Update(options, parameter);
      }
    }
    return loss;
  }

 private:
  void Update(const OwnOptions& options, at::Tensor& parameter) {
    auto& entry = state_[parameter.unsafeGetTensorImpl()];
    if (entry == nullptr) entry = std::make_unique<OwnState>();
    auto& state = dynamic_cast<OwnState&>(*entry);
    const at::Tensor gradient = parameter.grad().clone();
    state.momentum = state.momentum.defined()
                         ? state.momentum * options.momentum + gradient
                         : gradient;
    state.last.push_back(gradient.mean());
    if (static_cast<int>(state.last.size()) > *options.remembered) {
      state.last.pop_front();
    }
    const double rate = options.lr / ++state.step;
    parameter.sub_(state.momentum * rate + state.last.front() * 0.001);
  }
};

inline OptimizerKind OwnKind() {
  return DescribeOptimizer<OwnOptions, OwnState>(
      "OwnOptimizer",
      [](OwnOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr);
        fields("momentum", options.momentum);
        fields("remembered", options.remembered);
        fields("note", options.note);
      },
      [](OwnState& state, OptimizerFields& fields) {
        fields("step", state.step);
        fields("momentum", state.momentum);
        fields("never", state.never);
        fields("last", state.last);
      });
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_OWN_OPTIMIZER_H_
