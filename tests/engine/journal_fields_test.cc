// The journal and the snapshots hold all that they should, in the same bytes as
// before: every member of every struct is on its list of fields. To write the
// bytes anew after a field was appended, run the following command and read the
// diff, in which a row may only have become longer:
//
//   GAVEL_REWRITE_GOLDEN=1 build/bin/tests/engine_test
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/escaping.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/fields.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/engine/durable_events.h"
#include "tests/engine/engine_driver.h"
#include "tests/support/field_count.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// `forgotten` is the number of members that are not journaled; their
// declarations say so.
template <class T>
void ExpectEveryMemberListed(size_t forgotten = 0) {
  T value;
  EXPECT_EQ(std::tuple_size_v<decltype(Fields(value))> + forgotten,
            testing::FieldCount<T>())
      << "a member of " << typeid(T).name()
      << " is not on its list in fields.h: it would be lost at a "
         "restart";
}

TEST(JournalFields, EveryMemberOfEveryStructIsListed) {
  ExpectEveryMemberListed<ShareUnit>();
  ExpectEveryMemberListed<JobSpec>();
  ExpectEveryMemberListed<PolicyEntity>();
  ExpectEveryMemberListed<ThroughputTable::Figures>();
  ExpectEveryMemberListed<TypeAssignment>();
  ExpectEveryMemberListed<AppBid>();
  // The base class counts as one member here, and its `iterations` is not
  // journaled.
  PolicyResult result;
  EXPECT_EQ(std::tuple_size_v<decltype(Fields(result))>,
            testing::FieldCount<PolicyResult>() - 2 +
                testing::FieldCount<SolveReport>());
  ExpectEveryMemberListed<ReasonRow>();
  ExpectEveryMemberListed<Resize>();
  ExpectEveryMemberListed<OwnAnswer>();
  ExpectEveryMemberListed<TrialNote>();
  ExpectEveryMemberListed<engine::IntrospectionBook::Pair>();
  ExpectEveryMemberListed<engine::IntrospectionBook::Move>();
  ExpectEveryMemberListed<engine::IntrospectionBook::Attempt>();
  ExpectEveryMemberListed<engine::IntrospectionBook::Lesson>();
  ExpectEveryMemberListed<ProfiledCell>();
  ExpectEveryMemberListed<Worker::Known>();
  ExpectEveryMemberListed<Worker>(6);
  ExpectEveryMemberListed<Parent>();
  ExpectEveryMemberListed<Job::Pace>();
  ExpectEveryMemberListed<Job>(8);
  ExpectEveryMemberListed<Agent>(1);
  ExpectEveryMemberListed<engine::App>();
  ExpectEveryMemberListed<DecidingPolicy>();
  ExpectEveryMemberListed<Accelerator>();
  ExpectEveryMemberListed<TimeReceived::Seconds>();
  ExpectEveryMemberListed<AcceleratorSpeeds::Rate>();
  ExpectEveryMemberListed<ThroughputMatrix::Figure>();
}

// The row also holds `told`, beside the settings.
TEST(JournalFields, EverySettingIsListed) {
  event::Settings settings;
  EXPECT_EQ(std::tuple_size_v<decltype(Fields(settings))>,
            testing::FieldCount<DecisionSettings>() + 1);
}

// The number of members that are not journaled; their declarations say so.
template <class E>
constexpr size_t kNotJournaled = 0;
template <>
constexpr size_t kNotJournaled<event::JobSubmitted> = 4;
template <>
constexpr size_t kNotJournaled<event::JobCommanded> = 1;
template <>
constexpr size_t kNotJournaled<event::LeaseEnded> = 1;
template <>
constexpr size_t kNotJournaled<event::StepsReported> = 1;
template <>
constexpr size_t kNotJournaled<event::RoundPlanned> = 1;
template <>
constexpr size_t kNotJournaled<event::AcceleratorsDrained> = 1;
template <>
constexpr size_t kNotJournaled<event::JobUpdated> = 1;
template <>
constexpr size_t kNotJournaled<event::PolicyChanged> = 1;
template <>
constexpr size_t kNotJournaled<event::ServerForgotten> = 1;
template <>
constexpr size_t kNotJournaled<event::AppGoalSet> = 1;

TEST(JournalFields, EveryMemberOfEveryDurableEventIsWritten) {
  for (const Event& event : DurableEvents()) {
    Unpacker row(EncodeEvent(event), kJournalLimits);
    uint64_t number = 0;
    row.Get(number);
    const size_t written = row.Enter();
    std::visit(
        [&]<class E>(const E&) {
          EXPECT_EQ(written, testing::FieldCount<E>() - kNotJournaled<E>)
              << "a member of " << EventName(event)
              << " is not on its list in event.cc";
        },
        event);
  }
}

TEST(JournalFields, DurableEventsHasOneOfEach) {
  const std::vector<Event> events = DurableEvents();
  std::map<size_t, int> found;
  for (const Event& event : events) ++found[event.index()];
  for (size_t number = 0; number < std::variant_size_v<EventVariant>;
       ++number) {
    const bool last = number + 1 > events.size();
    EXPECT_EQ(found[number], last ? 0 : 1) << number;
  }
  EXPECT_FALSE(IsDurable(Event(event::LeaseRequested{})));
  EXPECT_EQ(Event(event::LeaseRequested{}).index(), events.size());
}

// Compares lines of "NAME BYTES" with those of a file of tests/golden.
void ExpectGolden(
    const std::string& file,
    const std::vector<std::pair<std::string, std::string>>& rows) {
  const std::filesystem::path path =
      std::filesystem::path(GAVEL_SOURCE_DIR) / "tests" / "golden" / file;
  if (std::getenv("GAVEL_REWRITE_GOLDEN") != nullptr) {
    std::ofstream out(path);
    for (const auto& [name, bytes] : rows) {
      out << name << ' ' << absl::BytesToHexString(bytes) << '\n';
    }
    return;
  }
  std::map<std::string, std::string> golden;
  std::ifstream in(path);
  for (std::string name, bytes; in >> name >> bytes;) golden[name] = bytes;
  EXPECT_EQ(golden.size(), rows.size());
  for (const auto& [name, bytes] : rows) {
    EXPECT_EQ(absl::BytesToHexString(bytes), golden[name])
        << name << ": journals and snapshots that were written before would be "
        << "read wrongly, unless a field was only appended";
  }
}

TEST(JournalFields, BytesOfEachRowStayWhatTheyAre) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Event& event : DurableEvents()) {
    rows.emplace_back(EventName(event), EncodeEvent(event));
  }
  ExpectGolden("rows.hex", rows);
}

// A job that trains, one that waits and one that is held.
TEST(JournalFields, BytesOfASnapshotStayWhatTheyAre) {
  EngineDriver driver(2);
  driver.Submit("first");
  driver.Run(JobId(1));
  driver.Submit("second");
  driver.Submit("third");
  driver.Step(event::JobCommanded{JobId(3), CommandKind::kHold});
  driver.At(20);
  ASSERT_OK_AND_ASSIGN(const std::string snapshot, driver.engine().Snapshot());
  ExpectGolden("snapshot.hex", {{"snapshot", snapshot}});
}

}  // namespace
}  // namespace gavel
