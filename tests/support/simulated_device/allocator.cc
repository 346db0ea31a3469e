#include "tests/support/simulated_device/allocator.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/simulated_device/settings.h"
#include "tests/support/simulated_device/shared_memory.h"
#include "tests/support/simulated_device/streams.h"

namespace gavel::simulated {
namespace {

// Sizes of blocks and of segments are multiples of these.
constexpr uint64_t kBlockBytes = 512;
constexpr uint64_t kSegmentBytes = uint64_t{2} << 20;
// Smaller blocks lie in segments of their own, which they share.
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
constexpr uint64_t kAddressesBytes = uint64_t{16} << 30;
constexpr int kNewByte = 0xff;  // floating-point numbers made of it are NaN

uint64_t RoundUp(uint64_t size, uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

// The two mappings of a device's memory.
class Addresses {
 public:
  Addresses() {
    file_ = ::memfd_create("simulated_device", MFD_CLOEXEC);
    TORCH_CHECK(file_ >= 0 && ::ftruncate(file_, kAddressesBytes) == 0,
                "memory of a simulated device: ", std::strerror(errno));
    tensors_ = Map(PROT_NONE);
    kernels_ = Map(PROT_READ | PROT_WRITE);
  }
  bool Has(const void* data) const {
    return data >= tensors_ && data < tensors_ + kAddressesBytes;
  }
  uint64_t Offset(const void* data) const {
    return static_cast<uint64_t>(static_cast<const char*>(data) - tensors_);
  }
  char* ForTensors(uint64_t offset) const { return tensors_ + offset; }
  char* ForKernels(uint64_t offset) const { return kernels_ + offset; }
  void Lose(uint64_t offset, uint64_t size) const {
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(size));
  }

 private:
  char* Map(int protection) const {
    void* const memory = ::mmap(nullptr, kAddressesBytes, protection,
                                MAP_SHARED | MAP_NORESERVE, file_, 0);
    TORCH_CHECK(memory != MAP_FAILED,
                "memory of a simulated device: ", std::strerror(errno));
    return static_cast<char*>(memory);
  }

  int file_;
  char* tensors_;
  char* kernels_;
};

struct Segment {
  uint64_t offset = 0;
  uint64_t size = 0;
  bool is_small = false;
  c10::StreamId stream = 0;
};

struct Block {
  uint64_t offset = 0;
  uint64_t size = 0;
  Segment* segment = nullptr;
  bool used = false;
  // The other streams that use the block, each with the number of pieces of
  // work that it had been given when the block was freed.
  std::vector<std::pair<c10::Stream, uint64_t>> users;
};

// The memory of one device. The allocator's mutex guards it.
class Device {
 public:
  explicit Device(int index) : index_(index) {}

  Block* Allocate(uint64_t size);
  void Free(Block* block);
  void EmptyCache();
  Block* Find(uint64_t offset) {
    const auto found = blocks_.find(offset);
    return found == blocks_.end() ? nullptr : &found->second;
  }

  const Addresses& addresses() const { return addresses_; }
  c10::CachingDeviceAllocator::DeviceStats stats;
  uint64_t limit_bytes = 0;

 private:
  void FreeUnused();
  Block* FindFree(uint64_t size, bool is_small, c10::StreamId stream);
  bool AddSegment(uint64_t size, bool is_small, c10::StreamId stream);
  void Split(Block* block, uint64_t size);
  void Join(Block* block);
  uint64_t reserved_bytes() const {
    return static_cast<uint64_t>(stats.reserved_bytes[0].current);
  }

  const int index_;
  Addresses addresses_;
  std::map<uint64_t, std::unique_ptr<Segment>> segments_;  // by offset
  std::map<uint64_t, Block> blocks_;                       // by offset
  std::vector<Block*> waiting_;  // freed, still used by other streams
};

Block* Device::FindFree(uint64_t size, bool is_small, c10::StreamId stream) {
  Block* best = nullptr;
  for (auto& [offset, block] : blocks_) {
    if (block.used || block.size < size || block.segment->stream != stream ||
        block.segment->is_small != is_small) {
      continue;
    }
    if (best == nullptr || block.size < best->size) best = &block;
  }
  return best;
}

bool Device::AddSegment(uint64_t size, bool is_small, c10::StreamId stream) {
  if (limit_bytes > 0 && reserved_bytes() + size > limit_bytes) return false;
  if (!TheSharedMemory().Take(index_, size)) return false;
  uint64_t offset = 0;  // the first gap
  for (const auto& [begin, segment] : segments_) {
    if (begin - offset >= size) break;
    offset = begin + segment->size;
  }
  TORCH_CHECK(offset + size <= kAddressesBytes, "no addresses are left");
  auto segment =
      std::make_unique<Segment>(Segment{offset, size, is_small, stream});
  blocks_[offset] = {offset, size, segment.get(), false, {}};
  segments_[offset] = std::move(segment);
  std::memset(addresses_.ForKernels(offset), kNewByte, size);
  stats.reserved_bytes[0].increase(size);
  stats.segment[0].increase(1);
  return true;
}

void Device::Split(Block* block, uint64_t size) {
  const uint64_t rest = block->size - size;
  if (rest < (block->segment->is_small ? kBlockBytes : kSmallBytes)) return;
  block->size = size;
  blocks_[block->offset + size] = {
      block->offset + size, rest, block->segment, false, {}};
}

Block* Device::Allocate(uint64_t requested) {
  FreeUnused();
  const uint64_t size = RoundUp(requested, kBlockBytes);
  const bool is_small = size < kSmallBytes;
  const c10::StreamId stream = CurrentStream(index_).id();
  const uint64_t segment_size = RoundUp(size, kSegmentBytes);
  Block* block = FindFree(size, is_small, stream);
  if (block == nullptr) {
    bool added = AddSegment(segment_size, is_small, stream);
    if (!added) {
      EmptyCache();
      added = AddSegment(segment_size, is_small, stream);
    }
    if (!added) ++stats.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, added, "simulated device ", index_,
                     " is out of memory: tried to allocate ", segment_size,
                     " bytes; in use are ", TheSharedMemory().Used(index_),
                     " of ", TheSharedMemory().memory_bytes(),
                     ", of this process ", reserved_bytes(),
                     ", which may hold ",
                     limit_bytes == 0 ? "all" : std::to_string(limit_bytes));
    block = FindFree(size, is_small, stream);
  }
  Split(block, size);
  block->used = true;
  stats.allocated_bytes[0].increase(block->size);
  stats.allocation[0].increase(1);
  return block;
}

void Device::Free(Block* block) {
  stats.allocated_bytes[0].decrease(block->size);
  stats.allocation[0].decrease(1);
  for (auto& [stream, given] : block->users) given = Given(stream);
  if (block->users.empty()) return Join(block);
  waiting_.push_back(block);
}

void Device::FreeUnused() {
  std::erase_if(waiting_, [this](Block* block) {
    std::erase_if(block->users, [](const auto& user) {
      return IsDone(user.first, user.second);
    });
    if (!block->users.empty()) return false;
    Join(block);
    return true;
  });
}

// Frees the block and merges it with free neighbours in its segment.
void Device::Join(Block* block) {
  block->used = false;
  auto at = blocks_.find(block->offset);
  const auto next = std::next(at);
  if (next != blocks_.end() && !next->second.used &&
      next->second.segment == block->segment) {
    block->size += next->second.size;
    blocks_.erase(next);
  }
  if (at == blocks_.begin()) return;
  Block& before = std::prev(at)->second;
  if (before.used || before.segment != block->segment) return;
  before.size += block->size;
  blocks_.erase(at);
}

void Device::EmptyCache() {
  FreeUnused();
  std::erase_if(segments_, [this](const auto& entry) {
    const Segment& segment = *entry.second;
    const Block& block = blocks_.at(segment.offset);
    if (block.used || block.size != segment.size) return false;
    addresses_.Lose(segment.offset, segment.size);
    TheSharedMemory().GiveBack(index_, segment.size);
    stats.reserved_bytes[0].decrease(segment.size);
    stats.segment[0].decrease(1);
    blocks_.erase(segment.offset);
    return true;
  });
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const int index = CurrentDevice();
    CheckDevice(index);
    const c10::Device device(c10::DeviceType::HPU,
                             static_cast<c10::DeviceIndex>(index));
    if (size == 0) return {nullptr, nullptr, &Delete, device};
    const std::lock_guard lock(mutex_);
    Device& of_device = Of(index);
    char* const data =
        of_device.addresses().ForTensors(of_device.Allocate(size)->offset);
    return {data, data, &Delete, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t size) const override {
    const int device = DeviceOf(to);
    Enqueue(CurrentStream(device),
            [to = KernelAddress(to), from = KernelAddress(from), size] {
              std::memcpy(to, from, size);
            });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    const std::lock_guard lock(mutex_);
    for (const auto& device : devices_) {
      if (device != nullptr) device->EmptyCache();
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const std::lock_guard lock(mutex_);
    const int device = FindDevice(data.get());
    if (device < 0) return;
    Block* const block = BlockOf(device, data.get());
    if (block->segment->stream != stream.id())
      block->users.emplace_back(stream, 0);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return Initialized(device).stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    Initialized(device).stats.allocated_bytes[0].reset_peak();
    Initialized(device).stats.reserved_bytes[0].reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    NeedContext(device);
    const uint64_t total = TheSharedMemory().memory_bytes();
    return {total - std::min(total, TheSharedMemory().Used(device)), total};
  }

  void Limit(int device, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    Initialized(device).limit_bytes = bytes;
  }
  int FindDevice(const void* data) const {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i] != nullptr && devices_[i]->addresses().Has(data)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }
  const Addresses& AddressesOf(int device) const {
    return devices_[static_cast<size_t>(device)]->addresses();
  }

 private:
  static void Delete(void* data);

  Device& Of(int index) {
    auto& device = devices_[static_cast<size_t>(index)];
    if (device == nullptr) device = std::make_unique<Device>(index);
    return *device;
  }
  // Fails before the first use of the device, as CUDA's allocator does.
  Device& Initialized(int index) {
    TORCH_CHECK(HasContext(index), "Allocator not initialized for device ",
                index, ": did you call init?");
    return Of(index);
  }
  Block* BlockOf(int device, const void* data) {
    Device& of_device = Of(device);
    return of_device.Find(of_device.addresses().Offset(data));
  }

  std::mutex mutex_;
  std::array<std::unique_ptr<Device>, kDevicesMax> devices_;
};

Allocator& Instance() {
  static Allocator& allocator = *new Allocator();
  return allocator;
}

void Allocator::Delete(void* data) {
  if (data == nullptr) return;
  Allocator& allocator = Instance();
  const std::lock_guard lock(allocator.mutex_);
  const int device = allocator.FindDevice(data);
  allocator.Of(device).Free(allocator.BlockOf(device, data));
}

// ---- pinned memory

class PinnedMemory {
 public:
  void Add(void* data, size_t size_bytes) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(FindUnlocked(data) == nullptr, "this memory is pinned already");
    sizes_[static_cast<char*>(data)] = size_bytes;
    bytes_ += size_bytes;
  }
  void Remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(static_cast<char*>(data));
    TORCH_CHECK(found != sizes_.end(), "this memory is not pinned");
    bytes_ -= found->second;
    sizes_.erase(found);
  }
  bool Has(const void* data, size_t size_bytes = 1) {
    const std::lock_guard lock(mutex_);
    const char* const begin = static_cast<const char*>(data);
    const void* const piece = FindUnlocked(begin);
    TORCH_CHECK(piece == FindUnlocked(begin + size_bytes - 1),
                "a copy spans memory that was pinned apart, or not at all");
    return piece != nullptr;
  }
  uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  // Where the pinned piece that contains `data` begins; null if there is none.
  const void* FindUnlocked(const void* data) const {
    auto at =
        sizes_.upper_bound(const_cast<char*>(static_cast<const char*>(data)));
    if (at == sizes_.begin()) return nullptr;
    --at;
    return data < at->first + at->second ? at->first : nullptr;
  }

  std::mutex mutex_;
  std::map<char*, size_t> sizes_;
  uint64_t bytes_ = 0;
};

PinnedMemory& ThePinnedMemory() {
  static PinnedMemory& memory = *new PinnedMemory();
  return memory;
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    NeedContext(CurrentDevice());
    if (size == 0) return {nullptr, nullptr, &Delete, c10::Device(c10::kCPU)};
    void* const data = std::aligned_alloc(64, RoundUp(size, 64));
    ThePinnedMemory().Add(data, size);
    return {data, data, &Delete, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void Delete(void* data) {
    if (data == nullptr) return;
    ThePinnedMemory().Remove(data);
    std::free(data);
  }
};

}  // namespace

c10::DeviceAllocator& TheAllocator() { return Instance(); }

int DeviceOf(const void* data) { return Instance().FindDevice(data); }

void* KernelAddress(const void* data) {
  if (data == nullptr) return nullptr;
  const int device = DeviceOf(data);
  TORCH_CHECK(device >= 0, "this memory is of no simulated device");
  const Addresses& addresses = Instance().AddressesOf(device);
  return addresses.ForKernels(addresses.Offset(data));
}

void LimitMemory(int device, uint64_t bytes) {
  Instance().Limit(device, bytes);
}

at::HostAllocator& ThePinnedAllocator() {
  static PinnedAllocator& allocator = *new PinnedAllocator();
  return allocator;
}

void Pin(void* data, size_t size_bytes) {
  ThePinnedMemory().Add(data, size_bytes);
}
void Unpin(void* data) { ThePinnedMemory().Remove(data); }
bool IsPinned(const void* data) { return ThePinnedMemory().Has(data); }
bool IsPinned(const void* data, size_t size_bytes) {
  return ThePinnedMemory().Has(data, size_bytes);
}
uint64_t PinnedBytes() { return ThePinnedMemory().bytes(); }

}  // namespace gavel::simulated
