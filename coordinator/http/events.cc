#include "coordinator/http/events.h"

#include <chrono>
#include <utility>

#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

// The clock goes on without any news.
std::string WithoutClock(const std::string& status) {
  auto json = nlohmann::ordered_json::parse(status, nullptr,
                                            /*allow_exceptions=*/false);
  if (!json.is_object()) return status;
  json.erase("now_s");
  json.erase("round_ends_in_s");
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

Events::Events(SharedDocuments& documents, double interval_s,
               size_t watchers_max)
    : documents_(documents),
      interval_s_(interval_s),
      watchers_max_(watchers_max),
      thread_([this] { Run(); }) {}

Events::~Events() {
  Stop();
  thread_.join();
}

void Events::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool Events::Enter() {
  const std::lock_guard lock(mutex_);
  if (watchers_ >= watchers_max_ || stopping_) return false;
  ++watchers_;
  changed_.notify_all();
  return true;
}

void Events::Leave() {
  const std::lock_guard lock(mutex_);
  if (--watchers_ > 0) return;
  // The next watcher gets no old news.
  last_.reset();
  compared_.clear();
}

size_t Events::watchers() const {
  const std::lock_guard lock(mutex_);
  return watchers_;
}

std::shared_ptr<const Events::Event> Events::Next(uint64_t seen,
                                                  double timeout_s) {
  std::unique_lock lock(mutex_);
  const auto is_newer = [&] { return last_ != nullptr && last_->seq > seen; };
  changed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                    [&] { return stopping_ || is_newer(); });
  return !stopping_ && is_newer() ? last_ : nullptr;
}

void Events::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || watchers_ > 0; });
    if (stopping_) return;
    lock.unlock();
    const SharedDocuments::Shared status = documents_.Get({});
    lock.lock();
    if (status->ok() && watchers_ > 0) Take(**status);
    changed_.wait_for(lock, std::chrono::duration<double>(interval_s_),
                      [this] { return stopping_; });
  }
}

void Events::Take(const std::string& status) {
  std::string compared = WithoutClock(status);
  if (compared == compared_) return;
  compared_ = std::move(compared);
  ++seq_;
  auto event = std::make_shared<Event>();
  event->seq = seq_;
  event->text = StrCat("event: update\nid: ", seq_, "\ndata: {\"seq\":", seq_,
                       ",\"status\":", status, "}\n\n");
  last_ = std::move(event);
  changed_.notify_all();
}

}  // namespace gavel
