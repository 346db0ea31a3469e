#include "tests/checkpoint/simulated_disk.h"

#include <cstring>
#include <set>

#include "core/text.h"

namespace gavel::testing {
namespace {

absl::Status Missing(const std::string& path) {
  return absl::NotFoundError(StrCat("no ", path));
}
absl::Status There(const std::string& path) {
  return absl::AlreadyExistsError(StrCat(path, " exists"));
}

}  // namespace

class SimulatedFile : public WritableFile, public ReadableFile {
 public:
  SimulatedFile(SimulatedDisk& disk, SimulatedDisk::NodePointer node)
      : disk_(disk), node_(std::move(node)) {}
  absl::Status Append(std::string_view data) override {
    node_->data.append(data);
    return absl::OkStatus();
  }
  absl::Status Truncate(uint64_t size_bytes) override {
    node_->data.resize(size_bytes);
    return absl::OkStatus();
  }
  absl::Status Sync() override { return disk_.SyncFile(*node_); }
  absl::Status Close() override { return absl::OkStatus(); }
  uint64_t size_bytes() const override { return node_->data.size(); }
  absl::Status Read(uint64_t offset, char* data, size_t size) override {
    if (offset + size > node_->data.size()) {
      return absl::OutOfRangeError("the file ends before");
    }
    if (size > 0) std::memcpy(data, node_->data.data() + offset, size);
    return absl::OkStatus();
  }

 private:
  SimulatedDisk& disk_;
  SimulatedDisk::NodePointer node_;
};

SimulatedDisk::SimulatedDisk() : root_(std::make_shared<Node>()) {
  root_->is_directory = true;
}

void SimulatedDisk::Crash(std::mt19937& random) { CrashNode(*root_, random); }

void SimulatedDisk::CrashNode(Node& node, std::mt19937& random) {
  if (!node.is_directory) return CrashFile(node, random);
  CrashNames(node, random);
  for (auto& [name, child] : node.names) CrashNode(*child, random);
}

void SimulatedDisk::CrashFile(Node& node, std::mt19937& random) {
  if (node.data == node.durable_data) return;
  size_t length = random() % (node.data.size() + 1);
  switch (random() % 4) {
    case 0:
      node.data = node.durable_data;
      break;
    case 1:
      node.data.resize(length);
      break;
    case 2:  // the length was written, the data behind `length` was not
      std::fill(node.data.begin() + static_cast<std::ptrdiff_t>(length),
                node.data.end(), '\0');
      break;
    default:
      break;
  }
  node.durable_data = node.data;
}

void SimulatedDisk::CrashNames(Node& node, std::mt19937& random) {
  std::set<std::string> all;
  for (const auto& [name, child] : node.names) all.insert(name);
  for (const auto& [name, child] : node.durable_names) all.insert(name);
  std::map<std::string, NodePointer> survivors;
  for (const std::string& name : all) {
    auto& chosen = random() % 2 == 0 ? node.names : node.durable_names;
    auto entry = chosen.find(name);
    if (entry != chosen.end()) survivors.insert(*entry);
  }
  node.names = node.durable_names = survivors;
}

absl::Status SimulatedDisk::SyncFile(Node& node) {
  if (node.sync_failed) synced_after_failure_ = true;
  if (fail_next_sync_) {
    fail_next_sync_ = false;
    node.sync_failed = true;
    // Marked clean and not written: lost for ever.
    node.durable_data = std::string(node.data.size(), '\0');
    return absl::UnknownError("simulated fsync failure");
  }
  if (!node.sync_failed) node.durable_data = node.data;
  return absl::OkStatus();
}

SimulatedDisk::NodePointer SimulatedDisk::Find(const std::string& path) const {
  NodePointer node = root_;
  for (size_t begin = 0; begin < path.size() && node != nullptr;) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty()) continue;
    auto entry = node->names.find(name);
    node = entry == node->names.end() ? nullptr : entry->second;
  }
  return node;
}

SimulatedDisk::NodePointer SimulatedDisk::FindParent(const std::string& path,
                                                     std::string* name) const {
  size_t slash = path.find_last_of('/');
  *name = path.substr(slash + 1);
  return Find(path.substr(0, slash));
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimulatedDisk::CreateFile(
    const std::string& path, FileAccess) {
  std::string name;
  NodePointer parent = FindParent(path, &name);
  if (parent == nullptr) return Missing(path);
  if (parent->names.contains(name)) return There(path);
  parent->names[name] = std::make_shared<Node>();
  return std::make_unique<SimulatedFile>(*this, parent->names[name]);
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimulatedDisk::AppendFile(
    const std::string& path) {
  NodePointer node = Find(path);
  if (node == nullptr || node->is_directory) return Missing(path);
  return std::make_unique<SimulatedFile>(*this, node);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> SimulatedDisk::OpenFile(
    const std::string& path, FileAccess) {
  NodePointer node = Find(path);
  if (node == nullptr || node->is_directory) return Missing(path);
  return std::make_unique<SimulatedFile>(*this, node);
}

absl::StatusOr<std::vector<DirectoryEntry>> SimulatedDisk::List(
    const std::string& path) {
  NodePointer node = Find(path);
  if (node == nullptr || !node->is_directory) return Missing(path);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : node->names) {
    entries.push_back({name, child->is_directory});
  }
  return entries;
}

absl::Status SimulatedDisk::CreateDirectory(const std::string& path) {
  std::string name;
  NodePointer parent = FindParent(path, &name);
  if (parent == nullptr) return Missing(path);
  if (parent->names.contains(name)) return There(path);
  parent->names[name] = std::make_shared<Node>();
  parent->names[name]->is_directory = true;
  return absl::OkStatus();
}

absl::Status SimulatedDisk::SyncDirectory(const std::string& path) {
  NodePointer node = Find(path);
  if (node == nullptr) return Missing(path);
  node->durable_names = node->names;
  return absl::OkStatus();
}

absl::Status SimulatedDisk::Rename(const std::string& from,
                                   const std::string& to) {
  std::string from_name, to_name;
  NodePointer from_parent = FindParent(from, &from_name);
  NodePointer to_parent = FindParent(to, &to_name);
  if (from_parent == nullptr || !from_parent->names.contains(from_name)) {
    return Missing(from);
  }
  to_parent->names[to_name] = from_parent->names[from_name];
  from_parent->names.erase(from_name);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::Link(const std::string& from,
                                 const std::string& to) {
  std::string name;
  NodePointer node = Find(from);
  NodePointer parent = FindParent(to, &name);
  if (node == nullptr || parent == nullptr) return Missing(from);
  if (parent->names.contains(name)) return There(to);
  if (refuse_links_) {
    return absl::PermissionDeniedError("this disk has no links");
  }
  parent->names[name] = node;
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveFile(const std::string& path) {
  std::string name;
  NodePointer parent = FindParent(path, &name);
  if (parent == nullptr || parent->names.erase(name) == 0) return Missing(path);
  return absl::OkStatus();
}

absl::Status SimulatedDisk::RemoveDirectory(const std::string& path) {
  NodePointer node = Find(path);
  if (node == nullptr) return Missing(path);
  if (!node->names.empty()) {
    return absl::FailedPreconditionError(StrCat(path, " is not empty"));
  }
  return RemoveFile(path);
}

}  // namespace gavel::testing
