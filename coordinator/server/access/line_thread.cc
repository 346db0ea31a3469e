#include "coordinator/server/access/line_thread.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <utility>

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

}  // namespace

LineThread::LineThread(Write write)
    : write_(std::move(write)),
      thread_([this](const std::stop_token& stop) { Work(stop); }) {}

LineThread::~LineThread() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(kFarewell_s),
                      [this] { return lines_.empty(); });
  }
  thread_.request_stop();
  thread_.join();
}

bool LineThread::Append(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ + line.size() > kQueuedBytesMax) {
      ++lost_;
      return false;
    }
    bytes_ += line.size();
    lines_.push_back(std::move(line));
  }
  changed_.notify_all();
  return true;
}

uint64_t LineThread::TakeLost() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lost_, 0);
}

void LineThread::Work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !lines_.empty(); })) {
    if (stop.stop_requested()) return;
    const std::string& line = lines_.front();
    lock.unlock();
    const bool written = write_(line, stop);
    lock.lock();
    lost_ += written ? 0 : 1;
    bytes_ -= line.size();
    lines_.pop_front();
    changed_.notify_all();
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

}  // namespace gavel
