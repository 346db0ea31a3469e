#include "tests/engine/describe.h"

#include <array>
#include <variant>

#include "absl/strings/str_format.h"
#include "coordinator/engine/event.h"
#include "core/codec.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string Name(const WorkerKey& key) {
  return StrCat("job ", key.job.value(), " rank ", key.rank, " #",
                key.incarnation);
}

std::string_view TierName(PauseTier tier) {
  constexpr std::array<std::string_view, 4> kNames = {"park", "evict", "stop",
                                                      "keep"};
  return kNames[static_cast<size_t>(tier)];
}

// Describes the messages that the engine sends; any other by its name.
struct MessageWords {
  std::string operator()(const LeaseGrant& m) const {
    return absl::StrFormat("grant %s epoch %d: %s (%s) for %.3f s",
                           Name(m.worker), m.epoch, m.accelerator.uuid,
                           m.accelerator.type, m.duration_s);
  }
  std::string operator()(const LeaseDenied& m) const {
    return StrCat("deny ", Name(m.worker));
  }
  std::string operator()(const LeaseNotice& m) const {
    return StrCat("notice ", Name(m.worker), " epoch ", m.epoch);
  }
  std::string operator()(const PauseRequest& m) const {
    return StrCat("pause ", Name(m.worker), " epoch ", m.epoch, ": ",
                  TierName(m.tier));
  }
  std::string operator()(const WorkerRejected& m) const {
    return StrCat("reject ", Name(m.worker), ": ", m.reason);
  }
  std::string operator()(const LaunchWorker& m) const {
    return StrCat("launch ", Name(m.worker), " on ", m.server);
  }
  std::string operator()(const StopWorker& m) const {
    return StrCat("stop ", Name(m.worker), " on ", m.server, " within ",
                  m.grace_s, " s");
  }
  std::string operator()(const ExitAcknowledged& m) const {
    return StrCat("acknowledge exit of ", Name(m.worker));
  }
  std::string operator()(const AgentWelcome& m) const {
    return StrCat("welcome ", m.server);
  }
  std::string operator()(const AgentRejected& m) const {
    return StrCat("reject agent ", m.server, ": ", m.reason);
  }
  template <class M>
  std::string operator()(const M& m) const {
    return std::string(MessageName(Message(m)));
  }
};

struct ActionWords {
  std::string operator()(const action::Persist& a) const {
    const absl::StatusOr<Event> event = DecodeEvent(a.row);
    return StrCat("persist ", a.seq, " ", event.ok() ? EventName(*event) : "?");
  }
  std::string operator()(const action::SolvePolicy& a) const {
    return StrCat("solve for ", a.problem->jobs.size(), " jobs");
  }
  std::string operator()(const action::SendToWorker& a) const {
    return std::visit(MessageWords{}, a.message);
  }
  std::string operator()(const action::SendToAgent& a) const {
    return std::visit(MessageWords{}, a.message);
  }
  std::string operator()(const action::SendToBidder& a) const {
    return std::visit(MessageWords{}, a.message);
  }
  std::string operator()(const action::Reply& a) const {
    return a.error.empty() ? StrCat("reply job ", a.job.value())
                           : StrCat("refuse: ", a.error);
  }
  std::string operator()(const action::Halt& a) const {
    return StrCat("halt: ", a.reason);
  }
};

}  // namespace

std::string Describe(const Action& action) {
  return std::visit(ActionWords{}, action);
}

}  // namespace gavel
