// The documents of the dashboard: who makes them (Documents), how all browsers
// share them (SharedDocuments), and the stream of events by which browsers
// learn of changes (Events).
#ifndef GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_
#define GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/local_requests.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

enum class DocumentKind : uint8_t {
  kStatus,
  kNodes,
  kJobs,
  kJob,
  kLog,
  kLoss,
  kFairness,
  kPolicy,
  kApps,
  kPreview,  // of the policy `name`
  kMetrics,  // text for Prometheus
};

struct DocumentRequest {
  // Rows of a listing, and lines of a log.
  static constexpr size_t kRowsMax = 1000;
  static constexpr size_t kTailMax = 5000;

  DocumentKind kind = DocumentKind::kStatus;
  // The reader, as for LocalRequests::Ask.
  std::string key = std::string(LocalRequests::kReaderKey);
  std::string address;
  JobId job;                            // of kJob, kLog and kLoss, or its array
  std::optional<uint64_t> array_index;  // of the job in the array `job`
  std::vector<std::string> states;      // of kJobs, this and what follows
  std::string user;
  std::string app;
  uint64_t cursor = 0;
  size_t limit = kRowsMax;
  size_t tail = 200;  // of kLog
  std::string name;   // of kPreview
};

// Makes the documents. Any thread may call these functions, several at once.
class Documents {
 public:
  virtual ~Documents() = default;

  // JSON, or text where its kind says so. NOT_FOUND: no such job.
  // INVALID_ARGUMENT: no such state. PERMISSION_DENIED: the reader may not see
  // it. RESOURCE_EXHAUSTED: the reader asks too often. FAILED_PRECONDITION: the
  // coordinator refuses, and says why. UNAVAILABLE: it does not answer.
  virtual absl::StatusOr<std::string> Get(const DocumentRequest& request) = 0;

  // Asks the coordinator for it in the name of the key's holder. Errors as
  // above. DEADLINE_EXCEEDED: it may still be done.
  virtual absl::Status Act(const std::string& key, const std::string& address,
                           const CommandRequest& command) = 0;
};

// One document for all who ask for the same within a moment: fifty browsers
// cost the coordinator what one does. One that takes long to make holds longer.
// One that is older than a change holds no longer than its making asks for.
// Thread-safe; borrows the documents.
class SharedDocuments {
 public:
  static constexpr double kAgeMax_s = 0.4;
  // Making a document takes at most one part in so many of the time.
  static constexpr double kPause = 5;
  static constexpr double kHeldMax_s = 10;
  static constexpr size_t kEntriesMax = 256;
  static constexpr size_t kBytesMax = 64 << 20;
  // How long a reader waits for one that is made for another reader.
  static constexpr double kWait_s = 20;

  explicit SharedDocuments(Documents& documents, double wait_s_max = kWait_s)
      : documents_(documents), wait_s_max_(wait_s_max) {}

  using Shared = std::shared_ptr<const absl::StatusOr<std::string>>;
  // Waits for a document that is being made for somebody else. Never null.
  // UNAVAILABLE: that takes too long.
  Shared Get(const DocumentRequest& request);
  // Call this when browsers hear of a change: they need newer documents then.
  void NoteChange();
  // The reader itself has changed something: all documents are made anew.
  void Forget();

 private:
  struct Entry {
    bool is_made = false;
    Time begun = 0;
    Time rests_until = 0;  // not made anew before, even after a change
    Time holds_until = 0;
    Shared document;
  };
  // Forgets those that hold no more, and the oldest while there are too many.
  void MakeRoom(Time now);

  Documents& documents_;
  const double wait_s_max_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable made_;
  // By all members of the request but the address.
  std::map<std::string, std::shared_ptr<Entry>> entries_;
  Time changed_at_ = 0;
};

// Asks for the status at an interval while somebody watches, and keeps the
// last event for all watchers. One thread inside; thread-safe; borrows the
// documents.
class Events {
 public:
  Events(SharedDocuments& documents, double interval_s, size_t watchers_max);
  ~Events();

  // The event that was the last one when a watcher came: it gets a newer one,
  // in which the clock is right. Nothing: too many watch.
  std::optional<uint64_t> Enter();
  void Leave();
  // The coordinator has not answered, or has refused, several times in a row.
  // Watchers have seen nothing newer since then.
  bool is_lost() const;
  size_t watchers() const;

  struct Event {
    uint64_t seq = 0;  // rises with each
    std::string text;  // as it is sent
  };
  // An event newer than `seen`; null: there was none within `timeout_s`.
  std::shared_ptr<const Event> Next(uint64_t seen, double timeout_s);
  // Ends the thread; nobody waits any more.
  void Stop();

 private:
  static constexpr int kFailuresMax = 3;

  void Run();
  // Makes the event of a status that differs from the last one. A browser that
  // reads documents because of it gets none that is older.
  void Take(const std::string& status);

  SharedDocuments& documents_;
  const double interval_s_;
  const size_t watchers_max_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  size_t watchers_ = 0;
  bool stopping_ = false;
  uint64_t seq_ = 0;
  int failures_ = 0;      // in a row
  std::string compared_;  // the last status, without what always changes
  std::shared_ptr<const Event> last_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_
