#include "coordinator/http/documents.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// No member has a zero byte: HTTP and JSON keep them out of the texts.
std::string NameOf(const DocumentRequest& request) {
  const std::string separator(1, '\0');
  return absl::StrJoin(
      {StrCat(static_cast<int>(request.kind)), request.key,
       StrCat(request.job.value()),
       request.array_index ? StrCat(*request.array_index) : "",
       absl::StrJoin(request.states, ","), request.user, request.app,
       StrCat(request.cursor), StrCat(request.limit), StrCat(request.tail),
       request.name},
      separator);
}

// JSON of another form than expected is an exception of its library. Nobody may
// wait for ever for a document.
absl::StatusOr<std::string> Make(Documents& documents,
                                 const DocumentRequest& request) {
  try {
    return documents.Get(request);
  } catch (const std::exception& error) {
    return absl::InternalError(
        StrCat("this document can't be made: ", error.what()));
  }
}

size_t BytesOf(const SharedDocuments::Shared& document) {
  return document != nullptr && document->ok() ? (*document)->size() : 0;
}

}  // namespace

SharedDocuments::Shared SharedDocuments::Get(const DocumentRequest& request) {
  const std::string name = NameOf(request);
  std::unique_lock lock(mutex_);
  if (const auto known = entries_.find(name); known != entries_.end()) {
    const std::shared_ptr<Entry> entry = known->second;
    if (!made_.wait_for(lock, std::chrono::duration<double>(wait_s_max_),
                        [&] { return entry->is_made; })) {
      return std::make_shared<const absl::StatusOr<std::string>>(
          absl::UnavailableError(StrCat("this document is not made after ",
                                        wait_s_max_, " s; try again later")));
    }
    const Time until =
        entry->begun < changed_at_ ? entry->rests_until : entry->holds_until;
    if (MonotonicNow() < until) return entry->document;
  }
  // Another one may have begun to make it meanwhile; two at once do no harm.
  const auto entry = std::make_shared<Entry>();
  entry->begun = MonotonicNow();
  entries_[name] = entry;
  lock.unlock();

  const Stopwatch work;
  auto document = std::make_shared<const absl::StatusOr<std::string>>(
      Make(documents_, request));

  lock.lock();
  entry->document = std::move(document);
  entry->is_made = true;
  const Time now = MonotonicNow();
  entry->rests_until = now + std::min(kPause * work.elapsed_s(), kHeldMax_s);
  entry->holds_until = std::max(entry->rests_until, now + kAgeMax_s);
  MakeRoom(now);
  made_.notify_all();
  return entry->document;
}

void SharedDocuments::NoteChange() {
  const std::lock_guard lock(mutex_);
  changed_at_ = MonotonicNow();
}

void SharedDocuments::Forget() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

void SharedDocuments::MakeRoom(Time now) {
  std::erase_if(entries_, [&](const auto& one) {
    return one.second->is_made && one.second->holds_until <= now;
  });
  size_t bytes = 0;
  for (const auto& [name, entry] : entries_) bytes += BytesOf(entry->document);
  while (entries_.size() > kEntriesMax || bytes > kBytesMax) {
    const auto oldest =
        std::ranges::min_element(entries_, {}, [](const auto& one) {
          return std::pair(!one.second->is_made, one.second->begun);
        });
    if (!oldest->second->is_made) return;  // as many as there are threads
    bytes -= BytesOf(oldest->second->document);
    entries_.erase(oldest);
  }
}

namespace {

// The status without the fields that change with the clock alone.
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

std::optional<uint64_t> Events::Enter() {
  const std::lock_guard lock(mutex_);
  if (watchers_ >= watchers_max_ || stopping_) return std::nullopt;
  ++watchers_;
  compared_.clear();
  changed_.notify_all();
  return seq_;
}

void Events::Leave() {
  const std::lock_guard lock(mutex_);
  if (--watchers_ > 0) return;
  // The next watcher gets no old news.
  last_.reset();
  compared_.clear();
  failures_ = 0;
}

bool Events::is_lost() const {
  const std::lock_guard lock(mutex_);
  return failures_ >= kFailuresMax;
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
  SharedDocuments::Shared before;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || watchers_ > 0; });
    if (stopping_) return;
    lock.unlock();
    const SharedDocuments::Shared status = documents_.Get({});
    lock.lock();
    if (status->ok()) {
      failures_ = 0;
    } else if (status != before) {  // not one that is held for a while
      failures_ = std::min(failures_ + 1, kFailuresMax);
    }
    before = status;
    if (status->ok() && watchers_ > 0) Take(**status);
    changed_.wait_for(lock, std::chrono::duration<double>(interval_s_),
                      [this] { return stopping_; });
  }
}

void Events::Take(const std::string& status) {
  std::string compared = WithoutClock(status);
  if (compared == compared_) return;
  compared_ = std::move(compared);
  documents_.NoteChange();
  ++seq_;
  auto event = std::make_shared<Event>();
  event->seq = seq_;
  event->text = StrCat("event: update\nid: ", seq_, "\ndata: {\"seq\":", seq_,
                       ",\"status\":", status, "}\n\n");
  last_ = std::move(event);
  changed_.notify_all();
}

}  // namespace gavel
