#include "iterator/tracked_item.h"

#include <cstring>

#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

class BytesItem final : public TrackedItem {
 public:
  BytesItem(std::string name, std::string kind,
            std::function<std::string()> save,
            std::function<void(const std::string&)> load)
      : TrackedItem(std::move(name)),
        kind_(std::move(kind)),
        save_(std::move(save)),
        load_(std::move(load)) {}

  std::string kind() const override { return kind_; }

  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving '", name(), "'"), [&] {
      snapshot->bytes[name()] = save_();
      return absl::OkStatus();
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    const auto found = snapshot.bytes.find(name());
    if (found == snapshot.bytes.end()) {
      return absl::DataLossError(
          StrCat("the checkpoint lost its entry '", name(), "'"));
    }
    return CatchAsStatus(StrCat("loading '", name(), "'"), [&] {
      load_(found->second);
      return absl::OkStatus();
    });
  }

 private:
  std::string kind_;
  std::function<std::string()> save_;
  std::function<void(const std::string&)> load_;
};

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> TrackedItem::Tensors() {
  return std::vector<at::Tensor>();
}

absl::Status TrackedItem::Moved(at::Device) { return absl::OkStatus(); }

std::unique_ptr<TrackedItem> TrackText(std::string name, std::string& text) {
  return std::make_unique<BytesItem>(
      std::move(name), "text", [&text] { return text; },
      [&text](const std::string& bytes) { text = bytes; });
}

std::unique_ptr<TrackedItem> TrackNumber(std::string name, void* number,
                                         size_t size) {
  // The kind has the size, so a checkpoint with another type is refused.
  return std::make_unique<BytesItem>(
      std::move(name), StrCat("number of ", size, " bytes"),
      [number, size] {
        return std::string(static_cast<const char*>(number), size);
      },
      [number, size](const std::string& bytes) {
        if (bytes.size() == size) std::memcpy(number, bytes.data(), size);
      });
}

std::unique_ptr<TrackedItem> TrackBytes(
    std::string name, std::function<std::string()> save,
    std::function<void(const std::string&)> load) {
  return std::make_unique<BytesItem>(std::move(name), "bytes", std::move(save),
                                     std::move(load));
}

}  // namespace gavel::internal
