#include "coordinator/server/audit_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

constexpr int kPollInterval_ms = 100;

// A pipe that is ready takes so much without waiting.
constexpr size_t kPieceBytes = PIPE_BUF;

bool WaitForRoom(int descriptor, const std::stop_token& stop) {
  pollfd item = {descriptor, POLLOUT, 0};
  while (!stop.stop_requested()) {
    if (poll(&item, 1, kPollInterval_ms) > 0) return true;
  }
  return false;
}

// Looked for by a reader, which does not know the writer's limits.
constexpr int kOldFilesMax = 1000;

std::string OldName(const std::string& path, int age) {
  return age == 0 ? path : StrCat(path, ".", age);
}

absl::StatusOr<Descriptor> OpenToAppend(const std::string& path) {
  Descriptor file(open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                       0600));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, ToAbsl(path));
  return file;
}

constexpr double kAuditMinute_s = 60;

std::string TimeText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

LineThread::LineThread(Write write)
    : write_(std::move(write)),
      thread_(AtEnd::kDrop, [this](auto lines, const std::stop_token& stop) {
        Work(lines, stop);
        return kNever;
      }) {}

LineThread::~LineThread() { thread_.WaitUntilIdle(kFarewell_s); }

bool LineThread::Append(std::string line) {
  const size_t size = line.size();
  if (bytes_.fetch_add(size) + size > kQueuedBytesMax) {
    bytes_ -= size;
    ++lost_;
    return false;
  }
  thread_.Post(std::move(line));
  return true;
}

void LineThread::Work(const std::vector<std::string>& lines,
                      const std::stop_token& stop) {
  for (const std::string& line : lines) {
    if (stop.stop_requested()) return;
    if (!write_(line, stop)) ++lost_;
    bytes_ -= line.size();
  }
}

LineThread::Write WriteTo(int descriptor) {
  return [descriptor](std::string_view line, const std::stop_token& stop) {
    while (!line.empty()) {
      if (!WaitForRoom(descriptor, stop)) return false;
      const ssize_t written =
          write(descriptor, line.data(), std::min(line.size(), kPieceBytes));
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written <= 0) return false;
      line.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  };
}

absl::StatusOr<RotatingFile> RotatingFile::Open(const std::string& path,
                                                const RotationLimits& limits) {
  GAVEL_ASSIGN_OR_RETURN(Descriptor file, OpenToAppend(path));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return RotatingFile(path, limits, std::move(file),
                      static_cast<uint64_t>(info.st_size));
}

bool RotatingFile::Append(std::string_view line) {
  if (size_ > 0 && size_ + line.size() > limits_.file_bytes) Rotate();
  const ssize_t written = write(file_.get(), line.data(), line.size());
  size_ += static_cast<uint64_t>(std::max<ssize_t>(written, 0));
  return written == static_cast<ssize_t>(line.size());
}

// A file that can't be renamed stays in use.
void RotatingFile::Rotate() {
  for (int age = limits_.old_files - 1; age >= 0; --age) {
    std::rename(OldName(path_, age).c_str(), OldName(path_, age + 1).c_str());
  }
  absl::StatusOr<RotatingFile> next = Open(path_, limits_);
  if (next.ok()) *this = *std::move(next);
}

std::vector<std::string> RotatedFiles(const std::string& path) {
  std::vector<std::string> paths;
  for (int age = 0; age < kOldFilesMax; ++age) {
    const std::string name = OldName(path, age);
    if (access(name.c_str(), F_OK) == 0) {
      paths.push_back(name);
    } else if (age > 0) {
      break;
    }
  }
  std::ranges::reverse(paths);
  return paths;
}

absl::StatusOr<AuditLog> AuditLog::Open(const std::string& path) {
  absl::StatusOr<RotatingFile> file = RotatingFile::Open(path);
  if (!file.ok()) return Annotate(file.status(), "audit log");
  return AuditLog(*std::move(file));
}

AuditLog::AuditLog(RotatingFile file)
    : lines_(std::make_unique<LineThread>(
          [file = std::make_shared<RotatingFile>(std::move(file))](
              std::string_view line, const std::stop_token&) {
            return file->Append(line);
          })) {}

void AuditLog::Refusal(Time now, const AuditEntry& entry) {
  if (now - minute_started_ >= kAuditMinute_s) {
    minute_started_ = now;
    refusals_.clear();
    refusals_written_ = 0;
  }
  const bool known = refusals_.contains(entry.who);
  if (!known && refusals_.size() >= kKeysPerMinuteMax) {
    ++left_out_;
    return;
  }
  const int refusals = ++refusals_[entry.who];
  if (refusals > kRefusalsPerMinuteMax ||
      (refusals > 1 && refusals_written_ >= kRefusalsPerMinuteOfAllMax)) {
    ++left_out_;
    return;
  }
  ++refusals_written_;
  Write(entry);
}

void AuditLog::Write(const AuditEntry& entry) {
  nlohmann::ordered_json line = {
      {"time", TimeText()},     {"who", entry.who},
      {"role", entry.role},     {"from", entry.from},
      {"action", entry.action}, {"object", entry.object},
      {"result", entry.result},
  };
  left_out_ += lines_->TakeLost();
  if (left_out_ > 0) line["left_out"] = left_out_;
  std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true,
                nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  // The count is reset once its line is queued. If the queue is lost, so is the
  // count.
  if (lines_->Append(std::move(text))) left_out_ = 0;
}

}  // namespace gavel
