// The caching allocator of the simulated devices, and their memory.
//
// A device's memory is mapped twice: tensors have addresses of a mapping that
// the host may not touch (it faults), kernels work in the other one. Memory is
// taken from the device in segments, which this process keeps when the tensors
// in them are gone, until emptyCache(): then their bytes are lost at once, also
// for work of streams that is still to run.
//
// A block belongs to the stream that was current when it was allocated, and is
// given again on that stream only, without waiting for anything, unless another
// stream was recorded for it.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_ALLOCATOR_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_ALLOCATOR_H_

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>

namespace gavel::simulated {

c10::DeviceAllocator& TheAllocator();

// Where kernels find what tensors have at `data`, an address of a device.
void* KernelAddress(const void* data);
// The device whose memory `data` is; -1: none.
int DeviceOf(const void* data);

// Beyond so much of a device this process gets no memory; 0: all of it.
void LimitMemory(int device, uint64_t bytes);

// Host memory that copies run beside the host for.
at::HostAllocator& ThePinnedAllocator();
// Memory that is there already. Throws c10::Error where it is pinned.
void Pin(void* data, size_t size_bytes);
void Unpin(void* data);
bool IsPinned(const void* data);
// For a copy. Throws c10::Error where it spans two pieces that were pinned, or
// one and other memory, which CUDA may refuse.
bool IsPinned(const void* data, size_t size_bytes);
uint64_t PinnedBytes();

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_ALLOCATOR_H_
