#include "simulator/virtual_journal.h"

#include <iterator>
#include <utility>

namespace gavel {

void VirtualJournal::Open(std::function<void(uint64_t)> committed,
                          std::function<void()> failed) {
  ++opened_;
  committed_ = std::move(committed);
  failed_ = std::move(failed);
  failure_ = Failure::kNoFailure;
}

void VirtualJournal::Append(action::Persist row) {
  waiting_.push_back(std::move(row));
  if (group_.empty()) Commit();
}

void VirtualJournal::Commit() {
  group_ = std::exchange(waiting_, {});
  queue_.After(commit_s_, [this, opened = opened_] {
    if (opened == opened_) Finish();
  });
}

void VirtualJournal::Finish() {
  if (failure_ != Failure::kNoFailure) {
    if (failure_ == Failure::kNothingWritten) group_.clear();
    Crash();
    return failed_();
  }
  const uint64_t seq = group_.back().seq;
  Write();
  committed_(seq);
  if (group_.empty() && !waiting_.empty()) Commit();
}

void VirtualJournal::Crash() {
  ++opened_;
  if (random_() % 2 == 0) Write();
  group_.clear();
  waiting_.clear();
}

void VirtualJournal::Write() {
  rows_.insert(rows_.end(), std::make_move_iterator(group_.begin()),
               std::make_move_iterator(group_.end()));
  group_.clear();
}

}  // namespace gavel
