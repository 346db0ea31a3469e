#include "runtime/cuda/nccl_collectives.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#ifdef GAVEL_HAS_NCCL
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "runtime/device/process_group.h"
#endif

namespace gavel {

#ifdef GAVEL_HAS_NCCL
namespace {

constexpr std::chrono::milliseconds kReadyInterval(5);

// A communicator that hangs is to be aborted, not the host's process. LibTorch
// has no option for that but an environment variable, which must not be set
// while other threads of the host may read the environment.
class AbortedNccl final : public c10d::ProcessGroupNCCL {
 public:
  AbortedNccl(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
              c10::intrusive_ptr<Options> options)
      : ProcessGroupNCCL(std::move(store), rank, world_size,
                         std::move(options)) {
    // Its watchdog looks at this when a collective fails; there is none yet.
    asyncErrorHandling_ = c10d::CleanUpOnly;
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroupOptions& options) {
  const std::chrono::milliseconds timeout(
      static_cast<int64_t>(options.timeout_s * 1000));
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = timeout;
  // Or making a communicator waits for a rank that never comes.
  nccl->config.blocking = 0;
  auto group = c10::make_intrusive<AbortedNccl>(
      store, options.rank, options.world_size, std::move(nccl));
  group->eagerConnectSingleDevice(options.device);
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  while (!group->isInitialized()) {
    if (std::chrono::steady_clock::now() > give_up) {
      group->abort();
      TORCH_CHECK(false, "NCCL did not connect the ", options.world_size,
                  " ranks within ", options.timeout_s,
                  " s; NCCL_DEBUG=INFO in the job's environment tells more");
    }
    std::this_thread::sleep_for(kReadyInterval);
  }
  return group;
}
#else
c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>&, const ProcessGroupOptions&) {
  return {};
}
#endif

}  // namespace gavel
