// Sees which operators a training program calls, while `gavel doctor` examines
// it: whether it evaluates, and which tensors and generators outlive steps that
// nobody tracks. LibTorch tells of each operator by a callback
// (RecordFunction); the callback is of the thread that made the watch. Training
// thread only.
#ifndef GAVEL_ITERATOR_OPERATOR_WATCH_H_
#define GAVEL_ITERATOR_OPERATOR_WATCH_H_

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "iterator/tracked_state.h"

namespace gavel::internal {

// State that the program uses and that no generation has.
struct UntrackedState {
  // "average": follows tracked tensors; "tensor": written in several steps;
  // "generator".
  std::string kind;
  std::string text;
};

class OperatorWatch {
 public:
  // `tracked` is borrowed. One watch at a time.
  explicit OperatorWatch(const TrackedState& tracked);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  // The session itself calls operators, which tell nothing of the program.
  void SetQuiet(bool quiet) { quiet_ = quiet; }
  // What was found in the step that is done, each once.
  std::vector<UntrackedState> EndStep();
  // Since the last call: a forward pass without gradients, or of a tracked
  // module in evaluation mode.
  bool TakeEvaluated();
  // By LibTorch, before each operator.
  void Look(const at::RecordFunction& call);

 private:
  struct Written {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::string text = {};  // its shape, and by what
    uint64_t last_step = 0;
    int steps = 0;
    bool follows = false;  // from what is tracked
    bool told = false;
  };
  void LookAtWrite(std::string_view name, const std::vector<at::Tensor>& to,
                   const std::vector<at::Tensor>& from);
  void LookAtGenerator(const at::Generator& generator);
  void FindTracked();
  bool IsEvaluating() const;

  const TrackedState& tracked_;
  const std::thread::id thread_ = std::this_thread::get_id();
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  std::set<const void*> tracked_storages_;
  std::set<const void*> gradient_storages_;  // of tracked tensors
  std::map<const void*, Written> written_;
  std::set<const void*> generators_;
  std::vector<UntrackedState> found_;
  uint64_t step_ = 1;
  bool evaluated_ = false;
  bool quiet_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPERATOR_WATCH_H_
