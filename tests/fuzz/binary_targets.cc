// Fuzz targets for bytes that programs write: messages, rows of the journal,
// and frames between agents.

#include "coordinator/agent/checkpoint_stream.h"
#include "coordinator/engine/event.h"
#include "coordinator/policy/own_bids.h"
#include "coordinator/policy/policy.h"
#include "core/codec.h"
#include "core/message_fields.h"
#include "tests/fuzz/targets.h"
#include "tests/support/random_fields.h"

namespace gavel::fuzz {

void RunMessage(std::string_view bytes) {
  const absl::StatusOr<Message> message = DecodeMessage(bytes);
  if (!message.ok()) return;
  // Defaults for the fields that an old writer left out may make the message
  // exceed the bounds.
  const absl::StatusOr<std::string> written = EncodeMessage(*message);
  if (!written.ok()) return;
  const absl::StatusOr<Message> again = DecodeMessage(*written);
  Require(again.ok(), "a message that was encoded decodes");
  Require(*EncodeMessage(*again) == *written, "a message comes back the same");
}

void RunEvent(std::string_view bytes) {
  const absl::StatusOr<Event> event = DecodeEvent(bytes);
  if (!event.ok()) return;
  Require(IsDurable(*event), "only durable events are in a journal");
  const std::string written = EncodeEvent(*event);
  const absl::StatusOr<Event> again = DecodeEvent(written);
  Require(again.ok(), "an event that was encoded decodes");
  Require(EncodeEvent(*again) == written, "an event comes back the same");
}

void RunStream(std::string_view bytes) {
  const absl::StatusOr<StreamMessage> message = DecodeStreamMessage(bytes);
  if (!message.ok()) return;
  const std::string written = EncodeStreamMessage(*message);
  const absl::StatusOr<StreamMessage> again = DecodeStreamMessage(written);
  Require(again.ok(), "a frame between agents that was encoded decodes");
  Require(EncodeStreamMessage(*again) == written, "it comes back the same");
}

namespace {

// An app of two jobs and one of a single job, on two types.
PolicyProblem ProblemOfBids() {
  PolicyProblem problem;
  problem.types = {"v100", "k80"};
  problem.capacity = {2, 1};
  problem.round_s = 60;
  problem.apps.resize(2);
  for (int m = 0; m < 3; ++m) {
    PolicyJob& job = problem.jobs.emplace_back();
    job.id = JobId(static_cast<uint64_t>(m) + 1);
    job.steps_remaining = 600;
    job.app = m / 2;
    problem.throughputs.insert(problem.throughputs.end(), {2, 1});
  }
  return problem;
}

}  // namespace

void RunBid(std::string_view bytes) {
  const absl::StatusOr<Message> message = DecodeMessage(bytes);
  if (!message.ok()) return;
  PolicyProblem problem = ProblemOfBids();
  if (const auto* reply = std::get_if<BidReply>(&*message)) {
    if (!policy::CheckOwnBid(reply->bid, problem.types, problem.capacity)
             .ok()) {
      return;
    }
    problem.apps[0].bid = reply->bid;
  }
  static const auto themis = MakePolicy("themis_f=0");
  auto result = (*themis)->Solve(problem);
  Require(result.ok(), "a bid that was accepted can be solved with");
  Require(result->assignment.size() == 3, "nothing stays idle");
  const auto* reply = std::get_if<DivideReply>(&*message);
  if (reply == nullptr) return;
  const auto won = policy::AcceleratorsOf(problem, result->assignment);
  policy::Divide(problem, {{0, reply->places}}, result->assignment);
  const auto divided = policy::AcceleratorsOf(problem, result->assignment);
  Require(divided[1] == won[1], "a division is of the app's own accelerators");
  for (size_t type = 0; type < problem.types.size(); ++type) {
    Require(divided[0][type] <= won[0][type], "and not of more than it has");
  }
}

std::vector<std::string> BidSeeds() {
  const BidderKey key{"ann", "search", 7};
  return {*EncodeMessage(BidReply{
              key, 3, {2, 4, {{{{0, 1}}, 2.5}, {{{0, 2}, {1, 1}}, 1.5}}}}),
          *EncodeMessage(DivideReply{key, 3, {{JobId(2), 0}, {JobId(1), 1}}})};
}

namespace {

// One of each type of the variant, filled at random.
template <class V, class Variant = V, size_t index = 0>
void AddFilled(std::vector<V>* all) {
  if constexpr (index < std::variant_size_v<Variant>) {
    V value(std::in_place_index<index>);
    testing::RandomFields(index + 1).Fill(std::get<index>(value));
    all->push_back(std::move(value));
    AddFilled<V, Variant, index + 1>(all);
  }
}

}  // namespace

std::vector<std::string> MessageSeeds() {
  std::vector<Message> messages;
  AddFilled<Message, MessageVariant>(&messages);
  std::vector<std::string> seeds;
  for (const Message& message : messages) {
    seeds.push_back(*EncodeMessage(message));
  }
  return seeds;
}

std::vector<std::string> EventSeeds() {
  const WorkerKey key{JobId(3), 1, 4};
  event::LeaseEnded ended{key, 9, {}, true, ReleaseCause::kOutOfMemory};
  ended.progress.scalars = {{"loss", 0.25}};
  event::JobSubmitted submitted;
  submitted.spec.name = "a";
  submitted.spec.argv = {"./train", "--x"};
  submitted.spec.environment = {{"K", "V"}};
  submitted.spec.deadline_s = 10;
  submitted.spec.throughputs = {{"v100", 2.5}};
  event::ServerJoined joined;
  joined.hello.server = "here";
  joined.hello.accelerators.resize(2);
  joined.hello.running = {{key, 4711}};
  event::AllocationReady ready;
  ready.epoch = 12;
  ready.result.allocation = Allocation::FromRows(
      {{JobId(1), {}}, {JobId(3), {}}}, 2, {0.5, -0.0, 1e-300, 1});
  ready.result.assignment = {{{JobId(1), JobId(2)}, 1}};
  ready.result.left_out = {JobId(9)};
  const std::vector<Event> events = {
      event::CoordinatorStarted{7, 360, 60, MechanismKind::kMoveAware,
                                QueueKind::kPerType, 4},
      submitted,
      joined,
      event::LeaseStarted{key, 9, AcceleratorId(2)},
      ended,
      event::WorkerGone{},
      ready,
      event::RoundPlanned{{{{JobId(1), JobId(2)}, {AcceleratorId(4)}}}},
      event::RoundStarted{{{JobId(1), PauseTier::kKeep}}},
      event::PricesChanged{{{"v100", 0.74}}},
      event::WorkersEvicted{{key}}};
  std::vector<std::string> seeds;
  for (const Event& event : events) seeds.push_back(EncodeEvent(event));
  return seeds;
}

std::vector<std::string> StreamSeeds() {
  const std::vector<StreamMessage> messages = {
      StreamOpen{1, JobId(2), {3, 4}},
      StreamRead{1, kStreamManifest, 10, 100},
      StreamClose{1},
      StreamOpened{1, 2, {3, 4}, 500, 0xfedcba9876543210},
      StreamChunk{1, 0, 64, StreamChecksum("data"), "data"},
      StreamRefused{0, 1, StreamRefusal::kCannotRead, "no such file"}};
  std::vector<std::string> seeds;
  for (const StreamMessage& message : messages) {
    seeds.push_back(EncodeStreamMessage(message));
  }
  return seeds;
}

}  // namespace gavel::fuzz
