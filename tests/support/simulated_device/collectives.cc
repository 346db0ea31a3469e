#include "tests/support/simulated_device/collectives.h"

#include <ATen/ops/from_blob.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "runtime/device/process_group.h"
#include "runtime/device/tensor_hash.h"
#include "tests/support/simulated_device/allocator.h"
#include "tests/support/simulated_device/streams.h"

namespace gavel::simulated {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr std::chrono::microseconds kPollInterval(200);

class StreamWork final : public c10d::Work {
 public:
  StreamWork(int device, Event end, std::vector<at::Tensor> tensors)
      : device_(device), end_(std::move(end)), tensors_(std::move(tensors)) {}

  bool isCompleted() override { return end_.IsDone(); }
  bool isSuccess() const override { return end_.IsDone(); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  // The current stream waits, not the caller.
  void synchronize() override {
    end_.Block(CurrentStream(device_));
    tensors_.clear();
  }

 private:
  const int device_;
  Event end_;
  std::vector<at::Tensor> tensors_;  // kept until somebody waits
};

class Collectives final : public c10d::Backend {
 public:
  Collectives(c10::intrusive_ptr<c10d::Backend> on_host,
              const ProcessGroupOptions& options)
      : Backend(options.rank, options.world_size),
        device_(options.device.index()),
        stream_(NewStream(device_)),
        on_host_(std::move(on_host)) {}
  ~Collectives() override { *aborted_ = true; }

  const std::string getBackendName() const override { return "simulated"; }

  WorkPointer allreduce(std::vector<at::Tensor>& tensors,
                        const c10d::AllreduceOptions& options) override {
    return Begin(tensors, [options](c10d::Backend& on_host,
                                    std::vector<at::Tensor>& all) {
      return on_host.allreduce(all, options);
    });
  }
  WorkPointer broadcast(std::vector<at::Tensor>& tensors,
                        const c10d::BroadcastOptions& options) override {
    return Begin(tensors, [options](c10d::Backend& on_host,
                                    std::vector<at::Tensor>& all) {
      return on_host.broadcast(all, options);
    });
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    on_host_->setTimeout(timeout);
  }
  void abort() override { *aborted_ = true; }
  void shutdown() override { Synchronize(stream_); }

 private:
  using Body =
      std::function<WorkPointer(c10d::Backend&, std::vector<at::Tensor>&)>;

  WorkPointer Begin(std::vector<at::Tensor>& tensors, Body body) {
    TORCH_CHECK(!*aborted_, "the communicator was aborted");
    std::vector<at::Tensor> in_kernel;
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.is_hpu() && tensor.device().index() == device_ &&
                      tensor.is_contiguous(),
                  "collectives take contiguous tensors of the group's device");
      in_kernel.push_back(at::from_blob(KernelAddress(tensor.data_ptr()),
                                        tensor.sizes(),
                                        tensor.options().device(at::kCPU)));
    }
    Event ready;
    ready.Record(CurrentStream(device_));
    ready.Block(stream_);
    Enqueue(stream_, [body = std::move(body), in_kernel, on_host = on_host_,
                      aborted = aborted_]() mutable {
      Run(body, *on_host, in_kernel, *aborted);
    });
    Event end;
    end.Record(stream_);
    return c10::make_intrusive<StreamWork>(device_, std::move(end), tensors);
  }

  static void Run(const Body& body, c10d::Backend& on_host,
                  std::vector<at::Tensor>& tensors,
                  const std::atomic<bool>& aborted) {
    if (aborted) return;
    try {
      const WorkPointer work = body(on_host, tensors);
      while (!work->isCompleted() && !aborted)
        std::this_thread::sleep_for(kPollInterval);
      if (!aborted) work->wait();
    } catch (const std::exception&) {
      // A rank is lost: the kernel hangs until it is aborted.
      while (!aborted) std::this_thread::sleep_for(kPollInterval);
    }
  }

  const int device_;
  const c10::Stream stream_;
  const c10::intrusive_ptr<c10d::Backend> on_host_;
  const std::shared_ptr<std::atomic<bool>> aborted_ =
      std::make_shared<std::atomic<bool>>(false);
};

class SimulatedBackend final : public DeviceBackend {
 public:
  void LimitMemory(c10::Device device, uint64_t bytes) const override {
    simulated::LimitMemory(device.index(), bytes);
  }
  c10::intrusive_ptr<c10d::Backend> MakeCollectives(
      const c10::intrusive_ptr<c10d::Store>& store,
      const ProcessGroupOptions& options) const override {
    return simulated::MakeCollectives(store, options);
  }
  bool PinMemory(void* data, uint64_t size_bytes) const override {
    Pin(data, size_bytes);
    return true;
  }
  void UnpinMemory(void* data) const override { Unpin(data); }
  std::optional<std::vector<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors,
      c10::Device device) const override {
    Synchronize(CurrentStream(device.index()));
    std::vector<uint64_t> hashes;
    for (const at::Tensor& tensor : tensors) {
      hashes.push_back(
          HashBytes(KernelAddress(tensor.const_data_ptr()), tensor.nbytes()));
    }
    return hashes;
  }
};

const BackendIsRegistered kRegistered(c10::DeviceType::HPU,
                                      std::make_unique<SimulatedBackend>());

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeCollectives(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroupOptions& options) {
  NeedContext(options.device.index());
  const auto gloo =
      c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(
          static_cast<int64_t>(options.timeout_s * 1000)));
  gloo->devices.push_back(
      options.address.empty()
          ? c10d::ProcessGroupGloo::createDefaultDevice()
          : c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  auto on_host = c10::make_intrusive<c10d::ProcessGroupGloo>(
      store, options.rank, options.world_size, gloo);
  return c10::make_intrusive<Collectives>(std::move(on_host), options);
}

}  // namespace gavel::simulated
