// The thread of a process that is in a gang: it carries the words of the stop
// agreement between this process and the gang's store, over a connection of its
// own, about fifty times a second. The training thread asks it at each boundary
// whether it may go on, which takes a lock and no word of the store.
//
// When the gang stops, the thread of rank 0 stays until all others have left,
// since they need the store that it hosts.
//
// Thread-safety: all functions may be called by any thread, Pass() by the
// training thread. Nothing throws.
#ifndef GAVEL_ITERATOR_GANG_THREAD_H_
#define GAVEL_ITERATOR_GANG_THREAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/process_group.h"
#include "runtime/lease/stop_agreement.h"

namespace gavel::internal {

class GangThread {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::string prefix;  // of the gang's keys
    uint64_t steps_done = 0;
    // Called by the thread to end collectives, more than once: when the gang is
    // broken, or, during a step or a wait, the lease is over or another rank's
    // loop has ended.
    std::function<void()> abort;
    // Asked by the thread during a step or a wait, never after Leave(); may be
    // empty.
    std::function<bool()> lease_is_over;
  };

  // Writes this rank's first word, so that the others can read it. To be called
  // before they are told that this rank is there.
  static absl::Status Announce(GangStore& store, const Options& options);
  // Begins to talk: all ranks are there. `store` is kept until all have left,
  // when rank 0 hosts it.
  static absl::StatusOr<std::unique_ptr<GangThread>> Start(
      std::shared_ptr<GangStore> store, Options options);
  // Waits for the thread, but not for long: one that is stuck in the network is
  // left to itself.
  ~GangThread();
  GangThread(const GangThread&) = delete;
  GangThread& operator=(const GangThread&) = delete;

  // At the boundary after `steps_done` steps: waits while it may become the
  // stop, unless `gives_up`, which is asked some twenty times a second.
  // kMissed: the gang is broken, or it gave up; why() tells.
  // `begins` as of StopMember.
  StopMember::Passage Pass(uint64_t steps_done, bool begins,
                           const std::function<bool()>& gives_up);
  void Want(StopKind kind);
  // Whether this rank waits for its device, at a boundary, too: a collective of
  // a step that is done may run there still.
  void SetWaiting(bool waiting);
  // No step is under way; until Pass() lets one begin.
  void Rest();
  // The loop has come to its end.
  void End();
  // The loop of another rank has, for long, and this one's has not.
  bool is_left_behind() const;
  void BeginSave(const Save& save);
  bool all_have_begun(const Save& save) const;
  // Tells the others that this rank can't write its part of it.
  void FailSave(const Save& save);
  // The rank that said so; -1: none yet.
  int failed_rank(const Save& save) const;
  // Returns when the last word of rank 0 has been heard, or can't be any more.
  void Listen();
  // The last word of this rank. The thread ends when it may.
  void Leave(Leaving how);
  // From any thread: the gang can't go on, and the first reason why.
  bool broken() const;
  std::string why() const;

 private:
  struct Shared;
  explicit GangThread(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;  // the thread's, too
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_GANG_THREAD_H_
