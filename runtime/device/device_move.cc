#include "runtime/device/device_move.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/device/device_backend.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/torch_errors.h"

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

namespace {

using internal::CatchAsStatus;

// In what CUDA says of a device that only one process may use.
constexpr char kBusy[] = "busy";

struct Kind {
  std::string_view name;
  c10::DeviceType type;
};
constexpr Kind kKinds[] = {
    {"cuda", c10::kCUDA}, {"xpu", c10::kXPU}, {"hpu", c10::kHPU}};

// Returns `tensors` and their gradients, without repetition and, unless all are
// to be copied, without those that are on the device already.
std::vector<at::Tensor> TensorsToMove(const std::vector<at::Tensor>& tensors,
                                      c10::Device device, MoveCopy move_copy) {
  std::vector<at::Tensor> result;
  std::set<c10::TensorImpl*> seen;
  auto add = [&](const at::Tensor& tensor) {
    bool needed = tensor.defined() &&
                  (move_copy == MoveCopy::kAlways || tensor.device() != device);
    if (needed && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.push_back(tensor);
    }
  };
  for (const at::Tensor& tensor : tensors) {
    add(tensor);
    // Only leaves have one of their own; asking others makes LibTorch warn.
    if (tensor.defined() && tensor.is_leaf()) add(tensor.grad());
  }
  return result;
}

// Makes the tensors' copies on a device: first their shapes, then, all
// together, memory and bytes. Memory that several of them share is copied once.
class Copier {
 public:
  Copier(const std::vector<at::Tensor>& tensors, c10::Device device,
         Arena* arena)
      : device_(device), arena_(arena) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.has_storage()) ++users_[StorageOf(tensor)];
    }
  }

  // Its bytes are there after Run(); of a sparse one, use Sparse() then.
  at::Tensor Copy(const at::Tensor& tensor) {
    const at::Tensor source = tensor.detach();
    if (source.layout() == at::kSparse) {
      sparse_[tensor.unsafeGetTensorImpl()] = {CopyDense(source._indices()),
                                               CopyDense(source._values())};
      return {};
    }
    if (!source.has_storage() || source.layout() != at::kStrided) {
      return source.to(source.options().device(device_), /*non_blocking=*/false,
                       /*copy=*/true);
    }
    if (users_[StorageOf(tensor)] == 1) return CopyDense(source);
    at::Tensor copy = at::empty({0}, source.options().device(device_));
    return copy.set_(CopyStorage(source), source.storage_offset(),
                     source.sizes(), source.strides());
  }

  absl::Status Run() {
    GAVEL_RETURN_IF_ERROR(GiveHostMemory());
    std::map<c10::Device, DeviceCopies, DeviceOrder> copies;
    for (const auto& [from, to] : rows_) {
      if (from.is_cpu() == to.is_cpu()) {  // on one device, or between two
        to.copy_(from, /*non_blocking=*/true);
        continue;
      }
      const at::Tensor& there = from.is_cpu() ? to : from;
      const at::Tensor& here = from.is_cpu() ? from : to;
      const auto direction = from.is_cpu() ? DeviceCopies::Direction::kFromHost
                                           : DeviceCopies::Direction::kToHost;
      copies.try_emplace(there.device(), there.device(), direction, arena_)
          .first->second.Add(there, static_cast<char*>(here.data_ptr()));
    }
    for (auto& [device, one] : copies) one.Run();
    return absl::OkStatus();
  }

  at::Tensor Sparse(const at::Tensor& tensor) const {
    const auto& [indices, values] = sparse_.at(tensor.unsafeGetTensorImpl());
    return at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes(),
                                         tensor.options().device(device_),
                                         tensor.is_coalesced());
  }

 private:
  struct DeviceOrder {
    bool operator()(c10::Device a, c10::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };
  struct Row {
    at::Tensor from, to;
  };

  static c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }

  // A tensor with gaps, or one that reads as negated, is made plain on its
  // device.
  at::Tensor CopyDense(const at::Tensor& tensor) {
    const bool is_plain = tensor.is_non_overlapping_and_dense() &&
                          !tensor.is_neg() && !tensor.is_conj();
    const at::TensorOptions options = tensor.options().device(device_);
    at::Tensor copy;
    if (IsToHost(tensor)) {
      copy = at::empty({0}, options);
    } else if (is_plain) {
      copy = at::empty_strided(tensor.sizes(), tensor.strides(), options);
    } else {
      copy = at::empty(tensor.sizes(), options);
    }
    const at::Tensor source =
        is_plain ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
    if (IsToHost(tensor)) {
      copy.set_(LaterOnHost(source.nbytes()), 0, source.sizes(),
                source.strides());
    }
    rows_.push_back({source, copy});
    return copy;
  }

  c10::Storage CopyStorage(const at::Tensor& source) {
    auto [entry, is_new] = storages_.try_emplace(StorageOf(source));
    if (is_new) {
      const int64_t size = static_cast<int64_t>(source.storage().nbytes());
      at::Tensor bytes = at::empty({0}, source.options().dtype(at::kByte));
      bytes.set_(source.storage(), 0, {size}, {1});
      entry->second = CopyDense(bytes);
    }
    return entry->second.storage();
  }

  bool IsToHost(const at::Tensor& source) const {
    return device_.is_cpu() && !source.is_cpu() && arena_ != nullptr;
  }

  // A storage of that size, which gets its memory in GiveHostMemory().
  static c10::Storage LaterOnHost(size_t size_bytes) {
    return c10::Storage(c10::Storage::use_byte_size_t(), size_bytes,
                        at::DataPtr(nullptr, at::Device(at::kCPU)),
                        c10::GetCPUAllocator(), /*resizable=*/true);
  }

  // One block for all that leaves for host memory, without gaps, so that small
  // tensors are copied together. The largest elements come first: each is
  // aligned.
  absl::Status GiveHostMemory() {
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const Row& a, const Row& b) {
                       return a.from.itemsize() > b.from.itemsize();
                     });
    uint64_t size = 0;
    for (const Row& row : rows_) {
      if (IsToHost(row.from)) size += row.from.nbytes();
    }
    if (size == 0) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(const std::shared_ptr<ArenaBlock> block,
                           arena_->Take(size));
    uint64_t offset = 0;
    for (const Row& row : rows_) {
      if (!IsToHost(row.from)) continue;
      StorageOf(row.to)->set_data_ptr_noswap(
          c10::InefficientStdFunctionContext::makeDataPtr(
              block->data() + offset, [block](void*) {}, at::Device(at::kCPU)));
      offset += row.from.nbytes();
    }
    return absl::OkStatus();
  }

  const c10::Device device_;
  Arena* const arena_;
  std::map<c10::StorageImpl*, int> users_;
  std::map<c10::StorageImpl*, at::Tensor> storages_;
  std::map<c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> sparse_;
  std::vector<Row> rows_;
};

// The first part may fail for want of memory, the second only exchanges
// pointers: so all tensors move or none.
absl::Status Move(const std::vector<at::Tensor>& tensors, c10::Device device,
                  MoveCopy move_copy, Arena* arena) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> moving = TensorsToMove(tensors, device, move_copy);
  Copier copier(moving, device, arena);
  std::vector<at::Tensor> copies;
  copies.reserve(moving.size());
  for (const at::Tensor& tensor : moving) copies.push_back(copier.Copy(tensor));
  GAVEL_RETURN_IF_ERROR(copier.Run());
  for (size_t i = 0; i < moving.size(); ++i) {
    moving[i].set_data(copies[i].defined() ? copies[i]
                                           : copier.Sparse(moving[i]));
  }
  return absl::OkStatus();
}

std::string Moving(std::string_view what, c10::Device device) {
  return StrCat("moving ", what, " to ", device.str());
}

absl::Status NoSuchDevice(std::string_view text, const Kind& kind, int count) {
  if (count > 0) {
    return absl::FailedPreconditionError(StrCat(
        "device '", text, "': this program sees ", count, " of ", kind.name,
        "; choose ", kind.name, ":0 to ", kind.name, ":", count - 1));
  }
  return absl::FailedPreconditionError(StrCat(
      "device '", text, "' can't be used: ", BackendOf(kind.type).WhyNone()));
}

// Null: not KIND:N.
const Kind* FindKind(std::string_view text, int* index) {
  for (const Kind& kind : kKinds) {
    if (!text.starts_with(StrCat(kind.name, ":"))) continue;
    const std::string_view number = text.substr(kind.name.size() + 1);
    const bool is_number = absl::SimpleAtoi(ToAbsl(number), index) &&
                           StrCat(*index) == number && *index >= 0;
    return is_number ? &kind : nullptr;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<c10::Device> ParseDevice(std::string_view text) {
  if (text == "cpu") return c10::Device(c10::kCPU);
  int index = -1;
  const Kind* const kind = FindKind(text, &index);
  if (kind == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("device '", text,
               "' is not \"cpu\" or KIND:N, with KIND cuda, xpu or hpu"));
  }
  int count = 0;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("counting devices", [&] {
    count = CountDevices(kind->type);
    return absl::OkStatus();
  }));
  if (index >= count) return NoSuchDevice(text, *kind, count);
  return c10::Device(kind->type, static_cast<c10::DeviceIndex>(index));
}

std::string DefaultDevice(int local_rank) {
  for (const Kind& kind : kKinds) {
    if (CountDevices(kind.type) > 0) return StrCat(kind.name, ":", local_rank);
  }
  return "cpu";
}

absl::Status ChooseDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  absl::Status status =
      CatchAsStatus(StrCat("choosing ", device.str()), [device] {
        c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
        at::globalContext().lazyInitDevice(device.type());
        return absl::OkStatus();
      });
  if (!absl::IsInternal(status) ||
      !absl::StrContains(status.message(), kBusy)) {
    return status;
  }
  return absl::UnavailableError(
      StrCat(device.str(),
             " is in exclusive-process mode, and another process uses it; "
             "take it out of this mode (nvidia-smi --compute-mode=0): ",
             status.message()));
}

absl::Status MoveTensors(const std::vector<at::Tensor>& tensors,
                         c10::Device device, MoveCopy copy, Arena* arena) {
  return CatchAsStatus(Moving("tensors", device),
                       [&] { return Move(tensors, device, copy, arena); });
}

std::vector<at::Tensor> ModuleTensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  std::vector<at::Tensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

absl::Status MoveModule(torch::nn::Module& module, c10::Device device) {
  return CatchAsStatus(Moving(module.name(), device), [&] {
    GAVEL_RETURN_IF_ERROR(
        Move(ModuleTensors(module), device, MoveCopy::kIfNeeded, nullptr));
    module.to(device);
    return absl::OkStatus();
  });
}

absl::Status Synchronize(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("synchronizing ", device.str()), [device] {
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
    return absl::OkStatus();
  });
}

absl::Status ReleaseMemory(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("releasing memory of ", device.str()), [device] {
    const c10::DeviceGuard guard(device);
    // A copy between devices may still read freed memory.
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
    BackendOf(device.type()).ReleaseWorkspaces(device);
    c10::getDeviceAllocator(device.type())->emptyCache();
    return absl::OkStatus();
  });
}

DeviceMemory ReadDeviceMemory(c10::Device device) {
  DeviceMemory memory;
  if (device.is_cpu()) return memory;
  CatchAsStatus(StrCat("reading memory of ", device.str()), [&] {
    c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
    const auto [free, total] = allocator.getMemoryInfo(device.index());
    memory = {free, total};
    return absl::OkStatus();
  }).IgnoreError();
  return memory;
}

absl::Status CheckDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  absl::Status status =
      CatchAsStatus(StrCat("checking ", device.str()), [device] {
        constexpr int64_t kBytes = 256;
        const at::Tensor there =
            at::full({kBytes}, 1, at::device(device).dtype(at::kByte));
        if (there.sum().item<int64_t>() == kBytes) return absl::OkStatus();
        return absl::InternalError("it does not add up");
      });
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

absl::Status LimitMemory(c10::Device device, uint64_t bytes) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchAsStatus(StrCat("limiting memory of ", device.str()), [&] {
    at::globalContext().lazyInitDevice(device.type());
    BackendOf(device.type()).LimitMemory(device, bytes);
    return absl::OkStatus();
  });
}

}  // namespace gavel
