#include "coordinator/server/journal/commit_thread.h"

#include <iterator>
#include <utility>

#include "core/text.h"

namespace gavel {

CommitThread::CommitThread(std::unique_ptr<Journal> journal,
                           std::function<void()> notify)
    : journal_(std::move(journal)), notify_(std::move(notify)) {
  state_.persisted_seq = journal_->position().seq;
  state_.end = journal_->end();
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void CommitThread::Append(JournalRow row, std::vector<HistoryRow> history) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return queue_.rows.size() < kQueuedRowsMax || !state_.status.ok();
  });
  if (!state_.status.ok()) return;
  queue_.rows.push_back(std::move(row));
  queue_.history.insert(queue_.history.end(),
                        std::make_move_iterator(history.begin()),
                        std::make_move_iterator(history.end()));
  lock.unlock();
  changed_.notify_all();
}

void CommitThread::Snapshot(JournalSnapshot snapshot) {
  {
    const std::lock_guard lock(mutex_);
    if (!state_.status.ok()) return;
    queue_.snapshot = std::move(snapshot);
  }
  changed_.notify_all();
}

std::vector<std::string> CommitThread::State::Troubles() const {
  std::vector<std::string> troubles;
  if (!maintenance.ok()) {
    troubles.push_back(
        StrCat(maintenance.message(),
               "; no snapshot was written, the next start takes longer"));
  }
  if (!damage.ok()) troubles.emplace_back(damage.message());
  return troubles;
}

CommitThread::State CommitThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void CommitThread::Run(const std::stop_token& stop) {
  // After a failure Append says so.
  journal_->ReserveWal().IgnoreError();
  bool more = true;  // an earlier coordinator may have left something
  Work work;
  while (TakeWork(stop, more, &work)) {
    if (work.snapshot) journal_->StartSnapshot(*std::move(work.snapshot));
    if (!work.rows.empty()) {
      Finish(journal_->Append(work.rows, work.history), work.rows.back().seq);
      notify_();
    }
    more = Maintain();
  }
}

bool CommitThread::TakeWork(const std::stop_token& stop, bool at_once,
                            Work* work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] {
    return at_once || !queue_.rows.empty() || queue_.snapshot;
  });
  if (stop.stop_requested() && queue_.rows.empty()) return false;
  *work = std::exchange(queue_, {});
  lock.unlock();
  changed_.notify_all();  // there is room
  return true;
}

// True: there is more to do.
bool CommitThread::Maintain() {
  const absl::StatusOr<bool> more = journal_->Maintain();
  if (more.ok()) return *more || Verify();
  {
    const std::lock_guard lock(mutex_);
    if (absl::IsResourceExhausted(more.status())) {
      state_.maintenance = more.status();
    } else if (state_.status.ok()) {
      state_.status = more.status();
    }
  }
  notify_();
  return false;
}

// True: there is more to do.
bool CommitThread::Verify() {
  const absl::StatusOr<bool> more = journal_->VerifySome();
  if (more.ok()) return *more;
  {
    const std::lock_guard lock(mutex_);
    state_.damage = more.status();
  }
  notify_();
  return false;
}

void CommitThread::Finish(const absl::Status& status, uint64_t last_seq) {
  const std::lock_guard lock(mutex_);
  state_.status = status;
  if (status.ok()) {
    state_.persisted_seq = last_seq;
    state_.end = journal_->end();
  } else {
    queue_ = {};
    changed_.notify_all();
  }
}

}  // namespace gavel
