// The streams and events of the simulated devices. Work that is given to a
// stream runs later, in order within the stream, on a thread of the stream, and
// now and then after a random delay: code that does not wait for it sees old
// bytes.
//
// As with CUDA, the next call that waits for the device or gives it work throws
// an error of earlier work, or a fault that a test has set.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace gavel::simulated {

// The current device of this thread. As with cudaSetDevice, SetCurrentDevice
// makes a context, which takes memory of the device, when the process uses the
// device for the first time.
int CurrentDevice();
void SetCurrentDevice(int device);
// Makes no context and does not fail for a broken device. Returns the device
// that was current before.
int ExchangeCurrentDeviceUnchecked(int device) noexcept;

// Makes a context unless there is one. Throws c10::Error if the devices are in
// exclusive mode and another process uses this one, and c10::OutOfMemoryError
// if the context does not fit.
void NeedContext(int device);
bool HasContext(int device);
// Throws the error that the device has, if any.
void CheckDevice(int device);

c10::Stream CurrentStream(int device);
c10::Stream SetCurrentStream(c10::Stream stream);  // the one before
c10::Stream DefaultStream(int device);
c10::Stream NewStream(int device);

void Enqueue(c10::Stream stream, std::function<void()> work);
bool IsIdle(c10::Stream stream);
void Synchronize(c10::Stream stream);
void SynchronizeDevice(int device);
// Given counts the pieces of work that the stream was given so far. IsDone
// tells whether the first `given` of them are done.
uint64_t Given(c10::Stream stream);
bool IsDone(c10::Stream stream, uint64_t given);

// Counts over all devices of this process, since it began.
struct Counts {
  std::atomic<uint64_t> copies{0};  // between a device and the host
  // Bytes copied from or to host memory that is not pinned.
  std::atomic<uint64_t> unpinned_bytes{0};
  // Waits of the host for a stream, a device or an event.
  std::atomic<uint64_t> waits{0};
};
Counts& TheCounts();

class Event {
 public:
  void Record(c10::Stream stream);
  // Work given to `stream` from now on runs after all work that was in the
  // recorded stream at the last Record.
  void Block(c10::Stream stream) const;
  bool IsDone() const;
  void Synchronize() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of the last Record
};

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_STREAMS_H_
