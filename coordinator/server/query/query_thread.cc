#include "coordinator/server/query/query_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gavel {

QueryThread::QueryThread(const Limits& limits, std::function<void()> notify)
    : limits_(limits),
      notify_(std::move(notify)),
      bytes_(limits.bytes_per_s),
      thread_([this] { Work(); }) {}

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
    if (untaken_ >= limits_.of_all_max) return false;
    size_t& own = untaken_of_[reader];
    if (own >= limits_.of_one_max) return false;
    ++own;
    ++untaken_;
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
  --untaken_;
  const auto own = untaken_of_.find(next.reader);
  if (--own->second == 0) untaken_of_.erase(own);
  return next;
}

void QueryThread::Work() {
  while (std::optional<Question> question = TakeQuestion()) {
    QueryReply reply = question->write();
    {
      const std::lock_guard lock(mutex_);
      bytes_.Spend(clock_.elapsed_s(), question->reader,
                   static_cast<double>(reply.json.size()));
      answers_.push_back({std::move(question->peer),
                          std::move(question->reader), std::move(reply)});
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
