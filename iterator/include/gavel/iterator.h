// The training loop's range: wraps any range of batches so that the loop
// pauses, resumes, moves and checkpoints between two batches.
//
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//
// Wrap the training loop only: each batch is one step, done when the next is
// asked for (one left by `break` is not counted). Tensors in a batch (tensors;
// vectors, pairs, tuples, maps, optionals of them; .data and .target) are moved
// to the session's device. stopped() and status() tell why the loop ended.
// After a restart it continues in the middle (gavel::Resume). One thread. The
// range, when an lvalue, and the session must live longer.
#ifndef GAVEL_ITERATOR_H_
#define GAVEL_ITERATOR_H_

#include <optional>
#include <type_traits>
#include <utility>

#include "gavel/data_options.h"
#include "gavel/internal/placement.h"
#include "gavel/internal/range_position.h"
#include "gavel/session.h"

namespace gavel {

template <class Range>  // R& for an lvalue, which is borrowed; else R
class Iterator : private internal::BatchOwner {
  using R = std::remove_reference_t<Range>;
  using Inner = decltype(internal::BeginOf(std::declval<R&>()));
  using Sentinel = decltype(internal::EndOf(std::declval<R&>()));
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

  template <class S>  // a Session
  Iterator(S&& session, Range&& range, Resume resume = Resume::kAuto)
      : session_(internal::ItselfAs<Session>(session)),
        range_(std::forward<Range>(range)),
        position_(range_, resume) {}
  ~Iterator() override { Leave(/*at_step_end=*/false); }

  Cursor begin() {
    return Guarded([this] { Begin(); }), Cursor(this);
  }
  End end() { return {}; }

 private:
  // An exception of the range ends the loop and becomes status().
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
    if (plan.skip > 0) {
      BeginInner();
      session_.FirstBatch(internal::SkipTo(plan.skip, *inner_, *end_));
    }
    running_ =
        session_.StepBoundary(/*after_step=*/false) && session_.LoopForwarded();
    if (!running_) return;
    if (plan.ended) return EndLoop();
    position_.SetDevice(session_.device());
    if (!inner_) return BeginInner(), Fetch(/*is_first=*/true);
    ++*inner_;  // with the generators as before its first reading
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
  void BeginInner() {
    inner_.emplace(internal::BeginOf(range_));
    end_.emplace(internal::EndOf(range_));
  }
  void Advance() {
    batch_.reset();  // a pause must not keep it on the accelerator
    running_ = !position_.EndsStep() || session_.StepBoundary(true);
    if (!running_) return;
    Guarded([this] { return ++*inner_, Fetch(); });
  }
  void Fetch(bool is_first = false) {
    if (!(*inner_ != *end_)) return EndLoop();
    if constexpr (!kBorrowed) batch_.emplace(internal::TakeBatch<R>(*inner_));
    if (is_first && position_.IsForwarded()) {
      session_.FirstBatch(internal::FingerprintOf(Current()));
    }
    if constexpr (!kBorrowed) internal::Place(*batch_, session_.device());
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
  internal::PositionOf<Range> position_;
  std::optional<Inner> inner_;
  std::optional<Sentinel> end_;
  std::optional<Batch> batch_;
  bool entered_ = false;
  bool running_ = false;
};

template <class S, class R, class... Options>
Iterator(S&&, R&&, Options...) -> Iterator<R>;

}  // namespace gavel

#endif  // GAVEL_ITERATOR_H_
