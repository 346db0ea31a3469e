#include "coordinator/server/journal/history_thread.h"

#include <utility>

#include "coordinator/server/journal/history_tables.h"

namespace gavel {

HistoryThread::HistoryThread(std::string path, std::function<void()> notify)
    : path_(std::move(path)),
      notify_(std::move(notify)),
      thread_([this] { Work(); }) {}

HistoryThread::~HistoryThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool HistoryThread::Ask(std::string peer, const std::string& reader,
                        QueryRequest request) {
  {
    const std::lock_guard lock(mutex_);
    if (untaken_ >= kWaitingMax) return false;
    size_t& own = untaken_of_[reader];
    if (own >= kOfOneMax) return false;
    ++own;
    ++untaken_;
    waiting_.push_back({std::move(peer), reader, std::move(request)});
  }
  changed_.notify_all();
  return true;
}

std::optional<HistoryThread::Answer> HistoryThread::TakeAnswer() {
  const std::lock_guard lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  Answer next = std::move(answers_.front());
  answers_.pop_front();
  --untaken_;
  const auto own = untaken_of_.find(next.reader);
  if (--own->second == 0) untaken_of_.erase(own);
  return next;
}

void HistoryThread::Work() {
  while (std::optional<Question> question = TakeQuestion()) {
    QueryReply reply = AnswerHistory(question->request, path_);
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back({std::move(question->peer),
                          std::move(question->reader), std::move(reply)});
    }
    notify_();
  }
}

std::optional<HistoryThread::Question> HistoryThread::TakeQuestion() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
  if (stopping_) return std::nullopt;
  Question next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

}  // namespace gavel
