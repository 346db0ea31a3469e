#include "runtime/checkpoint/snapshot.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/device/device_backend.h"
#include "runtime/device/torch_errors.h"

namespace gavel {
namespace {

// Takes the number before the next slash off `text`.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  const size_t slash = text->find('/');
  int64_t number = 0;
  if (slash == std::string_view::npos ||
      !absl::SimpleAtoi(ToAbsl(text->substr(0, slash)), &number) ||
      number < 0) {
    return std::nullopt;
  }
  text->remove_prefix(slash + 1);
  return number;
}

absl::Status CheckSize(std::string_view name, int64_t saved,
                       const OwnPart& wanted, size_t saved_parts) {
  if (saved == wanted.partition.size) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "tensor '", name, "' has ", saved, " elements in dimension ",
      wanted.partition.dim, " in the checkpoint (", saved_parts,
      saved_parts == 1 ? " worker" : " workers", "), and the parts of the ",
      wanted.world_size, " workers make ", wanted.partition.size,
      " here; make each part as torch.chunk does and give the whole size as "
      "gavel::Sharded::size, or use a number of workers that divides it"));
}

// The parts cover the whole, each element once.
absl::Status CheckParts(std::string_view name,
                        const std::vector<StoredPart>& parts) {
  int64_t end = 0;
  const Partition& partition = parts.front().partition;
  for (const StoredPart& part : parts) {
    const bool fits = part.partition == partition && part.begin == end &&
                      partition.dim < part.tensor.dim();
    if (!fits) break;
    end += part.tensor.size(partition.dim);
  }
  if (end == partition.size) return absl::OkStatus();
  return absl::DataLossError(StrCat("tensor '", name,
                                    "': a part is missing, or does not fit "
                                    "the others, from element ",
                                    end, " of ", partition.size, " on"));
}

at::Tensor Narrow(const at::Tensor& tensor, int64_t dim, PartRange range) {
  return tensor.narrow(dim, range.begin, range.size());
}

// Returns the elements in `range` along `dim` of the whole that `parts` make.
at::Tensor Assemble(const std::vector<StoredPart>& parts, int64_t dim,
                    PartRange range) {
  const int64_t cut = parts.front().partition.dim;
  std::vector<int64_t> sizes = parts.front().tensor.sizes().vec();
  sizes[static_cast<size_t>(cut)] = parts.front().partition.size;
  sizes[static_cast<size_t>(dim)] = range.size();
  const at::Tensor made = at::empty(sizes, parts.front().tensor.options());
  for (const StoredPart& part : parts) {
    PartRange there{part.begin, part.begin + part.tensor.size(cut)};
    if (dim != cut) {
      Narrow(made, cut, there).copy_(Narrow(part.tensor, dim, range));
      continue;
    }
    there = {std::max(there.begin, range.begin),
             std::min(there.end, range.end)};
    if (there.size() <= 0) continue;
    Narrow(made, cut, {there.begin - range.begin, there.end - range.begin})
        .copy_(Narrow(part.tensor, cut,
                      {there.begin - part.begin, there.end - part.begin}));
  }
  return made;
}

absl::StatusOr<at::Tensor> TakeOfParts(std::string_view name,
                                       const std::vector<StoredPart>& parts,
                                       const OwnPart* wanted) {
  GAVEL_RETURN_IF_ERROR(CheckParts(name, parts));
  const Partition& cut = parts.front().partition;
  if (wanted == nullptr) return Assemble(parts, cut.dim, {0, cut.size});
  const int64_t dim = wanted->partition.dim;
  const at::Tensor& first = parts.front().tensor;
  if (dim >= first.dim()) return first;  // its shape tells the caller
  GAVEL_RETURN_IF_ERROR(CheckSize(name,
                                  dim == cut.dim ? cut.size : first.size(dim),
                                  *wanted, parts.size()));
  const PartRange range = wanted->range();
  for (const StoredPart& part : parts) {
    if (dim == cut.dim && part.begin <= range.begin &&
        part.begin + part.tensor.size(dim) >= range.end) {
      return Narrow(part.tensor, dim,
                    {range.begin - part.begin, range.end - part.begin});
    }
  }
  return Assemble(parts, dim, range);
}

}  // namespace

PartRange RangeOfRank(const Partition& partition, int rank, int world_size) {
  const int64_t step = (partition.size + world_size - 1) / world_size;
  return {std::min(partition.size, step * rank),
          std::min(partition.size, step * (rank + 1))};
}

std::string PartEntryName(std::string_view name, const Partition& partition,
                          int64_t begin) {
  return StrCat(kPartPrefix, partition.dim, "/", begin, "/", partition.size,
                "/", name);
}

std::optional<PartEntry> ParsePartEntryName(std::string_view entry_name) {
  if (!entry_name.starts_with(kPartPrefix)) return std::nullopt;
  entry_name.remove_prefix(kPartPrefix.size());
  const std::optional<int64_t> dim = TakeNumber(&entry_name);
  const std::optional<int64_t> begin = TakeNumber(&entry_name);
  const std::optional<int64_t> size = TakeNumber(&entry_name);
  if (!dim || !begin || !size || entry_name.empty()) return std::nullopt;
  return PartEntry{std::string(entry_name), {*dim, *size}, *begin};
}

absl::StatusOr<at::Tensor> TakePart(std::string_view name,
                                    const at::Tensor* whole,
                                    const std::vector<StoredPart>* parts,
                                    const OwnPart* wanted) {
  const at::NoGradGuard no_grad;
  if (whole == nullptr) {
    if (parts == nullptr || parts->empty()) return at::Tensor();
    return TakeOfParts(name, *parts, wanted);
  }
  if (wanted == nullptr || wanted->partition.dim >= whole->dim()) return *whole;
  const int64_t dim = wanted->partition.dim;
  GAVEL_RETURN_IF_ERROR(CheckSize(name, whole->size(dim), *wanted, 1));
  return Narrow(*whole, dim, wanted->range());
}

namespace {

constexpr std::string_view kRankPrefix = "gavel/rank/";

absl::StatusOr<std::string> BytesOf(const std::string& name,
                                    const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 1) {
    return absl::DataLossError(
        StrCat("entry '", name, "' is not a row of bytes"));
  }
  at::Tensor host = tensor.contiguous();
  return std::string(static_cast<const char*>(host.const_data_ptr()),
                     host.nbytes());
}

absl::Status AddPart(NamedTensor entry, Snapshot* snapshot) {
  std::optional<PartEntry> part = ParsePartEntryName(entry.first);
  if (!part) {
    return absl::DataLossError(
        StrCat("entry '", entry.first, "' is not the name of a part"));
  }
  snapshot->parts[part->name].push_back(
      {part->partition, part->begin, std::move(entry.second)});
  return absl::OkStatus();
}

}  // namespace

const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name) {
  for (const auto& [candidate, tensor] : snapshot.tensors) {
    if (candidate == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<at::Tensor> FindPart(const Snapshot& snapshot,
                                    const std::string& name,
                                    const OwnPart* wanted) {
  const auto parts = snapshot.parts.find(name);
  return TakePart(name, FindTensor(snapshot, name),
                  parts == snapshot.parts.end() ? nullptr : &parts->second,
                  wanted);
}

std::string RankEntryPrefix(int rank) { return StrCat(kRankPrefix, rank, "/"); }

std::optional<int> RankOfEntry(std::string_view name) {
  int rank = 0;
  if (!name.starts_with(kRankPrefix)) return std::nullopt;
  name.remove_prefix(kRankPrefix.size());
  const std::string_view number = name.substr(0, name.find('/'));
  if (!absl::SimpleAtoi(ToAbsl(number), &rank) || rank < 0) return std::nullopt;
  return rank;
}

absl::StatusOr<Snapshot> FromTensors(std::vector<NamedTensor> tensors) {
  Snapshot snapshot;
  for (NamedTensor& entry : tensors) {
    std::string_view name = entry.first;
    if (name.starts_with(kPartPrefix)) {
      GAVEL_RETURN_IF_ERROR(AddPart(std::move(entry), &snapshot));
      continue;
    }
    if (!name.starts_with(kBytesPrefix)) {
      snapshot.tensors.push_back(std::move(entry));
      continue;
    }
    absl::StatusOr<std::string> bytes = BytesOf(entry.first, entry.second);
    if (!bytes.ok()) return bytes.status();
    name.remove_prefix(kBytesPrefix.size());
    snapshot.bytes.emplace(name, *std::move(bytes));
  }
  std::sort(snapshot.tensors.begin(), snapshot.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) {
              return a.first < b.first;
            });
  for (auto& [name, parts] : snapshot.parts) {
    std::sort(parts.begin(), parts.end(),
              [](const StoredPart& a, const StoredPart& b) {
                return a.begin < b.begin;
              });
  }
  return snapshot;
}

namespace {

using internal::CatchAsStatus;

absl::Status CheckDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  const int count = CountDevices(device.type());
  if (device.index() < count) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("random state of ", device.str(), ": this program sees ", count,
             " such devices; choose one of them"));
}

std::string Of(c10::Device device) {
  return StrCat("random state of ", device.str());
}

absl::Status NoGenerator() {
  return absl::InvalidArgumentError(
      "a random generator is undefined; make it before it is tracked");
}

absl::StatusOr<at::Generator> GeneratorOf(c10::Device device) {
  at::Generator generator;
  absl::Status status = CatchAsStatus(Of(device), [&] {
    GAVEL_RETURN_IF_ERROR(CheckDevice(device));
    generator = at::globalContext().defaultGenerator(device);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return generator;
}

std::string NameOf(c10::Device device, std::string_view prefix) {
  return StrCat(prefix, "/",
                c10::DeviceTypeName(device.type(), /*lower_case=*/true));
}

absl::Status RestoreOne(const Snapshot& snapshot, c10::Device device,
                        std::string_view prefix) {
  auto entry = snapshot.bytes.find(NameOf(device, prefix));
  if (entry == snapshot.bytes.end()) return absl::OkStatus();
  return SetRngState(device, entry->second);
}

absl::Status CollectOne(c10::Device device, std::string_view prefix,
                        Snapshot* snapshot) {
  GAVEL_ASSIGN_OR_RETURN(snapshot->bytes[NameOf(device, prefix)],
                         GetRngState(device));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> GetGeneratorState(at::Generator generator) {
  if (!generator.defined()) return NoGenerator();
  std::string state;
  absl::Status status = CatchAsStatus(Of(generator.device()), [&] {
    std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor bytes = generator.get_state();
    state.assign(static_cast<const char*>(bytes.const_data_ptr()),
                 bytes.nbytes());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return state;
}

absl::Status SetGeneratorState(at::Generator generator,
                               std::string_view state) {
  if (!generator.defined()) return NoGenerator();
  absl::Status status = CatchAsStatus(Of(generator.device()), [&] {
    at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())},
                                 at::device(at::kCPU).dtype(at::kByte));
    if (!state.empty()) {
      std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
    }
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(bytes);
    return absl::OkStatus();
  });
  // LibTorch throws on a state of the wrong size or content.
  if (absl::IsInternal(status)) {
    return absl::InvalidArgumentError(status.message());
  }
  return status;
}

absl::StatusOr<std::string> GetRngState(c10::Device device) {
  GAVEL_ASSIGN_OR_RETURN(const at::Generator generator, GeneratorOf(device));
  return GetGeneratorState(generator);
}

absl::Status SetRngState(c10::Device device, std::string_view state) {
  GAVEL_ASSIGN_OR_RETURN(const at::Generator generator, GeneratorOf(device));
  return SetGeneratorState(generator, state);
}

absl::Status CollectRngState(c10::Device device, std::string_view prefix,
                             Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(CollectOne(c10::Device(at::kCPU), prefix, snapshot));
  if (device.is_cpu()) return absl::OkStatus();
  return CollectOne(device, prefix, snapshot);
}

absl::Status RestoreRngState(const Snapshot& snapshot, c10::Device device,
                             std::string_view prefix) {
  if (!snapshot.bytes.contains(NameOf(c10::Device(at::kCPU), prefix))) {
    return absl::NotFoundError(
        StrCat("the checkpoint has no random states under '", prefix,
               "'; collect them under this name"));
  }
  GAVEL_RETURN_IF_ERROR(RestoreOne(snapshot, c10::Device(at::kCPU), prefix));
  if (device.is_cpu()) return absl::OkStatus();
  return RestoreOne(snapshot, device, prefix);
}

}  // namespace gavel
