// Describes the state of an optimizer class of your own, so that it can be
// tracked as LibTorch's are. Its parameters and groups are known; this names
// the rest:
//
//   const auto kind = gavel::DescribeOptimizer<LionOptions, LionParamState>(
//       "Lion",
//       [](LionOptions& options, gavel::OptimizerFields& fields) {
//         fields("lr", options.lr());
//         fields("beta", options.beta());
//       },
//       [](LionParamState& state, gavel::OptimizerFields& fields) {
//         fields("step", state.step());
//         fields("exp_avg", state.exp_avg());
//       });
//   session->Track("optimizer", lion, kind);
//
// Members of the optimizer itself, outside options and state, are tracked by
// themselves. Include LibTorch's headers before.
#ifndef GAVEL_OPTIMIZER_KIND_H_
#define GAVEL_OPTIMIZER_KIND_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::optim {
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace gavel {

// Called with the name ([A-Za-z0-9_.]{1,64}, each once) and a reference of each
// member, and saves or replaces it: always all of them, in any order. Tensors
// are dense or undefined; restored and after a move they are on the device of
// their parameter.
class OptimizerFields {
 public:
  virtual void operator()(const std::string& name, at::Tensor& value) = 0;
  virtual void operator()(const std::string& name,
                          std::vector<at::Tensor>& value) = 0;
  virtual void operator()(const std::string& name, int64_t& value) = 0;
  virtual void operator()(const std::string& name, double& value) = 0;
  virtual void operator()(const std::string& name, bool& value) = 0;
  virtual void operator()(const std::string& name, std::string& value) = 0;

  // int, float, ...
  template <class Number,
            std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  void operator()(const std::string& name, Number& value) {
    using Wide =
        std::conditional_t<std::is_integral_v<Number>, int64_t, double>;
    As<Wide>(name, value);
  }
  void operator()(const std::string& name, std::deque<at::Tensor>& value) {
    std::vector<at::Tensor> list(value.begin(), value.end());
    (*this)(name, list);
    value.clear();
    for (at::Tensor& tensor : list) value.push_back(std::move(tensor));
  }
  template <class Value>
  void operator()(const std::string& name, std::optional<Value>& value) {
    bool given = value.has_value();
    Value held = given ? *std::move(value) : Value();
    (*this)(name + ".given", given);
    (*this)(name, held);
    value = given ? std::optional<Value>(std::move(held)) : std::nullopt;
  }

 protected:
  ~OptimizerFields() = default;

 private:
  template <class Wide, class Number>
  void As(const std::string& name, Number& value) {
    Wide wide = static_cast<Wide>(value);
    (*this)(name, wide);
    value = static_cast<Number>(wide);
  }
};

// Made by DescribeOptimizer. A value.
struct OptimizerKind {
  // Written to the checkpoint: the name of another class is refused there.
  std::string name;
  // False: of another class.
  std::function<bool(torch::optim::OptimizerOptions&, OptimizerFields&)>
      visit_options;
  std::function<bool(torch::optim::OptimizerParamState&, OptimizerFields&)>
      visit_state;
  std::function<std::unique_ptr<torch::optim::OptimizerParamState>()>
      make_state;
  // Tensors of the state have the shape of their parameter: another one in a
  // checkpoint is refused.
  bool state_has_parameter_shape = false;
};

// `Options` belongs to a parameter group and `State` to a parameter; `State`
// has a constructor without arguments. Neither function may throw, or keep its
// arguments.
template <class Options, class State>
OptimizerKind DescribeOptimizer(
    std::string name, std::function<void(Options&, OptimizerFields&)> options,
    std::function<void(State&, OptimizerFields&)> state) {
  OptimizerKind kind;
  kind.name = std::move(name);
  kind.visit_options = [options = std::move(options)](
                           torch::optim::OptimizerOptions& of,
                           OptimizerFields& fields) {
    auto* const own = dynamic_cast<Options*>(&of);
    if (own != nullptr) options(*own, fields);
    return own != nullptr;
  };
  kind.visit_state = [state = std::move(state)](
                         torch::optim::OptimizerParamState& of,
                         OptimizerFields& fields) {
    auto* const own = dynamic_cast<State*>(&of);
    if (own != nullptr) state(*own, fields);
    return own != nullptr;
  };
  kind.make_state = [] { return std::make_unique<State>(); };
  return kind;
}

}  // namespace gavel

#endif  // GAVEL_OPTIMIZER_KIND_H_
