// Moves that any machine can make: from the CPU to new memory of the CPU. Moves
// to a GPU are in device_move_accelerator_test.cc.
#include "runtime/device/device_move.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "runtime/device/device_backend.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
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

TEST(WhyNoGpu, NamesWhatIsMissingAndTheRemedy) {
  EXPECT_THAT(WhyNoGpu(0, 13000), HasSubstr("no NVIDIA driver; install one"));
  EXPECT_THAT(
      WhyNoGpu(12040, 13000),
      HasSubstr("the driver is for CUDA 12.4, this LibTorch needs 13.0; "
                "update the driver"));
  EXPECT_THAT(WhyNoGpu(13010, 13000), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

// The model has gradients.
nn::Sequential TrainedModel() {
  nn::Sequential model(nn::Linear(4, 3), nn::BatchNorm1d(3));
  model->forward(at::randn({5, 4})).pow(2).sum().backward();
  return model;
}

// A tensor handle, the memory that it refers to, and a copy of its values.
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

TEST(MoveModule, StayingOnTheDeviceKeepsMemoryAndValues) {
  nn::Sequential model = TrainedModel();
  at::Tensor weight = model->parameters()[0];
  const void* memory = weight.const_data_ptr();
  ASSERT_OK(MoveModule(*model, kCpu));
  EXPECT_EQ(weight.const_data_ptr(), memory);
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
  // The first tensor could be copied, but a "meta" tensor has no data.
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
