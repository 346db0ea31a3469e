// One training process as the runtime sees it: what belongs to the job's state
// (Track), how it goes (Report), and how it ends (Finish). gavel/iterator.h
// drives it from the training loop.
//
//   auto session = gavel::Session::FromEnvironment();
//   session->Track("model", model);
//   session->Track("optimizer", optimizer);
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//   return session->Finish();
//
// Under an agent (GAVEL_COORDINATOR) the loop runs while the process holds a
// lease, on its accelerator; else alone. It goes on from the last generation.
//
// Thread-safety: one thread, the one that trains; status() and steps_done()
// from any. A session must outlive its Iterators, and what is tracked must live
// until Finish() has returned. Nothing throws.
#ifndef GAVEL_SESSION_H_
#define GAVEL_SESSION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gavel/status.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace gavel {

enum class LogLevel { kInfo, kWarning, kError };

struct SessionOptions {
  std::string coordinator;  // "HOST:PORT"; empty: alone
  uint64_t job = 0;         // these four as the agent says
  uint64_t incarnation = 0;
  int rank = 0;
  int world_size = 1;
  std::string run_directory;         // accelerator locks; empty: none are taken
  std::string checkpoint_directory;  // empty: no checkpoints
  double checkpoint_interval_s = 30;      // 0: not by time
  int64_t checkpoint_interval_steps = 0;  // 0: not by steps
  int checkpoints_kept = 2;               // >= 2
  int64_t steps_total = 0;  // of the job's whole life; 0: until the loop ends
  std::string device;       // alone: "cpu", "cuda:0"; empty: a GPU if there is
  std::string report_file;  // every Report() is appended to it as a line
  // SIGTERM, SIGINT: checkpoint and end at the next boundary. Only where the
  // host left the default handler; restored by Finish().
  bool handle_signals = true;
  // Off for a program that changes parameters without any torch optimizer.
  bool require_tracked_optimizer = true;
  // Called by one thread at a time, not always the training thread. Empty:
  // lines on stderr.
  std::function<void(LogLevel, const std::string&)> log;
};

// Overwrites what GAVEL_* variables are set (README.md of iterator/ has all).
// kInvalidArgument names the variable that can't be read.
GAVEL_EXPORT Status ReadEnvironment(SessionOptions* options);

namespace internal {
class RangePosition;
struct LoopPlan;
class SessionState;
}  // namespace internal

class GAVEL_EXPORT Session {
 public:
  // Never null. What is wrong is in status(); loops then end at once.
  static std::unique_ptr<Session> FromEnvironment();
  static std::unique_ptr<Session> Create(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes something part of the job's state under a unique name, and restores
  // it at once when a generation exists. Before the first loop only. Errors are
  // in status(), too, so the result may be ignored.
  Status Track(const std::string& name,
               std::shared_ptr<torch::nn::Module> module);
  Status Track(const std::string& name, torch::optim::Optimizer& optimizer);
  Status Track(const std::string& name, at::Tensor& tensor);
  Status Track(const std::string& name, std::string& text);
  // State of any other kind, as bytes; `load` is called when there are some.
  Status Track(const std::string& name, std::function<std::string()> save,
               std::function<void(const std::string&)> load);
  // Any ModuleHolder (what TORCH_MODULE makes).
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  Status Track(const std::string& name, Holder& holder) {
    return Track(name, std::shared_ptr<torch::nn::Module>(holder.ptr()));
  }
  // int, int64_t, size_t, float, double, bool, ...
  template <class Number,
            std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Status Track(const std::string& name, Number& number) {
    return TrackNumber(name, &number, sizeof(number));
  }

  // The last value of a scalar, sent about once a second. At most 16 names; no
  // allocation and no lock after the first use of a name. A tensor on a GPU is
  // read at most twice a second, since that waits for the device.
  void Report(std::string_view name, double value);
  void Report(std::string_view name, const at::Tensor& scalar);

  // Commits the last checkpoint, ends the lease and restores signal handlers.
  // The exit code: 0 done, 75 ended early with its state saved, 1 failed.
  int Finish();

  // Where to put tensors of your own; changes at boundaries only.
  at::Device device() const;
  int rank() const;
  int world_size() const;
  int64_t steps_done() const;  // since the job began, restarts included
  // No more batches will be handed out: the budget is used up, the job was
  // evicted, or status() is an error. For loops around the loop.
  bool stopped() const;
  // The job is done: the budget is used up, or the loop came to its own end.
  bool finished() const;
  // OK, or why the loop ended, or what is wrong at present (kUnavailable: the
  // coordinator is away, and the session goes on trying).
  Status status() const;

 private:
  template <class Range>
  friend class Iterator;
  explicit Session(std::unique_ptr<internal::SessionState> state);
  Status TrackNumber(const std::string& name, void* number, size_t size);
  // For Iterator; see there.
  internal::LoopPlan EnterLoop(internal::RangePosition* range);
  void LoopForwarded();
  bool Boundary(bool after_step);
  void LeaveLoop();
  void Fail() noexcept;

  std::unique_ptr<internal::SessionState> state_;
};

}  // namespace gavel

#endif  // GAVEL_SESSION_H_
