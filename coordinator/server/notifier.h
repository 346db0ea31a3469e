// Tells people what became of jobs and servers: hands the notices of the
// history (HistoryNotice) to a program, or to an address by curl, one after the
// other and each at least once, also over restarts. docs/notify.md says what
// users see.
#ifndef GAVEL_COORDINATOR_SERVER_NOTIFIER_H_
#define GAVEL_COORDINATOR_SERVER_NOTIFIER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/history.h"
#include "coordinator/workload/cluster_spec.h"
#include "core/units.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// One delivery.
struct Delivery {
  std::vector<std::string> argv;  // argv[0]: a path, or is looked up in PATH
  std::string input;              // its standard input
  double limit_s = 30;            // then it is killed
};
// Checks that the program that the spec needs is there and may be run. Errors
// name the remedy.
absl::Status CheckProgram(const NotifySpec& spec);
// The delivery of `text`, a line of JSON.
Delivery DeliveryOf(const NotifySpec& spec, const std::string& text);
// Runs the program to its end, then kills the processes that it started. Kills
// all of them after the limit, or once `stop` is requested (CANCELLED). OK: it
// ended with code 0. Otherwise the message says how it ended and has the last
// line of its stderr. Its other output is dropped.
absl::Status Deliver(const Delivery& delivery, const std::stop_token& stop);

// {"event":"failed","job":7,...}, as the program gets it.
std::string NoticeJson(const HistoryNotice& notice,
                       const std::string& coordinator);

// Delivers on a thread of its own, which reads the journal's file and keeps the
// position of the last notice that is done with beside it. The coordinator's
// event loop owns one.
//
// Thread-safe. `wake` is called on the thread when there are new troubles or
// outcomes of tests; it must not block, nor call back.
class Notifier {
 public:
  // If more notices wait, the oldest are dropped.
  static constexpr uint64_t kWaitingMax = 1000;
  // A notice is given up after as many tries as there are waits between them,
  // and one more.
  static constexpr double kWaits_s[] = {15, 45, 120, 420};
  static constexpr double kLookInterval_s = 1;
  static constexpr size_t kTestsMax = 8;

  struct Options {
    NotifySpec spec;          // not empty
    std::string journal;      // path of its file
    std::string position;     // path of the file of the position
    std::string coordinator;  // its address, for people
    std::vector<double> waits_s = {std::begin(kWaits_s), std::end(kWaits_s)};
    double limit_s = 30;  // of one delivery
  };
  // `last_seq`: the last row of the journal. If there is no file of the
  // position, notices up to that row are never delivered. Errors: the file
  // can't be written.
  static absl::StatusOr<std::unique_ptr<Notifier>> Start(
      Options options, uint64_t last_seq, std::function<void()> wake);

  // Delivers a notice that says that it is a test. False: too many wait.
  bool Test(uint64_t handle);
  // The outcome of a test, once, by its handle; the error is empty if it was
  // delivered.
  std::optional<std::pair<uint64_t, std::string>> TakeTested();
  // For an operator: why deliveries fail, and how many notices are lost.
  std::vector<std::string> Troubles() const;

 private:
  Notifier(Options options, uint64_t position, std::function<void()> wake);
  struct TestItem {
    uint64_t handle = 0;
  };
  Time Work(const std::vector<TestItem>& tests, const std::stop_token& stop);
  void RunTest(uint64_t handle, const std::stop_token& stop);
  // Tries the first one that waits. Returns after how many seconds to look
  // again.
  Time DeliverNext(const std::stop_token& stop);
  absl::StatusOr<WaitingNotices> Look() const;
  absl::Status Try(const HistoryNotice& notice,
                   const std::stop_token& stop) const;
  // Returns after how many seconds to try again; 0: it is given up.
  Time NoteFailure(const HistoryNotice& notice, const absl::Status& why);
  void MoveTo(uint64_t position);
  // The parts that may be in trouble; each recovers by itself.
  enum Part : size_t { kReading, kPosition, kDelivery };
  void SetTrouble(Part part, std::string trouble);

  const Options options_;
  const std::function<void()> wake_;
  // The thread's.
  uint64_t position_;    // the id of the last notice that is done with
  uint64_t trying_ = 0;  // the id of the next one, once it was tried
  size_t tries_ = 0;     // of that one
  Time retry_at_ = 0;
  // As in WorkerThread, of the standard library.
  mutable std::mutex mutex_;  // guards all below but the thread
  std::array<std::string, kDelivery + 1> troubles_;  // by part; empty: none
  uint64_t given_up_ = 0;
  uint64_t dropped_ = 0;
  size_t tests_ = 0;  // whose outcomes nobody has taken
  std::vector<std::pair<uint64_t, std::string>> tested_;
  WorkerThread<TestItem> thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_NOTIFIER_H_
