// A perceptron whose layers are divided among the workers of a gang (tensor
// parallelism). No worker has the whole model or the whole state of its
// optimizer, so the job can train a model that is too large for one
// accelerator. In each step all workers use the same batch.
//
//   ./train_tensor_parallel                                          alone
//   torchrun --nproc-per-node 2 --no-python ./train_tensor_parallel  divided
//
// The method is that of Shoeybi et al., "Megatron-LM" (2019), section 3: the
// first layer of a block is cut by its outputs and the second by its inputs, so
// a block sums over the workers once in forward() and once in backward().
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gavel/iterator.h"
#include "gavel/session.h"

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kInputs = 64;
constexpr int64_t kBatch = 32;
constexpr int64_t kSteps = 40;
constexpr int kBlocks = 2;

int64_t Number(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Ignores the error of a lost worker: the step is void then, and the next
// boundary detects the loss.
Tensor SumOverWorkers(gavel::Session& session, const Tensor& tensor) {
  Tensor sum = tensor.detach().clone();
  static_cast<void>(session.AllReduce(sum));
  return sum;
}

// Passes a tensor that all workers have to each worker's part of a layer. The
// gradients of the parts add up in backward().
struct ToParts : torch::autograd::Function<ToParts> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        int64_t session) {
    context->saved_data["session"] = session;
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    auto* const session = reinterpret_cast<gavel::Session*>(
        context->saved_data["session"].toInt());
    return {SumOverWorkers(*session, gradients[0]), Tensor()};
  }
};

// Adds the outputs of the parts up to a tensor that all workers have.
struct FromParts : torch::autograd::Function<FromParts> {
  static Tensor forward(AutogradContext*, const Tensor& output,
                        int64_t session) {
    return SumOverWorkers(*reinterpret_cast<gavel::Session*>(session), output);
  }
  static variable_list backward(AutogradContext*,
                                const variable_list& gradients) {
    return {gradients[0], Tensor()};
  }
};

// Returns this worker's part of a weight. The whole weight does not depend on
// the number of workers.
Tensor PartOfWeight(const gavel::Session& session, at::IntArrayRef sizes,
                    int64_t dim) {
  const Tensor whole =
      torch::randn(sizes) / std::sqrt(static_cast<double>(sizes[1]));
  const int64_t part = sizes[static_cast<size_t>(dim)] / session.world_size();
  return whole.narrow(dim, part * session.rank(), part).clone();
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(gavel::Session& session, int64_t hidden)
      : session_(reinterpret_cast<int64_t>(&session)),
        by_outputs(register_parameter(
            "by_outputs", PartOfWeight(session, {hidden, kInputs}, 0))),
        by_inputs(register_parameter(
            "by_inputs", PartOfWeight(session, {kInputs, hidden}, 1))),
        bias(register_parameter("bias", torch::zeros({kInputs}))) {}
  Tensor forward(const Tensor& input) {
    const Tensor inside =
        torch::tanh(torch::linear(ToParts::apply(input, session_), by_outputs));
    return input + bias +
           FromParts::apply(torch::linear(inside, by_inputs), session_);
  }

  int64_t session_;
  Tensor by_outputs, by_inputs, bias;
};
TORCH_MODULE(Block);

}  // namespace

int main() {
  auto session = gavel::Session::FromEnvironment();
  const int64_t hidden = Number("HIDDEN", 256);
  if (hidden % session->world_size() != 0) return 2;

  torch::manual_seed(1);  // the same weights and batches on all workers
  std::vector<Block> blocks;
  std::vector<Tensor> parameters;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.emplace_back(*session, hidden);
    for (const Tensor& parameter : blocks.back()->parameters()) {
      parameters.push_back(parameter);
    }
  }
  torch::optim::Adam optimizer(parameters, 0.001);
  int64_t next = 0;

  // Parameters are tracked before the optimizer, whose state is sharded in the
  // same way as its parameters.
  for (int i = 0; i < kBlocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    Block& block = blocks[static_cast<size_t>(i)];
    session->Track(name + ".by_outputs", block->by_outputs, gavel::Sharded{0});
    session->Track(name + ".by_inputs", block->by_inputs, gavel::Sharded{1});
    session->Track(name + ".bias", block->bias);
  }
  session->Track("optimizer", optimizer);
  session->Track("next", next);

  const std::chrono::milliseconds pause(Number("STEP_MS", 0));
  double loss = 0;
  const int64_t steps = Number("STEPS", kSteps);
  while (next < steps && session->Boundary()) {
    torch::manual_seed(static_cast<uint64_t>(1000 + next));
    Tensor values = torch::randn({kBatch, kInputs}).to(session->device());
    const Tensor target = torch::sin(values.cumsum(1));
    for (Block& block : blocks) values = block->forward(values);
    const Tensor error = (values - target).square().mean();
    optimizer.zero_grad();
    error.backward();
    optimizer.step();
    loss = error.item<double>();
    session->Report("loss", loss);
    std::this_thread::sleep_for(pause);
    ++next;
    session->StepDone();
  }
  std::printf("{\"loss\": %.6f, \"hexadecimal\": \"%a\", \"workers\": %d}\n",
              loss, loss, session->world_size());
  return session->Finish();
}
