#include "runtime/cuda/nccl_collectives.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#ifdef GAVEL_HAS_NCCL
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/process_group.h"
#endif

namespace gavel {

#ifdef GAVEL_HAS_NCCL
namespace {

using Clock = std::chrono::steady_clock;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr char kIdKey[] = "nccl_id";
constexpr std::chrono::microseconds kPollInterval(100);

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    default:
      TORCH_CHECK(false, "NCCL has no tensors of type ", tensor.scalar_type());
  }
}

ncclRedOp_t OperationOf(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ncclSum;
    case c10d::ReduceOp::MIN:
      return ncclMin;
    case c10d::ReduceOp::MAX:
      return ncclMax;
    default:
      TORCH_CHECK(false, "a gang reduces by sum, min or max only");
  }
}

class NcclWork final : public c10d::Work {
 public:
  NcclWork(c10::DeviceIndex device, at::cuda::CUDAEvent done)
      : device_(device), done_(std::move(done)) {}

  bool isCompleted() override { return done_.query(); }
  bool isSuccess() const override { return done_.query(); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  // The current stream waits; the caller does not.
  void synchronize() override {
    done_.block(c10::cuda::getCurrentCUDAStream(device_));
  }

 private:
  const c10::DeviceIndex device_;
  at::cuda::CUDAEvent done_;
};

// LibTorch's ProcessGroupNCCL waits up to half an hour for a missing rank,
// during which nothing can abort it, and its watchdogs may end the process. The
// communicators here never block: a waiting call polls until NCCL is done, the
// timeout has passed, or the group was aborted.
class NcclCollectives final : public c10d::Backend {
 public:
  NcclCollectives(c10d::Store& store, const ProcessGroupOptions& options)
      : Backend(options.rank, options.world_size),
        device_(options.device.index()),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device_)),
        timeout_(static_cast<int64_t>(options.timeout_s * 1000)) {
    ncclUniqueId id;
    if (options.rank == 0) {
      Check(ncclGetUniqueId(&id));
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&id);
      store.set(kIdKey, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
    } else {
      const std::vector<uint8_t> bytes = store.get(kIdKey);
      TORCH_CHECK(bytes.size() == sizeof(id),
                  "the ranks of the gang have different versions of NCCL");
      std::memcpy(&id, bytes.data(), sizeof(id));
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      Call("connecting the ranks", [&] {
        return ncclCommInitRankConfig(&communicator_, options.world_size, id,
                                      options.rank, &config);
      });
    } catch (...) {
      abort();
      throw;
    }
  }
  ~NcclCollectives() override { abort(); }

  const std::string getBackendName() const override { return "nccl"; }

  WorkPointer allreduce(std::vector<at::Tensor>& tensors,
                        const c10d::AllreduceOptions& options) override {
    const ncclRedOp_t operation = OperationOf(options.reduceOp);
    return Begin("an all-reduce", tensors.at(0), [&](const at::Tensor& tensor) {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(),
                           static_cast<size_t>(tensor.numel()), TypeOf(tensor),
                           operation, communicator_, stream_);
    });
  }
  WorkPointer broadcast(std::vector<at::Tensor>& tensors,
                        const c10d::BroadcastOptions& options) override {
    return Begin("a broadcast", tensors.at(0), [&](const at::Tensor& tensor) {
      // Broadcasts bytes, because NCCL has no type for some tensors.
      return ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(),
                           tensor.nbytes(), ncclUint8,
                           static_cast<int>(options.rootRank), communicator_,
                           stream_);
    });
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    timeout_ = timeout;
  }
  // Finishes the collectives in progress and leaves the group. All ranks must
  // call this.
  void shutdown() override {
    Call("leaving the gang", [&] { return ncclCommFinalize(communicator_); });
    const c10::cuda::CUDAGuard guard(device_);
    if (ncclComm_t left = TakeOut()) Check(ncclCommDestroy(left));
  }
  // Ends the collectives in progress, and makes calls that wait for them fail.
  void abort() override {
    if (ncclComm_t left = TakeOut()) {
      const c10::cuda::OptionalCUDAGuard guard(device_);
      ncclCommAbort(left);
    }
  }

 private:
  // Passes the communicator to the call that ends it. That call may block, so
  // it must not hold the lock; no other call uses the communicator any more.
  // Returns null from the second time on.
  ncclComm_t TakeOut() {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    return std::exchange(communicator_, nullptr);
  }
  static void Check(ncclResult_t result) {
    TORCH_CHECK(result == ncclSuccess || result == ncclInProgress,
                "NCCL: ", ncclGetErrorString(result));
  }

  // Runs `body` and returns when NCCL has finished the host's part of the work.
  template <class Body>
  void Call(const char* what, Body&& body) {
    const c10::cuda::CUDAGuard guard(device_);
    std::unique_lock<std::mutex> lock(mutex_);
    TORCH_CHECK(!aborted_, what, ": the group was aborted");
    const auto give_up = Clock::now() + timeout_;
    ncclResult_t state = body();
    for (Check(state);;) {
      TORCH_CHECK(!aborted_, what, ": the group was aborted");
      Check(ncclCommGetAsyncError(communicator_, &state));
      Check(state);
      if (state == ncclSuccess) return;
      TORCH_CHECK(Clock::now() < give_up, what, ": not all of the ", getSize(),
                  " ranks came within ", timeout_.count(),
                  " ms; NCCL_DEBUG=INFO in the job's environment tells more");
      lock.unlock();
      std::this_thread::sleep_for(kPollInterval);
      lock.lock();
    }
  }

  template <class Body>
  WorkPointer Begin(const char* what, const at::Tensor& tensor, Body&& body) {
    TORCH_CHECK(tensor.is_cuda() && tensor.device().index() == device_ &&
                    tensor.is_contiguous(),
                "collectives take contiguous tensors of the group's device");
    at::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream(device_));
    ready.block(stream_);
    // Keeps the memory from being reused before the collective is done.
    c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(),
                                                  stream_);
    Call(what, [&] { return body(tensor); });
    at::cuda::CUDAEvent done;
    done.record(stream_);
    return c10::make_intrusive<NcclWork>(device_, std::move(done));
  }

  const c10::DeviceIndex device_;
  const c10::cuda::CUDAStream stream_;
  std::mutex mutex_;  // guards the following; held while starting NCCL calls
  std::chrono::milliseconds timeout_;
  bool aborted_ = false;  // or shut down
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroupOptions& options) {
  return c10::make_intrusive<NcclCollectives>(*store, options);
}
#else
c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>&, const ProcessGroupOptions&) {
  return {};
}
#endif

}  // namespace gavel
