#include "coordinator/http/documents.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// No member has a zero byte: HTTP and JSON keep them out of the texts.
std::string NameOf(const DocumentRequest& request) {
  const std::string separator(1, '\0');
  return absl::StrJoin(
      {StrCat(static_cast<int>(request.kind)), request.key,
       StrCat(request.job.value()), absl::StrJoin(request.states, ","),
       request.user, request.app, StrCat(request.cursor), StrCat(request.limit),
       StrCat(request.tail), request.name},
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
    made_.wait(lock, [&] { return entry->is_made; });
    if (MonotonicNow() < entry->holds_until) return entry->document;
  }
  // Another one may have begun to make it meanwhile; two at once do no harm.
  const auto entry = std::make_shared<Entry>();
  entries_[name] = entry;
  lock.unlock();

  const Stopwatch work;
  auto document = std::make_shared<const absl::StatusOr<std::string>>(
      Make(documents_, request));

  lock.lock();
  entry->document = std::move(document);
  entry->is_made = true;
  const Time now = MonotonicNow();
  entry->holds_until =
      now + std::clamp(kPause * work.elapsed_s(), kAgeMax_s, kHeldMax_s);
  MakeRoom(now);
  made_.notify_all();
  return entry->document;
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
          return std::pair(!one.second->is_made, one.second->holds_until);
        });
    if (!oldest->second->is_made) return;  // as many as there are threads
    bytes -= BytesOf(oldest->second->document);
    entries_.erase(oldest);
  }
}

}  // namespace gavel
