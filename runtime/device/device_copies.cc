#include "runtime/device/device_copies.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/device/copy_list.h"
#include "runtime/device/device_backend.h"
#include "runtime/device/worker_pool.h"

namespace gavel {
namespace {

// They copy 20 GB/s together, as fast as fresh pages can be had.
constexpr int kCopyThreadsMax = 8;

at::Tensor HostRow(char* data, uint64_t size_bytes) {
  return at::from_blob(data, {static_cast<int64_t>(size_bytes)},
                       at::device(at::kCPU).dtype(at::kByte));
}

at::Tensor Part(const at::Tensor& row, uint64_t begin, uint64_t size_bytes) {
  return row.narrow(0, static_cast<int64_t>(begin),
                    static_cast<int64_t>(size_bytes));
}

// Both ends are asked for: a piece of memory is pinned as a whole.
bool IsPinned(const char* data, uint64_t size_bytes, c10::DeviceType type) {
  at::Context& context = at::globalContext();
  return context.isPinnedPtr(data, type) &&
         context.isPinnedPtr(data + size_bytes - 1, type);
}

}  // namespace

Pinning PinningOf(c10::DeviceType type) {
  const DeviceBackend& backend = BackendOf(type);
  return {[&backend](void* data, uint64_t size_bytes) {
            return backend.PinMemory(data, size_bytes);
          },
          [&backend](void* data) { backend.UnpinMemory(data); }};
}

// The pinned pieces as a ring: while the device copies from or to one, threads
// of the host copy the others.
class DeviceCopies::Pieces {
 public:
  Pieces(c10::Device device, Direction direction, Arena* arena)
      : direction_(direction),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
        block_(arena == nullptr ? nullptr : arena->pieces()),
        pool_(std::clamp(static_cast<int>(std::thread::hardware_concurrency()),
                         1, kCopyThreadsMax)) {}

  bool has_memory() const { return block_ != nullptr; }

  // At most kPieceBytes.
  void Copy(const at::Tensor& bytes, char* host) {
    const auto size = static_cast<uint64_t>(bytes.numel());
    if (used_ + size > Arena::kPieceBytes) Advance();
    char* const piece = block_->data() + current_ * Arena::kPieceBytes + used_;
    used_ += size;
    if (direction_ == Direction::kFromHost) {
      list_.Add(piece, host, size);
      CopyOnHost();
      bytes.copy_(HostRow(piece, size), /*non_blocking=*/true);
    } else {
      HostRow(piece, size).copy_(bytes, /*non_blocking=*/true);
      pieces_[current_].on_host.push_back({host, piece, size});
    }
  }

  void Finish() {
    if (!has_memory()) return;
    for (size_t i = 0; i < pieces_.size(); ++i) Advance();
  }

 private:
  struct OnHost {
    char* to;
    const char* from;
    uint64_t size_bytes;
  };
  struct Piece {
    std::optional<c10::Event> copied;  // by the device
    std::vector<OnHost> on_host;       // to do behind that
  };

  // To the next piece, once the device and the host are done with it.
  void Advance() {
    if (used_ > 0) {
      pieces_[current_].copied.emplace(stream_.device_type());
      pieces_[current_].copied->record(stream_);
    }
    current_ = (current_ + 1) % pieces_.size();
    used_ = 0;
    Piece& piece = pieces_[current_];
    if (!piece.copied) return;
    piece.copied->synchronize();
    piece.copied.reset();
    for (const OnHost& one : piece.on_host) {
      list_.Add(one.to, one.from, one.size_bytes);
    }
    piece.on_host.clear();
    CopyOnHost();
  }

  void CopyOnHost() {
    const absl::Status status = list_.Run(pool_);
    TORCH_CHECK(status.ok(), status.ToString());
  }

  const Direction direction_;
  const c10::Stream stream_;
  const std::shared_ptr<ArenaBlock> block_;
  std::array<Piece, Arena::kPieces> pieces_;
  size_t current_ = 0;
  uint64_t used_ = 0;  // of the current one
  CopyList list_;
  WorkerPool pool_;  // starts its threads when they are needed
};

DeviceCopies::DeviceCopies(c10::Device device, Direction direction,
                           Arena* arena)
    : device_(device), direction_(direction), arena_(arena) {
  if (arena_ != nullptr) arena_->AllowPinned(PinningOf(device.type()));
}

void DeviceCopies::Add(const at::Tensor& on_device, char* host) {
  if (on_device.numel() == 0) return;
  at::Tensor bytes =
      at::empty({0}, on_device.options().dtype(at::kByte).requires_grad(false));
  bytes.set_(
      on_device.storage(),
      on_device.storage_offset() * static_cast<int64_t>(on_device.itemsize()),
      {static_cast<int64_t>(on_device.nbytes())}, {1});
  entries_.push_back({std::move(bytes), host});
}

void DeviceCopies::Run() {
  const at::NoGradGuard no_grad;
  std::ranges::stable_sort(entries_, {}, &Entry::host);  // neighbours together
  Pieces pieces(device_, direction_, arena_);
  buffer_ = MakeBuffer();
  for (size_t begin = 0; begin < entries_.size();) {
    const size_t end = GroupFrom(begin);
    CopyGroup(begin, end, pieces);
    begin = end;
  }
  pieces.Finish();
  c10::impl::VirtualGuardImpl guard(device_.type());
  guard.synchronizeStream(guard.getStream(device_));
  buffer_.reset();
  entries_.clear();
}

// Where the group of the entry `begin` ends.
size_t DeviceCopies::GroupFrom(size_t begin) const {
  int64_t size = 0;
  size_t end = begin;
  for (; end < entries_.size(); ++end) {
    const Entry& entry = entries_[end];
    const int64_t more = entry.bytes.numel();
    const bool is_small = more < static_cast<int64_t>(kGroupedBytesMax);
    if (end > begin &&
        (!is_small || entry.host != entries_[begin].host + size ||
         size + more > static_cast<int64_t>(kGroupBytesMax))) {
      break;
    }
    size += more;
    if (!is_small) return end + 1;
  }
  return end;
}

// As large as the largest group needs. Undefined: there is none, or no room.
at::Tensor DeviceCopies::MakeBuffer() const {
  int64_t size = 0;
  for (size_t begin = 0; begin < entries_.size();) {
    const size_t end = GroupFrom(begin);
    int64_t group = 0;
    for (size_t i = begin; i < end; ++i) group += entries_[i].bytes.numel();
    if (end - begin > 1) size = std::max(size, group);
    begin = end;
  }
  if (size == 0) return {};
  try {
    return at::empty({size}, at::device(device_).dtype(at::kByte));
  } catch (const c10::OutOfMemoryError&) {
    return {};
  }
}

void DeviceCopies::CopyGroup(size_t begin, size_t end, Pieces& pieces) {
  if (end - begin == 1 || !buffer_.defined()) {
    for (size_t i = begin; i < end; ++i) {
      CopyRow(entries_[i].bytes, entries_[i].host, pieces);
    }
    return;
  }
  std::vector<at::Tensor> tensors, places;
  uint64_t size = 0;
  for (size_t i = begin; i < end; ++i) {
    const auto more = static_cast<uint64_t>(entries_[i].bytes.numel());
    tensors.push_back(entries_[i].bytes);
    places.push_back(Part(buffer_, size, more));
    size += more;
  }
  // The stream orders the uses of the buffer.
  const at::Tensor row = Part(buffer_, 0, size);
  if (direction_ == Direction::kToHost) at::_foreach_copy_(places, tensors);
  CopyRow(row, entries_[begin].host, pieces);
  if (direction_ == Direction::kFromHost) at::_foreach_copy_(tensors, places);
}

void DeviceCopies::CopyRow(const at::Tensor& bytes, char* host,
                           Pieces& pieces) {
  const auto size = static_cast<uint64_t>(bytes.numel());
  if (!pieces.has_memory() || IsPinned(host, size, device_.type())) {
    const at::Tensor row = HostRow(host, size);
    const bool to_host = direction_ == Direction::kToHost;
    (to_host ? row : bytes).copy_(to_host ? bytes : row, /*non_blocking=*/true);
    return;
  }
  for (uint64_t done = 0; done < size; done += Arena::kPieceBytes) {
    const uint64_t part = std::min(Arena::kPieceBytes, size - done);
    pieces.Copy(Part(bytes, done, part), host + done);
  }
}

}  // namespace gavel
