#include "coordinator/engine/event_codec.h"

#include "core/packer.h"
#include "tests/support/status_matchers.h"

namespace gavel {
namespace {

using testing::StatusIs;

// One of every durable event, with something in it.
std::vector<Event> Durable() {
  const WorkerKey key{JobId(3), 1, 4};
  Progress progress;
  progress.steps_done = 77;
  progress.last_generation = {5, 70};
  progress.scalars = {{"loss", 0.25}};
  JobSpec spec;
  spec.name = "a";
  spec.argv = {"./train", "--x"};
  spec.environment = {{"K", "V"}};
  spec.job_class = JobClass::kInference;
  spec.deadline_s = 10;
  spec.throughputs = {{"v100", 2.5}};
  WorkerHello worker_hello;
  worker_hello.worker = key;
  worker_hello.progress = progress;
  AgentHello hello;
  hello.server = "here";
  hello.accelerators.resize(2);
  hello.running = {{key, 4711}};
  WorkerExited exit;
  exit.worker = key;
  exit.launch_error = "no such file";
  exit.no_failure = true;
  PolicyResult result;
  result.outcome = SolveOutcome::kIterationLimit;
  result.allocation = Allocation::FromRows({{JobId(1), {}}, {JobId(3), {}}}, 2,
                                           {0.5, -0.0, 1e-300, 1});
  result.assignment = {{{JobId(1), JobId(2)}, 1}};
  result.each_round = true;
  result.left_out = {JobId(9)};
  result.gap = 1e-9;
  result.solver = "highs";
  return {event::CoordinatorStarted{7, 360, 60, MechanismKind::kMoveAware,
                                    QueueKind::kPerType, 4},
          event::JobSubmitted{spec, 0},
          event::JobCommanded{JobId(2), CommandKind::kRelease, 0},
          event::ServerJoined{hello},
          event::ServerLost{"here"},
          event::AcceleratorLost{"here", "here-0"},
          event::WorkerJoined{worker_hello},
          event::LeaseStarted{key, 9, AcceleratorId(2)},
          event::LeaseEnded{key, 9, progress, true},
          event::StepsReported{key, 9, progress},
          event::WorkerGone{exit},
          event::WorkerAbandoned{key},
          event::AllocationReady{12, result},
          event::RoundPlanned{
              {{{JobId(1), JobId(2)}, {AcceleratorId(4), AcceleratorId(5)}}},
              std::nullopt,
              {{JobId(1), JobId(2)}}},
          event::RoundStarted{},
          event::PricesChanged{{{"v100", 0.74}}},
          event::UnitsAssigned{{{{JobId(3), JobId()}, {AcceleratorId(1)}}}}};
}

TEST(EventCodec, EveryDurableEventComesBackAsItWas) {
  for (const Event& event : Durable()) {
    ASSERT_TRUE(IsDurable(event)) << EventName(event);
    const std::string row = EncodeEvent(event);
    ASSERT_OK_AND_ASSIGN(const Event back, DecodeEvent(row));
    EXPECT_EQ(back.index(), event.index());
    EXPECT_EQ(EncodeEvent(back), row) << EventName(event);
  }
}

TEST(EventCodec, FieldsKeepTheirValues) {
  const std::vector<Event> events = Durable();
  ASSERT_OK_AND_ASSIGN(const Event submitted,
                       DecodeEvent(EncodeEvent(events[1])));
  EXPECT_EQ(std::get<event::JobSubmitted>(submitted).spec,
            std::get<event::JobSubmitted>(events[1]).spec);
  ASSERT_OK_AND_ASSIGN(const Event ready, DecodeEvent(EncodeEvent(events[12])));
  const PolicyResult& result = std::get<event::AllocationReady>(ready).result;
  EXPECT_EQ(result.allocation.Row(JobId(3)), (std::vector<double>{1e-300, 1}));
  EXPECT_EQ(result.assignment[0].type, 1u);
  EXPECT_EQ(result.gap, 1e-9);
  ASSERT_OK_AND_ASSIGN(const Event ended, DecodeEvent(EncodeEvent(events[8])));
  EXPECT_TRUE(std::get<event::LeaseEnded>(ended).finished);
}

TEST(EventCodec, VolatileEventsAreNotDurable) {
  for (const Event& event :
       {Event(event::LeaseRequested{}), Event(event::AgentHeard{}),
        Event(event::WorkerSaidFinished{}), Event(event::Persisted{}),
        Event(event::Tick{})}) {
    EXPECT_FALSE(IsDurable(event)) << EventName(event);
  }
}

// The position of an event is its number in every journal ever written.
TEST(EventCodec, NumbersNeverChange) {
  EXPECT_EQ(Event(event::CoordinatorStarted{}).index(), 0u);
  EXPECT_EQ(Event(event::LeaseStarted{}).index(), 7u);
  EXPECT_EQ(Event(event::RoundStarted{}).index(), 14u);
}

TEST(EventCodec, AnyTruncatedRowIsRefused) {
  for (const Event& event : Durable()) {
    const std::string row = EncodeEvent(event);
    for (size_t size = 0; size < row.size(); ++size) {
      EXPECT_THAT(DecodeEvent(row.substr(0, size)),
                  StatusIs(absl::StatusCode::kDataLoss, ""));
    }
  }
}

TEST(EventCodec, AnEventOfALaterVersionIsNamedByItsNumber) {
  std::string row = EncodeEvent(event::RoundStarted{});
  ASSERT_EQ(row[1], 14);  // of the array: the event's number
  row[1] = 99;
  EXPECT_THAT(DecodeEvent(row),
              StatusIs(absl::StatusCode::kDataLoss, "event number 99"));
}

// Of two units with 2^63 columns each: their product is 0, as is the number of
// shares.
TEST(EventCodec, AnAllocationOfAbsurdWidthOverflowsNothing) {
  Packer packer;
  packer.Array(2);
  packer.Put(static_cast<uint64_t>(Event(event::AllocationReady{}).index()));
  packer.Array(2);
  packer.Put(uint64_t{1});  // the epoch
  packer.Array(4);          // the result, up to its allocation
  packer.Put(uint64_t{0});
  packer.Put(std::string());
  packer.Put(false);
  packer.Array(3);
  packer.Put(uint64_t{1} << 63);
  packer.Array(2);
  packer.Array(0);
  packer.Array(0);
  packer.Array(0);
  EXPECT_THAT(
      DecodeEvent(packer.Take()),
      StatusIs(absl::StatusCode::kDataLoss, "shares do not match its units"));
}

}  // namespace
}  // namespace gavel
