// Moves tracked tensors: every handle elsewhere in the program sees the tensor
// at its new place, and tensors that shared memory still share it.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "iterator/tracked_state.h"
#include "runtime/device/device_backend.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::internal {
namespace {

// A model and its aliases in all the kinds that hold tensors.
struct Model {
  torch::nn::Linear linear{3, 2};
  torch::jit::Module script{"script"};
  std::vector<at::Tensor> list;
  at::Tensor coo = torch::eye(3);
  at::Tensor csr = torch::eye(3);
  at::Tensor undefined;
  TrackedState state;

  explicit Model(bool has_sparse) {
    if (has_sparse) {
      coo = coo.to_sparse();
      csr = csr.to_sparse_csr();
    }
    script.register_parameter("weight", linear->weight, /*is_buffer=*/false);
    script.register_attribute("table", c10::TensorType::get(),
                              torch::arange(4));
    list = {linear->weight.detach()[1], torch::ones({2}), at::Tensor()};
    Track(TrackModule("module", linear.ptr()));
    Track(TrackScriptModule("script", script));
    Track(TrackTensors("list", list));
    Track(TrackTensor("coo", coo));
    Track(TrackTensor("csr", csr));
    Track(TrackTensor("undefined", undefined));
  }
  void Track(std::unique_ptr<TrackedItem> item) {
    EXPECT_OK(state.Add(std::move(item), /*restored=*/nullptr));
  }
};

at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.is_sparse() || tensor.is_sparse_csr() ? tensor.cpu().to_dense()
                                                      : tensor.cpu();
}

void ExpectMoved(at::Device device, MoveCopy copy) {
  // LibTorch's HPU kind, which the simulated accelerator has, knows no sparse
  // tensors.
  Model model(/*has_sparse=*/!device.is_hpu());
  const at::Tensor weight = model.linear->weight;
  const at::Tensor values = weight.detach().cpu().clone();
  const void* memory = weight.const_data_ptr();
  const at::Tensor table = model.script.attr("table").toTensor();
  const at::Tensor coo = model.coo;
  ASSERT_OK(model.state.MoveTo(device, copy));

  for (const at::Tensor& tensor :
       {weight, table, coo, model.csr, model.list[0], model.list[1]}) {
    EXPECT_EQ(tensor.device().type(), device.type());
  }
  EXPECT_NE(weight.const_data_ptr(), memory);
  EXPECT_TRUE(torch::equal(weight.cpu(), values));
  EXPECT_TRUE(torch::equal(table.cpu(), torch::arange(4)));
  EXPECT_TRUE(torch::equal(Dense(coo), torch::eye(3)));
  EXPECT_TRUE(torch::equal(Dense(model.csr), torch::eye(3)));
  EXPECT_FALSE(model.list[2].defined());
  {
    const torch::NoGradGuard no_grad;
    weight.detach().fill_(7);
  }
  EXPECT_EQ(model.script.attr("weight").toTensor().sum().item<float>(), 42);
  EXPECT_EQ(model.list[0].sum().item<float>(), 21);  // a row of it
}

TEST(TrackedMove, AliasesOfAllKindsSurviveOnTheCpu) {
  ExpectMoved(at::Device(at::kCPU), MoveCopy::kAlways);
}

// Every machine has the meta device, which holds no values.
TEST(TrackedMove, ASingleTensorOfCsrFollowsToAnotherDevice) {
  at::Tensor csr = torch::eye(3).to_sparse_csr();
  ASSERT_OK(TrackTensor("csr", csr)->Moved(at::Device(at::kMeta)));
  EXPECT_EQ(csr.device().type(), at::kMeta);
}

TEST(TrackedMove, AliasesOfAllKindsSurviveOnAnAccelerator) {
  const at::Device device(gavel::testing::TestDevice());
  if (device.is_cpu() || CountDevices(device.type()) == 0) {
    GTEST_SKIP() << "needs an accelerator";
  }
  ExpectMoved(device, MoveCopy::kIfNeeded);
}

}  // namespace
}  // namespace gavel::internal
