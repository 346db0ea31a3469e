#include "coordinator/server/commit_thread.h"

#include <utility>

namespace gavel {

CommitThread::CommitThread(std::unique_ptr<Journal> journal,
                           std::function<void()> notify)
    : journal_(std::move(journal)), notify_(std::move(notify)) {
  state_.persisted_seq = journal_->position().seq;
  thread_ = std::thread([this] { Work(); });
}

CommitThread::~CommitThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommitThread::Append(JournalRow row) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return queue_.size() < kQueuedRowsMax || !state_.status.ok();
  });
  if (!state_.status.ok()) return;
  queue_.push_back(std::move(row));
  lock.unlock();
  changed_.notify_all();
}

CommitThread::State CommitThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void CommitThread::Work() {
  while (true) {
    const std::vector<JournalRow> rows = TakeQueue();
    if (rows.empty()) return;
    Finish(journal_->Append(rows), rows.back().seq);
    notify_();
  }
}

std::vector<JournalRow> CommitThread::TakeQueue() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !queue_.empty() || stopping_; });
  std::vector<JournalRow> rows = std::exchange(queue_, {});
  lock.unlock();
  changed_.notify_all();  // there is room
  return rows;
}

void CommitThread::Finish(const absl::Status& status, uint64_t last_seq) {
  const std::lock_guard lock(mutex_);
  state_.status = status;
  if (status.ok()) {
    state_.persisted_seq = last_seq;
  } else {
    queue_.clear();
    changed_.notify_all();
  }
}

}  // namespace gavel
