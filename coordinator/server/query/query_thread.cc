#include "coordinator/server/query/query_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gavel {

QueryThread::QueryThread(std::function<void()> notify)
    : notify_(std::move(notify)), thread_([this] { Work(); }) {}

QueryThread::~QueryThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool QueryThread::Ask(std::string peer, std::string reader, Write write) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + answers_.size() >= kOfAllMax) return false;
    size_t& own = waiting_of_[reader];
    if (own >= kOfOneMax) return false;
    ++own;
    waiting_.push_back({std::move(peer), std::move(reader), std::move(write)});
  }
  changed_.notify_all();
  return true;
}

std::optional<QueryThread::Answer> QueryThread::TakeAnswer() {
  const std::lock_guard lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  Answer next = std::move(answers_.front());
  answers_.pop_front();
  return next;
}

void QueryThread::Work() {
  while (std::optional<Question> question = TakeQuestion()) {
    QueryReply reply = question->write();
    {
      const std::lock_guard lock(mutex_);
      bytes_.Spend(clock_.elapsed_s(), question->reader,
                   static_cast<double>(reply.json.size()));
      answers_.push_back({std::move(question->peer), std::move(reply)});
    }
    notify_();
  }
}

std::optional<QueryThread::Question> QueryThread::TakeQuestion() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopping_) return std::nullopt;
    const double now = clock_.elapsed_s();
    double wait_s = kNever;
    auto next = waiting_.begin();
    for (; next != waiting_.end(); ++next) {
      const double own_s = bytes_.WaitFor(now, next->reader);
      if (own_s <= 0) break;
      wait_s = std::min(wait_s, own_s);
    }
    if (next != waiting_.end()) {
      Question question = std::move(*next);
      waiting_.erase(next);
      const auto own = waiting_of_.find(question.reader);
      if (--own->second == 0) waiting_of_.erase(own);
      return question;
    }
    if (waiting_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(wait_s));
    }
  }
}

}  // namespace gavel
