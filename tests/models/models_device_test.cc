// The workloads' models train on the simulated accelerator as on the CPU.
#include <c10/core/Device.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "bench/workload_steps.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {
namespace {

// The losses of three steps, then all parameters and buffers.
std::vector<at::Tensor> TrainOn(const std::string& workload,
                                const std::string& device) {
  torch::manual_seed(3);
  const auto steps = bench::MakeWorkloadSteps(workload, c10::Device(device));
  std::vector<at::Tensor> trained;
  for (int i = 0; i < 3; ++i) {
    trained.push_back(steps->step(steps->batch).detach().cpu());
  }
  for (const auto& parameter : steps->model->parameters()) {
    trained.push_back(parameter.detach().cpu());
  }
  for (const auto& buffer : steps->model->buffers()) {
    trained.push_back(buffer.cpu());
  }
  return trained;
}

class ModelsOnDevice : public TestWithParam<std::string> {};

// LibTorch has kernels of the CPU that other devices are never given: for a
// whole LSTM, and for sums over some strides.
bool RoundsOtherwise(const std::string& workload) {
  return workload == "lstm" || workload == "a3c";
}

TEST_P(ModelsOnDevice, TrainToTheBitsOfTheCpu) {
  if (!OnAccelerator()) GTEST_SKIP() << "of the simulated accelerator";
  const auto here = TrainOn(GetParam(), "cpu");
  const auto there = TrainOn(GetParam(), TestDevice());
  ASSERT_EQ(here.size(), there.size());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(RoundsOtherwise(GetParam())
                    ? at::allclose(here[i], there[i], 1e-4, 1e-5)
                    : at::equal(here[i], there[i]))
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, ModelsOnDevice,
                         ValuesIn(bench::WorkloadNames()));

}  // namespace
}  // namespace gavel::testing
