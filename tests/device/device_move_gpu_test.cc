#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>

#ifdef GAVEL_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#endif

#include "runtime/device/device_move.h"
#include "runtime/device/optimizer_tensors.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
const c10::Device kCpu(c10::kCPU);
const c10::Device kGpu(c10::kCUDA, 0);

class OnGpu : public Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no usable GPU here";
  }
};

// The module and its optimizer go there and back and go on training.
TEST_F(OnGpu, TrainingGoesOnAfterMovingThereAndBack) {
  nn::Linear model(64, 64);
  torch::optim::Adam adam(model->parameters());
  auto train = [&](c10::Device device) {
    adam.zero_grad();
    at::Tensor loss = model->forward(at::ones({8, 64}, device)).pow(2).sum();
    loss.backward();
    adam.step();
    return loss.item<double>();
  };
  double first = train(kCpu);
  at::Tensor before = model->weight.detach().clone();
  ASSERT_OK(MoveModule(*model, kGpu));
  EXPECT_TRUE(model->weight.cpu().equal(before));
  EXPECT_EQ(model->weight.grad().device(), kGpu);
  ASSERT_OK_AND_ASSIGN(std::vector<at::Tensor> state, OptimizerTensors(adam));
  ASSERT_OK(MoveTensors(state, kGpu));
  for (const at::Tensor& tensor : state) EXPECT_EQ(tensor.device(), kGpu);
  EXPECT_LT(train(kGpu), first);
  at::Tensor on_gpu = model->weight.detach().cpu();
  ASSERT_OK(MoveModule(*model, kCpu));
  ASSERT_OK(MoveTensors(state, kCpu));
  EXPECT_TRUE(model->weight.equal(on_gpu));
  EXPECT_LT(train(kCpu), first);
}

TEST_F(OnGpu, MovesToAnotherGpuAndBack) {
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "only one GPU here";
  const c10::Device other(c10::kCUDA, 1);
  nn::Linear model(64, 64);
  const at::Tensor expected = model->weight.detach().clone();
  ASSERT_OK(MoveModule(*model, kGpu));
  ASSERT_OK(MoveModule(*model, other));
  EXPECT_EQ(model->weight.device(), other);
  EXPECT_TRUE(model->weight.cpu().equal(expected));
  ASSERT_OK(MoveModule(*model, kGpu));
  EXPECT_TRUE(model->weight.cpu().equal(expected));
}

TEST_F(OnGpu, AMoveWaitsForWorkOfAnotherStream) {
  at::Tensor tensor = at::zeros({1 << 24}, kGpu);
  const c10::impl::VirtualGuardImpl gpu(c10::kCUDA);
  gpu.synchronizeDevice(0);
  {
    const c10::StreamGuard guard(gpu.getNewStream(kGpu));
    for (int i = 0; i < 200; ++i) tensor.add_(1);
  }
  // As the iterator does before each move.
  ASSERT_OK(Synchronize(kGpu));
  ASSERT_OK(MoveTensors({tensor}, kCpu));
  EXPECT_TRUE(tensor.eq(200).all().item<bool>());
}

TEST_F(OnGpu, LstmIsFlattenedForCudnn) {
  nn::LSTM lstm(nn::LSTMOptions(16, 32).num_layers(2));
  at::Tensor input = at::randn({5, 3, 16});
  at::Tensor expected = std::get<0>(lstm->forward(input));
  ASSERT_OK(MoveModule(*lstm, kGpu));
  at::Tensor output = std::get<0>(lstm->forward(input.to(kGpu)));
  EXPECT_TRUE(output.cpu().allclose(expected, 1e-3, 1e-4));
  ASSERT_OK(MoveModule(*lstm, kCpu));
  EXPECT_TRUE(std::get<0>(lstm->forward(input)).equal(expected));
}

#ifdef GAVEL_HAS_CUDA
size_t FreeBytes() {
  size_t free = 0, total = 0;
  EXPECT_EQ(::cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

TEST_F(OnGpu, MemoryIsGivenBack) {
  constexpr size_t kBytes = size_t{256} << 20;
  at::Tensor tensor = at::ones({static_cast<int64_t>(kBytes / 4)});
  ASSERT_OK(MoveTensors({tensor}, kGpu));
  ASSERT_OK(Synchronize(kGpu));
  size_t free_during = FreeBytes();
  ASSERT_OK(MoveTensors({tensor}, kCpu));
  ASSERT_OK(Synchronize(kGpu));
  ASSERT_OK(ReleaseMemory(kGpu));
  EXPECT_GE(FreeBytes(), free_during + kBytes);
}
#endif

TEST_F(OnGpu, TooMuchForTheDeviceIsResourceExhausted) {
  // 64 TiB: shared memory of one element, so that the host need not hold it.
  at::Tensor huge = at::ones({1}).expand({int64_t{1} << 44});
  EXPECT_THAT(MoveTensors({huge}, kGpu), StatusIs(kResourceExhausted, "cuda"));
  EXPECT_EQ(huge.device(), kCpu);
}

}  // namespace
}  // namespace gavel::testing
