#include "tests/support/simulated_device/streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/simulated_device/settings.h"
#include "tests/support/simulated_device/shared_memory.h"

namespace gavel::simulated {
namespace {

constexpr auto kType = c10::DeviceType::HPU;

// Delays are for some of the work only, or nothing would be tested quickly.
constexpr int kDelayedOneOf = 8;

thread_local int current_device = 0;
thread_local std::array<c10::StreamId, kDevicesMax> current_streams{};

std::string Name(int device) {
  return "simulated device " + std::to_string(device);
}

// One thread, which runs the work in order.
class Queue {
 public:
  Queue(int device, c10::StreamId id)
      : device_(device),
        random_(TheSettings().seed * 1000 + 100 * device + id) {
    std::thread([this] { Run(); }).detach();
  }

  void Give(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++given_;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, goal = given_] { return done_ >= goal; });
  }
  uint64_t given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool IsDone(uint64_t given) {
    const std::lock_guard lock(mutex_);
    return done_ >= given;
  }

 private:
  void Run();
  void Delay();

  const int device_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t given_ = 0;
  uint64_t done_ = 0;
};

struct DeviceState {
  std::mutex mutex;
  bool has_context = false;
  std::vector<std::unique_ptr<Queue>> queues;  // by StreamId
  std::string error;                           // of work that has failed
};

// Never destroyed: threads of streams live as long as the process.
DeviceState& StateOf(int device) {
  static auto& states = *new std::array<DeviceState, kDevicesMax>();
  TORCH_CHECK(device >= 0 && device < TheSettings().devices, "there is no ",
              Name(device), ", but ", TheSettings().devices);
  return states[static_cast<size_t>(device)];
}

Queue& QueueOf(c10::Stream stream) {
  DeviceState& state = StateOf(stream.device_index());
  const std::lock_guard lock(state.mutex);
  const auto id = static_cast<size_t>(stream.id());
  while (state.queues.size() <= id) {
    state.queues.push_back(std::make_unique<Queue>(
        stream.device_index(),
        static_cast<c10::StreamId>(state.queues.size())));
  }
  return *state.queues[id];
}

void Queue::Delay() {
  int64_t delay_us = TheSharedMemory().slowness_us(device_);
  if (TheSettings().delay_us > 0 && random_() % kDelayedOneOf == 0) {
    delay_us += static_cast<int64_t>(
        random_() % static_cast<uint64_t>(TheSettings().delay_us));
  }
  if (delay_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  }
}

void Queue::Run() {
  ExchangeCurrentDeviceUnchecked(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !work_.empty(); });
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    Delay();
    try {
      if (TheSharedMemory().fault(device_) == Fault::kAtLaunch) {
        TORCH_CHECK(false, Name(device_), ": the kernel failed");
      }
      work();
    } catch (const std::exception& error) {
      DeviceState& state = StateOf(device_);
      const std::lock_guard state_lock(state.mutex);
      if (state.error.empty()) state.error = error.what();
    }
    work = nullptr;  // before it counts as done
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace

Counts& TheCounts() {
  static Counts& counts = *new Counts();
  return counts;
}

int CurrentDevice() { return current_device; }

int ExchangeCurrentDeviceUnchecked(int device) noexcept {
  return std::exchange(current_device, device);
}

void SetCurrentDevice(int device) {
  TORCH_CHECK(TheSharedMemory().fault(device) != Fault::kAtSet, Name(device),
              ": can't be chosen");
  NeedContext(device);
  current_device = device;
}

bool HasContext(int device) {
  DeviceState& state = StateOf(device);
  const std::lock_guard lock(state.mutex);
  return state.has_context;
}

void NeedContext(int device) {
  DeviceState& state = StateOf(device);
  const std::lock_guard lock(state.mutex);
  if (state.has_context) return;
  SharedMemory& memory = TheSharedMemory();
  TORCH_CHECK(
      !TheSettings().exclusive || !memory.IsUsedByAnother(device), Name(device),
      " is busy: it is in exclusive-process mode, and another process uses it");
  TORCH_CHECK_WITH(OutOfMemoryError,
                   memory.Take(device, TheSettings().context_bytes),
                   Name(device), ": out of memory, no room for a context");
  state.has_context = true;
}

void CheckDevice(int device) {
  NeedContext(device);
  TORCH_CHECK(TheSharedMemory().fault(device) != Fault::kSticky, Name(device),
              ": an earlier kernel has failed");
  DeviceState& state = StateOf(device);
  const std::lock_guard lock(state.mutex);
  TORCH_CHECK(state.error.empty(), Name(device), ": ", state.error);
}

c10::Stream DefaultStream(int device) {
  return c10::Stream(c10::Stream::DEFAULT,
                     c10::Device(kType, static_cast<c10::DeviceIndex>(device)));
}

c10::Stream CurrentStream(int device) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(kType, static_cast<c10::DeviceIndex>(device)),
                     current_streams[static_cast<size_t>(device)]);
}

c10::Stream SetCurrentStream(c10::Stream stream) {
  const c10::Stream before = CurrentStream(stream.device_index());
  current_streams[static_cast<size_t>(stream.device_index())] = stream.id();
  return before;
}

c10::Stream NewStream(int device) {
  size_t id = 0;
  {
    DeviceState& state = StateOf(device);
    const std::lock_guard lock(state.mutex);
    id = std::max<size_t>(1, state.queues.size());
  }
  const c10::Stream stream(
      c10::Stream::UNSAFE,
      c10::Device(kType, static_cast<c10::DeviceIndex>(device)),
      static_cast<c10::StreamId>(id));
  QueueOf(stream);
  return stream;
}

void Enqueue(c10::Stream stream, std::function<void()> work) {
  CheckDevice(stream.device_index());
  QueueOf(stream).Give(std::move(work));
}

bool IsIdle(c10::Stream stream) { return IsDone(stream, Given(stream)); }

void Synchronize(c10::Stream stream) {
  ++TheCounts().waits;
  NeedContext(stream.device_index());
  QueueOf(stream).Wait();
  CheckDevice(stream.device_index());
}

void SynchronizeDevice(int device) {
  ++TheCounts().waits;
  NeedContext(device);
  std::vector<Queue*> queues;
  {
    DeviceState& state = StateOf(device);
    const std::lock_guard lock(state.mutex);
    for (const auto& queue : state.queues) queues.push_back(queue.get());
  }
  for (Queue* queue : queues) queue->Wait();
  CheckDevice(device);
}

uint64_t Given(c10::Stream stream) { return QueueOf(stream).given(); }

bool IsDone(c10::Stream stream, uint64_t given) {
  return QueueOf(stream).IsDone(given);
}

// ---- events

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
};

void Event::Record(c10::Stream stream) {
  state_ = std::make_shared<State>();
  Enqueue(stream, [state = state_] {
    const std::lock_guard lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  });
}

void Event::Block(c10::Stream stream) const {
  if (state_ == nullptr) return;
  Enqueue(stream, [state = state_] { state->Wait(); });
}

bool Event::IsDone() const {
  if (state_ == nullptr) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Event::Synchronize() const {
  ++TheCounts().waits;
  if (state_ != nullptr) state_->Wait();
}

}  // namespace gavel::simulated
