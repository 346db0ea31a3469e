// The documents of the dashboard: who makes them (Documents), and how all
// browsers share them (SharedDocuments).
#ifndef GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_
#define GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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
  JobId job;                        // of kJob, kLog and kLoss
  std::vector<std::string> states;  // of kJobs, this and what follows
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
  // INVALID_ARGUMENT: no such state. FAILED_PRECONDITION: the coordinator
  // refuses, and says why. UNAVAILABLE: it does not answer.
  virtual absl::StatusOr<std::string> Get(const DocumentRequest& request) = 0;

  // Asks the coordinator for it in the name of the key's holder. Errors as
  // above.
  virtual absl::Status Act(const std::string& key, const std::string& address,
                           const CommandRequest& command) = 0;
};

// One document for all who ask for the same within a second: fifty browsers
// cost the coordinator what one does. One that takes long to make holds longer.
// Thread-safe; borrows the documents.
class SharedDocuments {
 public:
  static constexpr double kAgeMax_s = 1;
  // Making a document takes at most one part in so many of the time.
  static constexpr double kPause = 5;
  static constexpr double kHeldMax_s = 10;
  static constexpr size_t kEntriesMax = 256;
  static constexpr size_t kBytesMax = 64 << 20;

  explicit SharedDocuments(Documents& documents) : documents_(documents) {}

  using Shared = std::shared_ptr<const absl::StatusOr<std::string>>;
  // Waits for a document that is being made for somebody else. Never null.
  Shared Get(const DocumentRequest& request);
  // Something has changed: all documents are made anew.
  void Forget();

 private:
  struct Entry {
    bool is_made = false;
    Time holds_until = 0;
    Shared document;
  };
  // Forgets those that hold no more, and the oldest while there are too many.
  void MakeRoom(Time now);

  Documents& documents_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable made_;
  // By all members of the request but the address.
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_DOCUMENTS_H_
