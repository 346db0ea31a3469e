// The streams and events of the simulated devices. Work that is given to a
// stream runs later, in order within the stream, on a thread of the stream, and
// now and then after a random delay: whoever does not wait for it sees old
// bytes.
//
// An error of the work, and a fault that a test has set, is thrown by the next
// call that waits for the device or gives it work, as CUDA does.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace gavel::simulated {

// Of this thread; as cudaSetDevice, the first use of a device by a process
// takes a context's memory of it.
int CurrentDevice();
void SetCurrentDevice(int device);
// Without a context, and without an error for a device that is broken.
int ExchangeCurrentDeviceUnchecked(int device) noexcept;

// Throws c10::Error: the device is broken, or exclusive and another's;
// c10::OutOfMemoryError: the context does not fit.
void NeedContext(int device);
bool HasContext(int device);
// Throws what has gone wrong on the device.
void CheckDevice(int device);

c10::Stream CurrentStream(int device);
c10::Stream SetCurrentStream(c10::Stream stream);  // the one before
c10::Stream DefaultStream(int device);
c10::Stream NewStream(int device);

void Enqueue(c10::Stream stream, std::function<void()> work);
bool IsIdle(c10::Stream stream);
void Synchronize(c10::Stream stream);
void SynchronizeDevice(int device);
// How much work the stream was given so far, and whether so much is done.
uint64_t Given(c10::Stream stream);
bool IsDone(c10::Stream stream, uint64_t given);

// Counted over all devices of this process, since it began.
struct Counts {
  std::atomic<uint64_t> copies{0};  // between a device and the host
  // From or to host memory that is not pinned.
  std::atomic<uint64_t> unpinned_bytes{0};
  std::atomic<uint64_t> waits{0};  // of the host: for a stream, device or event
};
Counts& TheCounts();

class Event {
 public:
  void Record(c10::Stream stream);
  // Work given to `stream` from now on runs after what the last Record saw.
  void Block(c10::Stream stream) const;
  bool IsDone() const;
  void Synchronize() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of the last Record
};

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_
