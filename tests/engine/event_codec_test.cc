#include <cstring>
#include <optional>

#include "coordinator/engine/event.h"
#include "coordinator/engine/fields.h"
#include "core/packer.h"
#include "tests/engine/durable_events.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(EventCodec, EveryDurableEventComesBackAsItWas) {
  for (const Event& event : DurableEvents()) {
    ASSERT_TRUE(IsDurable(event)) << EventName(event);
    const std::string row = EncodeEvent(event);
    ASSERT_OK_AND_ASSIGN(const Event back, DecodeEvent(row));
    EXPECT_EQ(back.index(), event.index());
    EXPECT_EQ(EncodeEvent(back), row) << EventName(event);
  }
}

TEST(EventCodec, FieldsKeepTheirValues) {
  const std::vector<Event> events = DurableEvents();
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

// The index of an event type in the variant is its number in all journals, so
// it must never change.
TEST(EventCodec, NumbersNeverChange) {
  EXPECT_EQ(Event(event::CoordinatorStarted{}).index(), 0u);
  EXPECT_EQ(Event(event::LeaseStarted{}).index(), 7u);
  EXPECT_EQ(Event(event::RoundStarted{}).index(), 14u);
  EXPECT_EQ(Event(event::JobsResized{}).index(), 18u);
  EXPECT_EQ(Event(event::AcceleratorsDrained{}).index(), 19u);
  EXPECT_EQ(Event(event::ServerForgotten{}).index(), 22u);
}

// Jobs of the classes that earlier versions called "interactive" and
// "inference" were training jobs, and stay so.
TEST(EventCodec, ClassesOfEarlierVersionsAreReadAsTraining) {
  const auto read = [](uint64_t number) -> std::optional<JobClass> {
    Packer packer(kJournalLimits);
    packer.Array(1);
    packer.Put(number);
    const std::string bytes = packer.Take();
    Unpacker unpacker(bytes, kJournalLimits);
    JobClass job_class = JobClass::kOpaque;
    GetField(unpacker, job_class);
    if (!unpacker.ok()) return std::nullopt;
    return job_class;
  };
  EXPECT_EQ(read(0), JobClass::kTraining);
  EXPECT_EQ(read(1), JobClass::kTraining);
  EXPECT_EQ(read(2), JobClass::kTraining);
  EXPECT_EQ(read(3), JobClass::kOpaque);
  EXPECT_EQ(read(4), JobClass::kInteractive);
  EXPECT_EQ(read(5), std::nullopt);
}

TEST(EventCodec, AnyTruncatedRowIsRefused) {
  for (const Event& event : DurableEvents()) {
    const std::string row = EncodeEvent(event);
    for (size_t size = 0; size < row.size(); ++size) {
      EXPECT_THAT(DecodeEvent(row.substr(0, size)),
                  StatusIs(absl::StatusCode::kDataLoss, ""));
    }
  }
}

TEST(EventCodec, AnEventOfALaterVersionIsNamedByItsNumber) {
  std::string row = EncodeEvent(event::RoundStarted{});
  ASSERT_EQ(row[1], 14);  // the event's number, first in the array
  row[1] = 99;
  EXPECT_THAT(DecodeEvent(row),
              StatusIs(absl::StatusCode::kDataLoss, "event number 99"));
}

Allocation OfRow(const std::string& row) {
  const absl::StatusOr<Event> event = DecodeEvent(row);
  EXPECT_OK(event);
  return event.ok() ? std::get<event::AllocationReady>(*event).result.allocation
                    : Allocation();
}

void ExpectSame(const Allocation& a, const Allocation& b) {
  ASSERT_TRUE(std::ranges::equal(a.units(), b.units()));
  ASSERT_EQ(a.columns(), b.columns());
  for (size_t u = 0; u < a.units().size(); ++u) {
    // The bits have to be the same, because a replay must decide the same.
    EXPECT_EQ(std::memcmp(a.RowAt(u).data(), b.RowAt(u).data(),
                          a.columns() * sizeof(double)),
              0)
        << u;
  }
}

// The ids have gaps, as when jobs come and go in a cluster. There are pairs,
// and three kinds of single jobs' shares.
TEST(EventCodec, AnAllocationOfAFewKindsIsShort) {
  std::vector<ShareUnit> units;
  std::vector<double> shares;
  for (uint64_t job = 1; job <= 10'000; ++job) {
    if (job % 97 == 0) continue;
    units.push_back({JobId(job), JobId()});
    const double share = static_cast<double>(job % 3) / 7;
    shares.insert(shares.end(), {share, -0.0, 1 - share});
    if (job % 1000 != 0) continue;
    units.push_back({JobId(job), JobId(job + 2)});
    shares.insert(shares.end(), {0, 1e-300, 0.5});
  }
  event::AllocationReady ready{3, {}};
  ready.result.allocation = Allocation::FromRows(units, 3, shares);
  const std::string row = EncodeEvent(ready);
  EXPECT_LT(row.size(), 5 * units.size());
  ExpectSame(OfRow(row), ready.result.allocation);
  EXPECT_EQ(EncodeEvent(*DecodeEvent(row)), row);
}

TEST(EventCodec, AllocationsOfEqualJobsTakeAFewBytes) {
  std::vector<ShareUnit> units;
  for (uint64_t job = 5; job < 10'005; ++job) {
    units.push_back({JobId(job), JobId()});
  }
  event::AllocationReady ready{3, {}};
  ready.result.allocation = Allocation::FromClasses(
      units, std::vector<uint32_t>(units.size(), 1), 2, {0, 0, 0.25, 0.5});
  const std::string row = EncodeEvent(ready);
  EXPECT_LT(row.size(), 100u);
  ExpectSame(OfRow(row), ready.result.allocation);
}

// An answer up to its allocation in the format of older journals, in which the
// allocation lists the shares of every unit.
Packer OlderAnswer() {
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
  return packer;
}

TEST(EventCodec, AnAllocationOfAnOlderJournalIsRead) {
  Packer packer = OlderAnswer();
  packer.Put(uint64_t{1});
  packer.Array(2);
  for (const uint64_t job : {3, 7}) {
    packer.Array(2);
    packer.Put(job);
    packer.Put(uint64_t{0});
  }
  packer.Array(2);
  packer.Put(0.25);
  packer.Put(0.75);
  const Allocation read = OfRow(packer.Take());
  EXPECT_EQ(read.Row(JobId(3)), (std::vector<double>{0.25}));
  EXPECT_EQ(read.Row(JobId(7)), (std::vector<double>{0.75}));
}

TEST(AllocationRows, WhatDoesNotFitIsRefused) {
  const std::vector<double> shares = {0.5, 1};  // two rows, one column
  const auto read = [&](std::vector<uint64_t> alone,
                        std::vector<uint64_t> pairs) {
    return FromAllocationRows({1, {}, shares, alone, pairs}).has_value();
  };
  constexpr uint64_t kMost = ~uint64_t{0};
  EXPECT_TRUE(read({1, 2, 0}, {1, 2, 1}));
  EXPECT_FALSE(read({1, 2}, {}));              // not a multiple of three
  EXPECT_FALSE(read({1, 2, 2}, {}));           // no such row
  EXPECT_FALSE(read({0, 2, 0}, {}));           // no such job
  EXPECT_FALSE(read({1, 0, 0}, {}));           // a run of no jobs
  EXPECT_FALSE(read({1, kMost, 0}, {}));       // more than there can be
  EXPECT_FALSE(read({kMost, 2, 0}, {}));       // beyond the last id
  EXPECT_FALSE(read({}, {1, 0, 0}));           // no partner
  EXPECT_FALSE(read({}, {1, 2, 0, 1, 2, 0}));  // twice
}

// Two units with 2^63 columns each: the product overflows to 0, which is the
// number of shares.
TEST(EventCodec, AnAllocationOfAbsurdWidthOverflowsNothing) {
  Packer packer = OlderAnswer();
  packer.Put(uint64_t{1} << 63);
  packer.Array(2);
  packer.Array(0);
  packer.Array(0);
  packer.Array(0);
  EXPECT_THAT(DecodeEvent(packer.Take()),
              StatusIs(kDataLoss, "shares do not match its units"));
}

}  // namespace
}  // namespace gavel
