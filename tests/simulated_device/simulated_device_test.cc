// The simulated accelerator punishes mistakes in its use, and trains as a CPU
// does.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>
#include <unistd.h>

#include <future>
#include <string>

#include "tests/support/simulated_device/allocator.h"
#include "tests/support/simulated_device/settings.h"
#include "tests/support/simulated_device/shared_memory.h"
#include "tests/support/simulated_device/streams.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
using simulated::Fault;
using simulated::TheSharedMemory;

constexpr uint64_t kMib = uint64_t{1} << 20;
const c10::Device kCpu(c10::kCPU);
const c10::Device kFirst(c10::kHPU, 0);
const c10::Device kSecond(c10::kHPU, 1);

// Keeps the current stream of a device waiting until Open().
class Gate {
 public:
  explicit Gate(c10::Device device)
      : stream_(simulated::CurrentStream(device.index())) {
    simulated::Enqueue(
        stream_, [opened = opened_.get_future().share()] { opened.wait(); });
  }
  ~Gate() {
    if (!is_open_) Open();
  }
  void Open() {
    is_open_ = true;
    opened_.set_value();
    simulated::Synchronize(stream_);
  }

 private:
  c10::Stream stream_;
  std::promise<void> opened_;
  bool is_open_ = false;
};

at::Tensor Pinned(int64_t count) {
  return at::empty({count},
                   at::device(kCpu).dtype(at::kFloat).pinned_memory(true));
}

uint64_t Reserved(c10::Device device) {
  return static_cast<uint64_t>(simulated::TheAllocator()
                                   .getDeviceStats(device.index())
                                   .reserved_bytes[0]
                                   .current);
}

class SimulatedDevice : public Test {
 protected:
  void TearDown() override {
    for (const c10::Device device : {kFirst, kSecond}) {
      TheSharedMemory().SetFault(device.index(), Fault::kNone);
      simulated::SynchronizeDevice(device.index());
    }
    simulated::TheAllocator().emptyCache();
  }
};

// The sum of all parameters after some steps, and the last loss.
std::pair<double, double> Train(c10::Device device) {
  torch::manual_seed(1);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 8, 3)), nn::BatchNorm2d(8),
                     nn::ReLU(), nn::Flatten(), nn::Linear(8 * 6 * 6, 10));
  net->to(device);
  torch::optim::Adam adam(net->parameters(), 1e-3);
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor images = at::randn({16, 1, 8, 8}).to(device);
    const at::Tensor labels = at::randint(10, {16}, at::kLong).to(device);
    adam.zero_grad();
    const at::Tensor loss =
        nn::functional::cross_entropy(net->forward(images), labels);
    loss.backward();
    adam.step();
    last = loss.item<double>();
  }
  double sum = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    sum += parameter.detach().cpu().sum().item<double>();
  }
  return {sum, last};
}

TEST_F(SimulatedDevice, TrainsToTheBitsOfTheCpu) {
  EXPECT_EQ(Train(kFirst), Train(kCpu));
  EXPECT_EQ(Train(kSecond), Train(kCpu));
}

TEST_F(SimulatedDevice, IsTheAcceleratorOfLibTorch) {
  EXPECT_EQ(at::accelerator::getAccelerator(), c10::kHPU);
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
}

TEST_F(SimulatedDevice, ItsMemoryIsNotTheHostsToTouch) {
  const at::Tensor tensor = at::zeros({4}, kFirst);
  const auto* const data = static_cast<volatile float*>(tensor.data_ptr());
  EXPECT_EXIT(std::exit(static_cast<int>(data[0])), KilledBySignal(SIGSEGV),
              "");
}

TEST_F(SimulatedDevice, NewMemoryIsNoNumber) {
  EXPECT_TRUE(at::empty({1000}, kFirst).isnan().all().item<bool>());
}

TEST_F(SimulatedDevice, ACopyBesideTheHostIsThereOnlyAfterAWait) {
  const at::Tensor host = Pinned(1000).fill_(1);
  const at::Tensor back = Pinned(1000).zero_();
  at::Tensor tensor = at::zeros({1000}, kFirst);
  simulated::SynchronizeDevice(0);
  Gate gate(kFirst);
  tensor.copy_(host, /*non_blocking=*/true);
  back.copy_(tensor, /*non_blocking=*/true);
  EXPECT_EQ(back.sum().item<double>(), 0);
  host.fill_(2);  // was not read yet
  gate.Open();
  EXPECT_EQ(back.sum().item<double>(), 2000);
}

TEST_F(SimulatedDevice, AnUpdateInPlaceRunsLater) {
  at::Tensor tensor = at::zeros({1000}, kFirst);
  simulated::SynchronizeDevice(0);
  Gate gate(kFirst);
  tensor.add_(1);
  {
    const c10::StreamGuard guard(simulated::NewStream(0));
    EXPECT_EQ(tensor.sum().item<double>(), 0) << "another stream did not wait";
  }
  gate.Open();
  EXPECT_EQ(tensor.sum().item<double>(), 1000);
}

TEST_F(SimulatedDevice, AnEventMakesAStreamWait) {
  at::Tensor tensor = at::zeros({1000}, kFirst);
  for (int i = 0; i < 100; ++i) tensor.add_(1);
  c10::Event event(c10::kHPU);
  event.record(simulated::CurrentStream(0));
  const c10::StreamGuard guard(simulated::NewStream(0));
  event.block(simulated::CurrentStream(0));
  EXPECT_EQ(tensor.sum().item<double>(), 100'000);
}

TEST_F(SimulatedDevice, MemoryGivenBackWithoutAWaitLosesItsBytes) {
  const at::Tensor back = Pinned(1 << 20).zero_();
  at::Tensor tensor =
      at::full({1 << 20}, 1, at::device(kFirst).dtype(at::kFloat));
  simulated::SynchronizeDevice(0);
  Gate gate(kFirst);
  back.copy_(tensor, /*non_blocking=*/true);
  tensor.reset();
  simulated::TheAllocator().emptyCache();
  gate.Open();
  EXPECT_NE(back.sum().item<double>(), 1 << 20);
}

TEST_F(SimulatedDevice, ABlockIsGivenAgainOnItsStreamUnlessAnotherWasRecorded) {
  at::Tensor tensor = at::zeros({1 << 20}, kFirst);
  const void* const data = tensor.data_ptr();
  tensor.reset();
  tensor = at::zeros({1 << 20}, kFirst);
  EXPECT_EQ(tensor.data_ptr(), data);
  const c10::Stream other = simulated::NewStream(0);
  std::promise<void> end;
  simulated::Enqueue(other,
                     [ended = end.get_future().share()] { ended.wait(); });
  tensor.record_stream(other);
  tensor.reset();
  EXPECT_NE(at::zeros({1 << 20}, kFirst).data_ptr(), data);
  end.set_value();
  simulated::Synchronize(other);
}

TEST_F(SimulatedDevice, CountsWhatIsAllocatedAndWhatIsReserved) {
  simulated::NeedContext(0);
  const uint64_t before = Reserved(kFirst);
  at::Tensor tensor = at::empty({static_cast<int64_t>(3 * kMib)},
                                at::device(kFirst).dtype(at::kByte));
  EXPECT_EQ(Reserved(kFirst) - before, 4 * kMib);
  tensor.reset();
  EXPECT_EQ(Reserved(kFirst) - before, 4 * kMib);
  simulated::TheAllocator().emptyCache();
  EXPECT_EQ(Reserved(kFirst), before);
}

TEST_F(SimulatedDevice, IsOutOfMemoryWhereItIs) {
  const auto size = static_cast<int64_t>(TheSharedMemory().memory_bytes());
  const auto bytes = at::device(kFirst).dtype(at::kByte);
  EXPECT_THROW(at::empty({size}, bytes), c10::OutOfMemoryError);
  at::Tensor half = at::empty({size / 2}, bytes);
  half.reset();  // still reserved; given back when memory is short
  EXPECT_NO_THROW(at::empty({size / 4 * 3}, bytes));
  simulated::TheAllocator().emptyCache();
  simulated::LimitMemory(0, 8 * kMib);
  EXPECT_THROW(at::empty({static_cast<int64_t>(16 * kMib)}, bytes),
               c10::OutOfMemoryError);
  simulated::LimitMemory(0, 0);
}

TEST_F(SimulatedDevice, OperatorsTakeTensorsOfOneDevice) {
  const at::Tensor first = at::zeros({4}, kFirst);
  EXPECT_ANY_THROW(first + at::zeros({4}, kSecond));
  EXPECT_ANY_THROW(first + at::zeros({4}));
  EXPECT_NO_THROW(first + at::zeros({}));
}

TEST_F(SimulatedDevice, TensorsMoveBetweenDevices) {
  const at::Tensor first =
      at::arange(1000, at::device(kFirst).dtype(at::kFloat));
  const at::Tensor second = first.to(kSecond);
  EXPECT_EQ(second.device(), kSecond);
  EXPECT_TRUE(second.cpu().equal(at::arange(1000, at::kFloat)));
}

TEST_F(SimulatedDevice, AFaultShowsAtTheNextCallThatWaits) {
  at::Tensor tensor = at::zeros({4}, kFirst);
  TheSharedMemory().SetFault(0, Fault::kSticky);
  EXPECT_ANY_THROW(tensor.sum().item<double>());
  TheSharedMemory().SetFault(0, Fault::kAtSet);
  EXPECT_ANY_THROW(simulated::SetCurrentDevice(0));
  EXPECT_NO_THROW(simulated::SetCurrentDevice(1));
  simulated::ExchangeCurrentDeviceUnchecked(0);
}

// ---- several processes

// Calls `body` in a process of its own, which has used no LibTorch.
template <class Body>
pid_t InChild(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::pause();
    ::_exit(0);
  }
  return pid;
}

TEST(SharedMemoryTest, ProcessesFillADeviceTogetherUntilTheyAreGone) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/devices";
  simulated::SharedMemory memory(path, 100);
  const pid_t child = InChild([&] {
    simulated::SharedMemory mine(path, 100);
    mine.Take(0, 60);
  });
  while (memory.Used(0) != 60) ::usleep(1000);
  EXPECT_TRUE(memory.IsUsedByAnother(0));
  EXPECT_FALSE(memory.Take(0, 50));
  EXPECT_TRUE(memory.Take(0, 40));
  EXPECT_TRUE(memory.Take(1, 100));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(memory.Used(0), 40);
  EXPECT_TRUE(memory.Take(0, 60));
  EXPECT_THAT(memory.Holders(0), SizeIs(1));
}

TEST(SettingsTest, OneOfTheDevicesOrPartitionsMayBeAllThatIsVisible) {
  const simulated::Settings second =
      simulated::ParseSettings("devices=4,memory_mib=8", "2");
  EXPECT_EQ(second.devices, 1);
  EXPECT_EQ(second.first, 2);
  EXPECT_EQ(simulated::ParseSettings("devices=4", "4").devices, 0);
  const simulated::Settings part = simulated::ParseSettings(
      "devices=2,partitions=4,memory_mib=8", /*visible=*/nullptr);
  EXPECT_EQ(part.devices, 1);
  EXPECT_EQ(part.first, 0);
  EXPECT_EQ(part.memory_bytes, uint64_t{2} << 20);
  EXPECT_EQ(simulated::ParseSettings("devices=2,partitions=4", "7").first, 7);
}

TEST(SettingsTest, NamesWhatIsWrong) {
  EXPECT_EQ(simulated::ParseSettings("devices=3,memory_mib=7").memory_bytes,
            7 * kMib);
  EXPECT_ANY_THROW(simulated::ParseSettings("partitions=0"));
  EXPECT_ANY_THROW(simulated::ParseSettings("devices"));
  EXPECT_ANY_THROW(simulated::ParseSettings("devices=x"));
  EXPECT_ANY_THROW(simulated::ParseSettings("colour=1"));
}

// The variable has to be set before any device is used.
const bool settings_are_set = [] {
  ::setenv(simulated::kVariable, "devices=2,memory_mib=64", 0);
  return true;
}();

}  // namespace
}  // namespace gavel::testing
