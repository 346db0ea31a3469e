#include "coordinator/agent_host/fetched_job.h"

#include <utility>
#include <variant>

#include "coordinator/agent_host/unix_account.h"

namespace gavel {

StreamReceiver::Actions FetchedJob::DoOnDisk(
    const stream_receiver::Action& action) {
  const FileUser as_owner(account);
  const auto failed = [&](const absl::Status& status) {
    return receiver->Failed(now(), std::string(status.message()));
  };
  if (const auto* prepare = std::get_if<stream_receiver::Prepare>(&action)) {
    absl::StatusOr<GenerationInbox::Need> need =
        inbox.Prepare(prepare->generation, prepare->manifest);
    if (!need.ok()) return failed(need.status());
    if (need->already_here) return receiver->AlreadyHere(now());
    return receiver->Prepared(now(), std::move(need->files));
  }
  if (const auto* write = std::get_if<stream_receiver::Write>(&action)) {
    const absl::Status written =
        inbox.Write(write->file, write->offset, write->data);
    if (!written.ok()) return failed(written);
  } else if (const auto* finish =
                 std::get_if<stream_receiver::Finish>(&action)) {
    const absl::StatusOr<bool> whole = inbox.Finish(finish->file);
    if (!whole.ok()) return failed(whole.status());
    return receiver->Finished(now(), *whole);
  } else if (std::holds_alternative<stream_receiver::Commit>(action)) {
    const absl::Status committed = inbox.Commit();
    if (!committed.ok()) return failed(committed);
    return receiver->Committed(now());
  } else if (std::holds_alternative<stream_receiver::GiveUp>(action)) {
    inbox.Discard();
  }
  return {};
}

}  // namespace gavel
