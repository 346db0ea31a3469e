#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>

#include "runtime/device/device_move.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
using OnAccelerator = AcceleratorTest;

// The module and its optimizer go there and back and go on training.
TEST_F(OnAccelerator, TrainingGoesOnAfterMovingThereAndBack) {
  nn::Linear model(64, 64);
  torch::optim::Adam adam(model->parameters());
  auto train = [&](c10::Device device) {
    adam.zero_grad();
    at::Tensor loss = model->forward(at::ones({8, 64}, device)).pow(2).sum();
    loss.backward();
    adam.step();
    return loss.item<double>();
  };
  double first = train(cpu_);
  at::Tensor before = model->weight.detach().clone();
  ASSERT_OK(MoveModule(*model, device_));
  EXPECT_TRUE(model->weight.cpu().equal(before));
  EXPECT_EQ(model->weight.grad().device(), device_);
  std::vector<at::Tensor> state;
  for (const auto& [of, kept] : adam.state()) {
    auto& moments = dynamic_cast<torch::optim::AdamParamState&>(*kept);
    state.insert(state.end(), {moments.exp_avg(), moments.exp_avg_sq()});
  }
  ASSERT_OK(MoveTensors(state, device_));
  for (const at::Tensor& tensor : state) EXPECT_EQ(tensor.device(), device_);
  EXPECT_LT(train(device_), first);
  at::Tensor on_gpu = model->weight.detach().cpu();
  ASSERT_OK(MoveModule(*model, cpu_));
  ASSERT_OK(MoveTensors(state, cpu_));
  EXPECT_TRUE(model->weight.equal(on_gpu));
  EXPECT_LT(train(cpu_), first);
}

TEST_F(OnAccelerator, MovesToAnotherAndBack) {
  NeedDevices(2);
  if (IsSkipped()) return;
  nn::Linear model(64, 64);
  const at::Tensor expected = model->weight.detach().clone();
  ASSERT_OK(MoveModule(*model, device_));
  ASSERT_OK(MoveModule(*model, second_));
  EXPECT_EQ(model->weight.device(), second_);
  EXPECT_TRUE(model->weight.cpu().equal(expected));
  ASSERT_OK(MoveModule(*model, device_));
  EXPECT_TRUE(model->weight.cpu().equal(expected));
}

TEST_F(OnAccelerator, AMoveWaitsForWorkOfAnotherStream) {
  at::Tensor tensor = at::zeros({1 << 24}, device_);
  const c10::impl::VirtualGuardImpl guard_impl(device_.type());
  guard_impl.synchronizeDevice(0);
  {
    const c10::StreamGuard guard(guard_impl.getNewStream(device_));
    for (int i = 0; i < 200; ++i) tensor.add_(1);
  }
  // As the iterator does before each move.
  ASSERT_OK(Synchronize(device_));
  ASSERT_OK(MoveTensors({tensor}, cpu_));
  EXPECT_TRUE(tensor.eq(200).all().item<bool>());
}

TEST_F(OnAccelerator, AnLstmGivesTheSameThere) {
  nn::LSTM lstm(nn::LSTMOptions(16, 32).num_layers(2));
  at::Tensor input = at::randn({5, 3, 16});
  at::Tensor expected = std::get<0>(lstm->forward(input));
  ASSERT_OK(MoveModule(*lstm, device_));
  at::Tensor output = std::get<0>(lstm->forward(input.to(device_)));
  EXPECT_TRUE(output.cpu().allclose(expected, 1e-3, 1e-4));
  ASSERT_OK(MoveModule(*lstm, cpu_));
  EXPECT_TRUE(std::get<0>(lstm->forward(input)).equal(expected));
}

TEST_F(OnAccelerator, MemoryIsGivenBack) {
  constexpr int64_t kBytes = 64 << 20;
  at::Tensor tensor = at::ones({kBytes / 4});
  ASSERT_OK(MoveTensors({tensor}, device_));
  ASSERT_OK(Synchronize(device_));
  const int64_t used_during = UsedBytes();
  ASSERT_OK(MoveTensors({tensor}, cpu_));
  ASSERT_OK(Synchronize(device_));
  ASSERT_OK(ReleaseMemory(device_));
  EXPECT_LE(UsedBytes(), used_during - kBytes);
}

TEST_F(OnAccelerator, MemoryIsGivenBackBehindACopyToAnother) {
  NeedDevices(2);
  if (IsSkipped()) return;
  at::Tensor tensor = at::zeros({1 << 22}, device_);
  for (int i = 0; i < 100; ++i) tensor.add_(1);
  ASSERT_OK(MoveTensors({tensor}, second_));
  ASSERT_OK(ReleaseMemory(device_));
  EXPECT_TRUE(tensor.eq(100).all().item<bool>());
}

TEST_F(OnAccelerator, TooMuchForTheDeviceIsResourceExhausted) {
  // 64 TiB: shared memory of one element, so that the host need not hold it.
  at::Tensor huge = at::ones({1}).expand({int64_t{1} << 44});
  EXPECT_THAT(MoveTensors({huge}, device_),
              StatusIs(kResourceExhausted, device_.str()));
  EXPECT_EQ(huge.device(), cpu_);
}

}  // namespace
}  // namespace gavel::testing
