// One job whose checkpoint an agent fetches: the state machine of the fetch and
// the job's files. GenerationStream keeps it after a fetch, so that the next
// one need not verify the same files again. I/O; not thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_FETCHED_JOB_H_
#define GAVEL_COORDINATOR_AGENT_HOST_FETCHED_JOB_H_

#include <functional>
#include <optional>
#include <string>

#include "coordinator/agent/stream_receiver.h"
#include "coordinator/agent_host/generation_inbox.h"
#include "coordinator/agent_host/unix_account.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/generation/file_system.h"

namespace gavel {

struct FetchedJob {
  // Borrows both.
  FetchedJob(FileSystem& file_system, const std::string& given_directory,
             const std::function<Time()>& clock)
      : directory(given_directory),
        inbox(file_system, given_directory),
        now(clock) {}

  // Carries out the actions on files, as their owner, and returns the machine's
  // next actions. Send, Done and GiveUp are the caller's.
  StreamReceiver::Actions DoOnDisk(const stream_receiver::Action& action);

  const std::string directory;
  GenerationInbox inbox;
  const std::function<Time()>& now;
  CheckpointSource source;
  std::optional<UnixAccount> account;
  std::optional<StreamReceiver> receiver;
  bool running = false;  // else it waits for its turn, or is over
  bool over = true;
  Time answered_at = 0;
  Time told_at = -kNever;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_FETCHED_JOB_H_
