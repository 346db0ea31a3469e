#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/cuda/nccl_collectives.h"
#include "runtime/device/device_backend.h"
#include "runtime/device/tensor_hash_words.h"

#ifdef GAVEL_HAS_TENSOR_HASH
#include "runtime/cuda/tensor_hash_kernel.h"
#endif

namespace gavel {
namespace {

class CudaBackend final : public DeviceBackend {
 public:
  std::string WhyNone() const override {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    return WhyNoGpu(driver, CUDART_VERSION);
  }

  void ReleaseWorkspaces(c10::Device device) const override {
    const c10::cuda::CUDAGuard guard(device);
    at::cuda::clearCublasWorkspaces();  // some MiB for each stream in use
  }

  void LimitMemory(c10::Device device, uint64_t bytes) const override {
    const auto total = static_cast<double>(
        at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
    const double part =
        bytes == 0 ? 1 : std::min(1.0, static_cast<double>(bytes) / total);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(part, device.index());
  }

  c10::intrusive_ptr<c10d::Backend> MakeCollectives(
      const c10::intrusive_ptr<c10d::Store>& store,
      const ProcessGroupOptions& options) const override {
    return MakeNccl(store, options);
  }

  bool PinMemory(void* data, uint64_t size_bytes) const override {
    // By a device that is in use: any other would get a context.
    const auto used = c10::cuda::getDeviceIndexWithPrimaryContext();
    if (!used) return false;
    const c10::cuda::CUDAGuard guard(*used);
    const cudaError_t error =
        cudaHostRegister(data, size_bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) return true;
    cudaGetLastError();  // or the next kernel would be blamed
    return false;
  }
  void UnpinMemory(void* data) const override {
    // Fails behind any earlier error of the device; the process ends then.
    if (cudaHostUnregister(data) != cudaSuccess) cudaGetLastError();
  }

#ifdef GAVEL_HAS_TENSOR_HASH
  std::optional<std::vector<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors,
      c10::Device device) const override {
    const c10::cuda::CUDAGuard guard(device);
    const auto count = static_cast<int64_t>(tensors.size());
    const at::Tensor sums =
        at::zeros({count}, at::device(device).dtype(at::kLong));
    auto* const sum = static_cast<unsigned long long*>(sums.mutable_data_ptr());
    for (size_t i = 0; i < tensors.size(); ++i) {
      C10_CUDA_CHECK(internal::AddTermsOfWords(
          tensors[i].const_data_ptr(), tensors[i].nbytes(), sum + i,
          c10::cuda::getCurrentCUDAStream(device.index())));
    }
    const at::Tensor on_host = sums.cpu();
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < tensors.size(); ++i) {
      hashes.push_back(internal::HashOfSum(
          static_cast<uint64_t>(on_host.const_data_ptr<int64_t>()[i]),
          tensors[i].nbytes()));
    }
    return hashes;
  }
#endif
};

const BackendIsRegistered kRegistered(c10::kCUDA,
                                      std::make_unique<CudaBackend>());

}  // namespace
}  // namespace gavel
