#include "iterator/tracked_item.h"

#include <ATen/core/Generator.h>

#include <cstring>

#include "core/status.h"
#include "core/text.h"
#include "iterator/tensor_entry.h"
#include "runtime/checkpoint/rng_state.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// `load` may throw, or return what is wrong.
class BytesItem final : public TrackedItem {
 public:
  using Save = std::function<absl::StatusOr<std::string>()>;
  using Load = std::function<absl::Status(const std::string&)>;
  BytesItem(std::string name, std::string kind, const void* object, Save save,
            Load load)
      : TrackedItem(std::move(name)),
        kind_(std::move(kind)),
        object_(object),
        save_(std::move(save)),
        load_(std::move(load)) {}

  std::string kind() const override { return kind_; }
  const void* object() const override { return object_; }

  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving '", name(), "'"), [&] {
      GAVEL_ASSIGN_OR_RETURN(snapshot->bytes[name()], save_());
      return absl::OkStatus();
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    const auto found = snapshot.bytes.find(name());
    if (found == snapshot.bytes.end()) {
      return absl::DataLossError(
          StrCat("the checkpoint lost its entry '", name(), "'"));
    }
    return CatchAsStatus(StrCat("loading '", name(), "'"),
                         [&] { return load_(found->second); });
  }

 private:
  std::string kind_;
  const void* object_;
  Save save_;
  Load load_;
};

}  // namespace

std::optional<OwnPart> TrackedItem::PartOf(const at::Tensor& tensor) const {
  if (partitions_ == nullptr || !tensor.defined()) return std::nullopt;
  if (auto marked = partitions_->Find(tensor)) return marked;
  return sharded_ ? partitions_->Of(tensor, *sharded_) : std::nullopt;
}

absl::StatusOr<std::optional<std::vector<NamedTensor>>> TrackedItem::Places() {
  return std::nullopt;
}

absl::Status TrackedItem::RestoreAt(const Snapshot& snapshot,
                                    const std::string& entry,
                                    at::Tensor& tensor) {
  if (rules_.partial && tensor.defined() && !HasTensor(snapshot, entry)) {
    AddNote(StrCat("the checkpoint has no tensor '", entry,
                   "', which stays as the program made it"));
    return absl::OkStatus();
  }
  return RestoreTensor(snapshot, entry, PartOf(tensor), tensor);
}

absl::StatusOr<std::vector<at::Tensor>> TrackedItem::Tensors() {
  return std::vector<at::Tensor>();
}

absl::Status TrackedItem::Moved(at::Device) { return absl::OkStatus(); }

std::unique_ptr<TrackedItem> TrackText(std::string name, std::string& text) {
  return std::make_unique<BytesItem>(
      std::move(name), "text", &text, [&text] { return text; },
      [&text](const std::string& bytes) {
        text = bytes;
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackNumber(std::string name,
                                         std::string_view kind, void* number,
                                         size_t size) {
  // With both, a checkpoint with another type is refused.
  return std::make_unique<BytesItem>(
      std::move(name), StrCat(kind, " number of ", size, " bytes"), number,
      [number, size] {
        return std::string(static_cast<const char*>(number), size);
      },
      [number, size](const std::string& bytes) {
        if (bytes.size() == size) std::memcpy(number, bytes.data(), size);
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackBytes(
    std::string name, std::function<std::string()> save,
    std::function<void(const std::string&)> load) {
  return std::make_unique<BytesItem>(
      std::move(name), "bytes", nullptr, std::move(save),
      [load = std::move(load)](const std::string& bytes) {
        load(bytes);
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackEngine(
    std::string name, std::function<std::string()> save,
    std::function<bool(const std::string&)> load) {
  const std::string wrong =
      StrCat("random engine '", name,
             "' is of another type in the checkpoint; restore with the type "
             "that wrote it, or give it another name");
  return std::make_unique<BytesItem>(
      std::move(name), "random engine", nullptr, std::move(save),
      [load = std::move(load), wrong](const std::string& text) {
        return load(text) ? absl::OkStatus()
                          : absl::FailedPreconditionError(wrong);
      });
}

std::unique_ptr<TrackedItem> TrackGenerator(std::string name,
                                            const at::Generator& generator) {
  const std::string kind =
      generator.defined() ? StrCat("generator on ", generator.device().str())
                          : "undefined generator";
  return std::make_unique<BytesItem>(
      std::move(name), kind, generator.unsafeGetGeneratorImpl(),
      [generator] { return GetGeneratorState(generator); },
      [generator](const std::string& state) {
        return SetGeneratorState(generator, state);
      });
}

}  // namespace gavel::internal
