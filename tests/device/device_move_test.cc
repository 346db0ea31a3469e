// On any machine: from the CPU to new memory of the CPU. Moves to a GPU are in
// device_move_gpu_test.cc.
#include "runtime/device/device_move.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include "runtime/device/optimizer_tensors.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
const c10::Device kCpu(c10::kCPU);
const c10::Device kMeta(c10::kMeta);

TEST(ParseDevice, KnowsCpuAndKindsOfAccelerators) {
  EXPECT_EQ(*ParseDevice("cpu"), kCpu);
  EXPECT_THAT(ParseDevice("cuda:100"),
              StatusIs(kFailedPrecondition, "use cpu"));
  for (const char* bad : {"", "CPU", "cuda", "cuda:", "cuda:-1", "cuda:01",
                          "cuda:x", "cuda: 1", "cuda:1 ", "cpu:0", "gpu:0"}) {
    EXPECT_THAT(ParseDevice(bad), IsInvalid("KIND:N")) << bad;
  }
}

// With gradients.
nn::Sequential TrainedModel() {
  nn::Sequential model(nn::Linear(4, 3), nn::BatchNorm1d(3));
  model->forward(at::randn({5, 4})).pow(2).sum().backward();
  return model;
}

// What a handle sees: its memory, and a copy of its values.
struct Seen {
  at::Tensor handle;
  const void* memory;
  at::Tensor values;
};

std::vector<Seen> Look(const std::vector<at::Tensor>& tensors) {
  std::vector<Seen> seen;
  for (const at::Tensor& tensor : tensors) {
    seen.push_back({tensor, tensor.const_data_ptr(), tensor.detach().clone()});
  }
  return seen;
}

void ExpectMoved(const std::vector<Seen>& seen) {
  for (const Seen& before : seen) {
    EXPECT_NE(before.handle.const_data_ptr(), before.memory);
    EXPECT_TRUE(before.handle.equal(before.values));
  }
}

TEST(MoveTensors, HandlesOfParametersBuffersAndGradientsFollow) {
  nn::Sequential model = TrainedModel();
  std::vector<at::Tensor> handles = ModuleTensors(*model);
  for (const at::Tensor& parameter : model->parameters()) {
    handles.push_back(parameter.grad());
  }
  EXPECT_EQ(handles.size(), 11u);
  std::vector<Seen> seen = Look(handles);
  ASSERT_OK(MoveTensors(ModuleTensors(*model), kCpu, MoveCopy::kAlways));
  ExpectMoved(seen);
  EXPECT_TRUE(model->parameters()[0].requires_grad());
  EXPECT_TRUE(model->parameters()[0].is_leaf());
}

TEST(MoveTensors, TrainingGoesOnBitIdentically) {
  auto weights_after = [](bool move) {
    torch::manual_seed(1);
    nn::Linear model(4, 3);
    optim::Adam adam(model->parameters());
    for (int step = 0; step < 10; ++step) {
      adam.zero_grad();
      model->forward(at::ones({2, 4}) * step).pow(2).sum().backward();
      adam.step();
      if (!move) continue;
      EXPECT_OK(MoveTensors(ModuleTensors(*model), kCpu, MoveCopy::kAlways));
      EXPECT_OK(MoveTensors(*OptimizerTensors(adam), kCpu, MoveCopy::kAlways));
    }
    return model->weight.detach();
  };
  EXPECT_TRUE(weights_after(true).equal(weights_after(false)));
}

TEST(MoveModule, StayingOnTheDeviceKeepsMemoryAndValues) {
  nn::Sequential model = TrainedModel();
  at::Tensor weight = model->parameters()[0];
  const void* memory = weight.const_data_ptr();
  ASSERT_OK(MoveModule(*model, kCpu));
  EXPECT_EQ(weight.const_data_ptr(), memory);
}

TEST(MoveTensors, OptimizerStateOfEveryKnownKindFollows) {
  nn::Sequential model = TrainedModel();
  std::vector<at::Tensor> parameters = model->parameters();
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  optimizers.push_back(std::make_unique<optim::SGD>(
      parameters, optim::SGDOptions(0.1).momentum(0.9)));
  optimizers.push_back(std::make_unique<optim::Adam>(
      parameters, optim::AdamOptions().amsgrad(true)));
  optimizers.push_back(std::make_unique<optim::AdamW>(parameters));
  optimizers.push_back(std::make_unique<optim::RMSprop>(
      parameters, optim::RMSpropOptions().momentum(0.5).centered(true)));
  optimizers.push_back(std::make_unique<optim::Adagrad>(parameters));
  size_t tensors_per_parameter[] = {1, 3, 2, 3, 1};
  for (size_t i = 0; i < optimizers.size(); ++i) {
    SCOPED_TRACE(i);
    optimizers[i]->step();
    ASSERT_OK_AND_ASSIGN(std::vector<at::Tensor> state,
                         OptimizerTensors(*optimizers[i]));
    EXPECT_EQ(state.size(), 4 * tensors_per_parameter[i]);
    std::vector<Seen> seen = Look(state);
    ASSERT_OK(MoveTensors(state, kCpu, MoveCopy::kAlways));
    ExpectMoved(seen);
    optimizers[i]->step();
  }
}

TEST(OptimizerTensors, UnknownStateIsRefused) {
  nn::Sequential model = TrainedModel();
  optim::LBFGS lbfgs(model->parameters(), optim::LBFGSOptions(0.1).max_iter(2));
  lbfgs.step([&] {
    lbfgs.zero_grad();
    at::Tensor loss = model->forward(at::ones({5, 4})).sum();
    loss.backward();
    return loss;
  });
  EXPECT_THAT(OptimizerTensors(lbfgs), StatusIs(kUnimplemented, "Adagrad"));
}

TEST(MoveTensors, SharedMemoryStaysShared) {
  at::Tensor whole = at::zeros({6});
  at::Tensor part = whole.slice(0, 2, 5).view({3});
  at::Tensor alone = at::zeros({2});
  std::vector<Seen> seen = Look({whole, part, alone});
  ASSERT_OK(MoveTensors({whole, part, alone, whole, at::Tensor()}, kCpu,
                        MoveCopy::kAlways));
  ExpectMoved(seen);
  part.fill_(7);
  EXPECT_EQ(whole[2].item<int>(), 7);
  EXPECT_EQ(whole[5].item<int>(), 0);
}

TEST(MoveTensors, AllOrNothingWhenOneFails) {
  at::Tensor first = at::zeros({2});
  at::Tensor second = at::zeros({2}, at::device(kMeta));
  const void* memory = first.const_data_ptr();
  // A "meta" tensor has no data to copy; the first could be copied.
  EXPECT_FALSE(MoveTensors({first, second}, kCpu, MoveCopy::kAlways).ok());
  EXPECT_EQ(first.const_data_ptr(), memory);
  EXPECT_FALSE(MoveTensors({first}, c10::Device(c10::kCUDA, 100)).ok());
  EXPECT_EQ(first.device(), kCpu);
}

TEST(DeviceOnCpu, NothingToSynchronizeOrRelease) {
  EXPECT_OK(Synchronize(kCpu));
  EXPECT_OK(ReleaseMemory(kCpu));
  EXPECT_FALSE(Synchronize(c10::Device(c10::kCUDA, 100)).ok());
}

}  // namespace
}  // namespace gavel::testing
