// The stream of events by which browsers learn of changes.
#ifndef GAVEL_COORDINATOR_HTTP_EVENTS_H_
#define GAVEL_COORDINATOR_HTTP_EVENTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "coordinator/http/documents.h"

namespace gavel {

// Asks for the status at an interval while somebody watches, and keeps the
// last event for all watchers. One thread inside; thread-safe; borrows the
// documents.
class Events {
 public:
  Events(SharedDocuments& documents, double interval_s, size_t watchers_max);
  ~Events();

  // False: too many watch.
  bool Enter();
  void Leave();
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
  void Run();
  // Makes the event of a status that differs from the last one.
  void Take(const std::string& status);

  SharedDocuments& documents_;
  const double interval_s_;
  const size_t watchers_max_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  size_t watchers_ = 0;
  bool stopping_ = false;
  uint64_t seq_ = 0;
  std::string compared_;  // the last status, without what always changes
  std::shared_ptr<const Event> last_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_EVENTS_H_
