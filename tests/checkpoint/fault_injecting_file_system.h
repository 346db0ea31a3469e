// Passes calls on to another file system until the chosen one, which goes
// wrong. Every call that may fail is counted, from 1. Thread-safe: one call at
// a time, so that the other need not be.
#ifndef GAVEL_TESTS_CHECKPOINT_FAULT_INJECTING_FILE_SYSTEM_H_
#define GAVEL_TESTS_CHECKPOINT_FAULT_INJECTING_FILE_SYSTEM_H_

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "runtime/generation/file_system.h"

namespace gavel::testing {

class FaultInjectingFileSystem : public FileSystem {
 public:
  enum class Fault {
    kError,         // the call fails and does nothing
    kDoneAndError,  // the call works, but reports a failure
    kShortWrite,    // as kError; a write writes half
    kCrash,         // as kShortWrite, and all later calls fail without effect
  };

  explicit FaultInjectingFileSystem(FileSystem& base) : base_(base) {}

  void FailAt(int call, Fault fault, absl::Status error) {
    fail_at_ = call;
    fault_ = fault;
    error_ = std::move(error);
    calls_ = 0;
  }
  int calls() const { return calls_; }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(
      const std::string& path, FileAccess access) override {
    std::unique_ptr<WritableFile> file;
    GAVEL_RETURN_IF_ERROR(Do([&]() -> absl::Status {
      GAVEL_ASSIGN_OR_RETURN(file, base_.CreateFile(path, access));
      return absl::OkStatus();
    }));
    return std::make_unique<File>(*this, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> AppendFile(
      const std::string& path) override {
    std::unique_ptr<WritableFile> file;
    GAVEL_RETURN_IF_ERROR(Do([&]() -> absl::Status {
      GAVEL_ASSIGN_OR_RETURN(file, base_.AppendFile(path));
      return absl::OkStatus();
    }));
    return std::make_unique<File>(*this, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(
      const std::string& path, FileAccess access) override {
    std::unique_ptr<ReadableFile> file;
    GAVEL_RETURN_IF_ERROR(Do([&]() -> absl::Status {
      GAVEL_ASSIGN_OR_RETURN(file, base_.OpenFile(path, access));
      return absl::OkStatus();
    }));
    return file;
  }
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override {
    std::vector<DirectoryEntry> entries;
    GAVEL_RETURN_IF_ERROR(Do([&]() -> absl::Status {
      GAVEL_ASSIGN_OR_RETURN(entries, base_.List(path));
      return absl::OkStatus();
    }));
    return entries;
  }
  absl::Status CreateDirectory(const std::string& path) override {
    return Do([&] { return base_.CreateDirectory(path); });
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Do([&] { return base_.SyncDirectory(path); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Do([&] { return base_.Rename(from, to); });
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return Do([&] { return base_.Link(from, to); });
  }
  absl::Status RemoveFile(const std::string& path) override {
    return Do([&] { return base_.RemoveFile(path); });
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    return Do([&] { return base_.RemoveDirectory(path); });
  }

 private:
  class File : public WritableFile {
   public:
    File(FaultInjectingFileSystem& owner, std::unique_ptr<WritableFile> base)
        : owner_(owner), base_(std::move(base)) {}
    absl::Status Append(std::string_view data) override {
      return owner_.Do(
          [&] { return base_->Append(data); },
          [&] { return base_->Append(data.substr(0, data.size() / 2)); });
    }
    absl::Status Truncate(uint64_t size_bytes) override {
      return owner_.Do([&] { return base_->Truncate(size_bytes); });
    }
    absl::Status Sync() override {
      return owner_.Do([&] { return base_->Sync(); });
    }
    absl::Status Close() override {
      return owner_.Do([&] { return base_->Close(); });
    }

   private:
    FaultInjectingFileSystem& owner_;
    std::unique_ptr<WritableFile> base_;
  };

  template <class Call>
  absl::Status Do(Call call) {
    return Do(call, [] { return absl::OkStatus(); });
  }
  template <class Call, class Half>
  absl::Status Do(Call call, Half half) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    ++calls_;
    bool crashed = fault_ == Fault::kCrash && calls_ > fail_at_;
    if (fail_at_ == 0 || (calls_ != fail_at_ && !crashed)) return call();
    if (crashed) return error_;
    if (fault_ == Fault::kDoneAndError) call().IgnoreError();
    if (fault_ == Fault::kShortWrite || fault_ == Fault::kCrash) {
      half().IgnoreError();
    }
    return error_;
  }

  FileSystem& base_;
  std::recursive_mutex mutex_;  // a test's Rename calls another
  int calls_ = 0;
  int fail_at_ = 0;
  Fault fault_ = Fault::kError;
  absl::Status error_;
};

// Makes no folder of a generation before Open().
class ClosedFileSystem : public FaultInjectingFileSystem {
 public:
  ClosedFileSystem() : FaultInjectingFileSystem(FileSystem::Posix()) {}
  void Open() { open_.set_value(); }
  absl::Status CreateDirectory(const std::string& path) override {
    if (path.find("/generation-") != std::string::npos) wait_.wait();
    return FaultInjectingFileSystem::CreateDirectory(path);
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> wait_ = open_.get_future().share();
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_CHECKPOINT_FAULT_INJECTING_FILE_SYSTEM_H_
