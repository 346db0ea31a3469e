// The training loop's range: wraps any range of batches so that the loop
// pauses, resumes, moves and checkpoints between two batches.
//
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//
// Wrap the training loop only: each batch is one step of the job, done when the
// next is asked for (a step left by `break` is not counted). Tensors in a batch
// (at::Tensor; vectors, pairs, tuples, maps, optionals of them; .data and
// .target, as torch::data::Example has) are moved to the session's device.
// When the loop ends, session.stopped() and session.status() tell why.
//
// After a restart in the middle of a loop it goes on there: gavel::Resume.
// One thread. The range, when an lvalue, and the session must live longer.
#ifndef GAVEL_ITERATOR_H_
#define GAVEL_ITERATOR_H_

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "gavel/internal/placement.h"
#include "gavel/internal/range_position.h"
#include "gavel/session.h"

namespace gavel {

template <class Range>  // R& for an lvalue, which is borrowed; else R
class Iterator : private internal::BatchOwner {
  using R = std::remove_reference_t<Range>;
  using Inner = std::decay_t<decltype(std::begin(std::declval<R&>()))>;
  using Sentinel = std::decay_t<decltype(std::end(std::declval<R&>()))>;
  using InnerReference = decltype(*std::declval<Inner&>());
  using Batch = std::decay_t<InnerReference>;
  // Batches without tensors, or that can't be copied, stay where they are.
  static constexpr bool kBorrowed =
      std::is_lvalue_reference_v<InnerReference> &&
      !(std::is_copy_constructible_v<Batch> && internal::HoldsTensors<Batch>());

 public:
  using reference = std::conditional_t<kBorrowed, InnerReference, Batch&>;
  struct End {};
  class Cursor {
   public:
    explicit Cursor(Iterator* owner) : owner_(owner) {}
    reference operator*() const { return owner_->Current(); }
    Cursor& operator++() { return owner_->Advance(), *this; }
    bool operator!=(End) const { return owner_->running_; }

   private:
    Iterator* owner_;
  };

  Iterator(Session& session, Range&& range, Resume resume = Resume::kAuto)
      : session_(session),
        range_(std::forward<Range>(range)),
        position_(range_, resume) {}
  ~Iterator() override { Leave(/*at_step_end=*/false); }

  Cursor begin() {
    Guarded([this] { Begin(); });
    return Cursor(this);
  }
  End end() { return {}; }

 private:
  // What the range throws ends the loop and becomes status().
  template <class Body>
  void Guarded(Body body) {
    try {
      body();
    } catch (...) {
      running_ = false;
      session_.Fail("reading a batch");
    }
  }
  void Begin() {
    const internal::LoopPlan plan = session_.EnterLoop(&position_, this);
    if (!plan.run) return;
    entered_ = true;
    // Forwarding needs no accelerator, so it comes before the lease.
    if (plan.skip > 0) BeginInner(plan.skip);
    running_ = session_.StepBoundary(/*after_step=*/false);
    if (!running_) return;
    session_.LoopForwarded();
    if (plan.ended) return EndLoop();
    position_.SetDevice(session_.device());
    if (!inner_) BeginInner(0);
    Fetch();
  }
  void Leave(bool at_step_end) {
    if (!std::exchange(entered_, false)) return;
    position_.SetDevice(at::Device(at::kCPU));
    session_.LeaveLoop(at_step_end);
  }
  void EndLoop() {
    running_ = false;
    Leave(/*at_step_end=*/true);
  }
  void PlaceBatch(at::Device device) override {
    if constexpr (!kBorrowed) {
      if (batch_) internal::Place(*batch_, device);
    }
    position_.SetDevice(device);
  }
  void BeginInner(int64_t skip) {
    inner_.emplace(std::begin(range_));
    end_.emplace(std::end(range_));
    for (; skip > 0 && *inner_ != *end_; --skip) ++*inner_;
  }
  void Advance() {
    batch_.reset();  // a pause must not keep it on the accelerator
    running_ = !position_.EndsStep() || session_.StepBoundary(true);
    if (!running_) return;
    Guarded([this] { return ++*inner_, Fetch(); });
  }
  void Fetch() {
    if (!(*inner_ != *end_)) return EndLoop();
    if constexpr (!kBorrowed) {
      batch_.emplace(internal::TakeBatch<R>(*inner_));
      internal::Place(*batch_, session_.device());
    }
    session_.BatchReady();
  }
  reference Current() {
    if constexpr (kBorrowed) {
      return **inner_;
    } else {
      return *batch_;
    }
  }

  Session& session_;
  Range range_;
  internal::PositionOf<R> position_;
  std::optional<Inner> inner_;
  std::optional<Sentinel> end_;
  std::optional<Batch> batch_;
  bool entered_ = false;
  bool running_ = false;
};

template <class R>
Iterator(Session&, R&&) -> Iterator<R>;
template <class R>
Iterator(Session&, R&&, Resume) -> Iterator<R>;

}  // namespace gavel

#endif  // GAVEL_ITERATOR_H_
