#include "core/codec.h"

#include <variant>

#include "core/message_fields.h"
#include "tests/support/field_count.h"
#include "tests/support/random_fields.h"
#include "tests/support/test.h"

namespace gavel {

// For the fields of QueryRequest, which has one.
static bool operator==(const SubmitRequest& a, const SubmitRequest& b) {
  return Fields(a) == Fields(b);
}

namespace {

constexpr size_t kTypes = std::variant_size_v<MessageVariant>;
constexpr size_t kTypeByte = 4;

template <size_t... index>
std::vector<Message> DefaultOfEach(std::index_sequence<index...>) {
  return {Message(std::in_place_index<index>)...};
}

// One message of every type, all fields default.
std::vector<Message> Defaults() {
  return DefaultOfEach(std::make_index_sequence<kTypes>());
}

// One message of every type, no field default.
std::vector<Message> Filled(uint64_t seed) {
  testing::RandomFields random(seed);
  std::vector<Message> messages = Defaults();
  for (Message& message : messages) {
    std::visit([&](auto& body) { random.Fill(body); }, message);
  }
  return messages;
}

std::string Encode(const Message& message) {
  auto frame = EncodeMessage(message);
  EXPECT_THAT(frame, IsOk());
  return *std::move(frame);
}

// Also compares the positions' proofs, which operator== ignores.
bool Same(const Message& a, const Message& b) {
  const auto equal = [&b](const auto& body) {
    using Body = std::decay_t<decltype(body)>;
    return Fields(body) == Fields(std::get<Body>(b));
  };
  return a.index() == b.index() && std::visit(equal, a) &&
         Encode(a) == Encode(b);
}

// The header of a frame of `type`; msgpack written by hand follows it.
std::string Header(size_t type) {
  return std::string("GVL\x01") + static_cast<char>(type);
}

template <class T>
constexpr size_t TypeOf() {
  return Message(T{}).index() + 1;
}

TEST(Codec, EveryMessageGoesRoundTripWithEveryFieldSet) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const Message& message : Filled(seed)) {
      SCOPED_TRACE(MessageName(message));
      ASSERT_OK_AND_ASSIGN(const Message read, DecodeMessage(Encode(message)));
      EXPECT_TRUE(Same(read, message));
    }
  }
}

TEST(Codec, EveryMessageGoesRoundTripWithDefaults) {
  for (const Message& message : Defaults()) {
    SCOPED_TRACE(MessageName(message));
    ASSERT_OK_AND_ASSIGN(const Message read, DecodeMessage(Encode(message)));
    EXPECT_TRUE(Same(read, message));
  }
}

template <class T>
void ExpectEveryFieldListed() {
  T value;
  EXPECT_EQ(std::tuple_size_v<decltype(Fields(value))>,
            testing::FieldCount<T>())
      << "a field of " << typeid(T).name() << " is not in message_fields.h";
}

TEST(Codec, EveryFieldOfEveryStructIsOnItsList) {
  for (const Message& message : Defaults()) {
    std::visit(
        [](const auto& body) {
          ExpectEveryFieldListed<std::decay_t<decltype(body)>>();
        },
        message);
  }
  ExpectEveryFieldListed<Generation>();
  ExpectEveryFieldListed<WorkerId>();
  ExpectEveryFieldListed<WorkerKey>();
  ExpectEveryFieldListed<JournalPosition>();
  ExpectEveryFieldListed<PositionProof>();
  ExpectEveryFieldListed<AcceleratorInfo>();
  ExpectEveryFieldListed<AcceleratorHealth>();
  ExpectEveryFieldListed<Progress>();
  ExpectEveryFieldListed<RunningWorker>();
  ExpectEveryFieldListed<JobUpdate>();
  ExpectEveryFieldListed<AppGoal>();
}

// These bytes are the protocol: a change here needs a new kProtocolVersion.
TEST(Codec, BytesOnTheWireStayWhatTheyAre) {
  const LeaseNotice notice{{JobId(12), 1, 3}, {2, 300}, 7};
  using namespace std::string_literals;
  EXPECT_EQ(Encode(notice),
            "GVL\x01\x08\x93\x93\x0c\x01\x03\x93\x02\xcd\x01\x2c\x92"
            "\x00\x00\x07"s);
}

TEST(Codec, APositionKeepsItsProofAndMayHaveNone) {
  LeaseNotice notice{{JobId(12), 1, 3}, {2, 300}, 7};
  notice.position.proof = {uint64_t{1} << 63, 5};
  ASSERT_OK_AND_ASSIGN(const Message read, DecodeMessage(Encode(notice)));
  EXPECT_EQ(std::get<LeaseNotice>(read).position.proof, notice.position.proof);
  // Positions compare equal by term and seq alone.
  EXPECT_EQ(notice.position, (JournalPosition{2, 300}));
  // A message as it was written before there were proofs.
  using namespace std::string_literals;
  ASSERT_OK_AND_ASSIGN(
      const Message older,
      DecodeMessage(
          "GVL\x01\x08\x93\x93\x0c\x01\x03\x92\x02\xcd\x01\x2c\x07"s));
  EXPECT_EQ(std::get<LeaseNotice>(older).position, (JournalPosition{2, 300}));
  EXPECT_EQ(std::get<LeaseNotice>(older).position.proof, PositionProof());
}

TEST(Codec, TypesOnTheWireStayWhatTheyAre) {
  std::vector<std::string> names;
  for (const Message& message : Defaults()) {
    names.emplace_back(MessageName(message));
    EXPECT_EQ(Encode(message)[kTypeByte], static_cast<char>(names.size()));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "WorkerHello",        "LeaseRequest",    "StepReport",
                "LeaseReleased",      "WorkerFinished",  "LeaseGrant",
                "LeaseDenied",        "LeaseNotice",     "PauseRequest",
                "WorkerRejected",     "AgentHello",      "AgentHeartbeat",
                "WorkerLaunched",     "WorkerExited",    "AgentWelcome",
                "AgentRejected",      "LaunchWorker",    "StopWorker",
                "ExitAcknowledged",   "SubmitRequest",   "SubmitReply",
                "CommandRequest",     "CommandReply",    "QueryRequest",
                "QueryReply",         "LogRequest",      "LogReply",
                "PrefetchCheckpoint", "ServeCheckpoint", "FetchProgress",
                "BytesMoved",         "AgentLeaving",    "CheckpointRequest",
                "BidderHello",        "BidRequest",      "BidReply",
                "DivideRequest",      "DivideReply",     "BidderNotice",
                "TerminalRequest",    "TerminalReply",   "TerminalActive",
                "TerminalNotice",     "AppGoalRequest"}));
}

TEST(Codec, PauseTiersOnTheWireStayWhatTheyAre) {
  PauseRequest request;
  for (const auto& [tier, byte] :
       {std::pair{PauseTier::kPark, 0}, std::pair{PauseTier::kEvict, 1},
        std::pair{PauseTier::kStop, 2}, std::pair{PauseTier::kKeep, 3}}) {
    request.tier = tier;
    EXPECT_EQ(Encode(request).back(), byte);
  }
}

TEST(Messages, PauseTiersAreStrongerTheMoreTheyTakeAway) {
  const std::vector<PauseTier> rising = {PauseTier::kKeep, PauseTier::kPark,
                                         PauseTier::kEvict, PauseTier::kStop};
  for (size_t a = 0; a < rising.size(); ++a) {
    for (size_t b = 0; b < rising.size(); ++b) {
      EXPECT_EQ(StrongerThan(rising[a], rising[b]), a > b) << a << " " << b;
    }
  }
}

// A worker of the previous version reports fewer fields.
TEST(Codec, ProgressOfAnOlderWorkerKnowsNoMemory) {
  Packer packer;
  packer.Array(3);
  packer.Array(0);
  packer.Put(7);
  packer.Array(1);
  packer.Put(1200);
  ASSERT_OK_AND_ASSIGN(
      const Message read,
      DecodeMessage(Header(TypeOf<LeaseReleased>()) + packer.Take()));
  const auto& released = std::get<LeaseReleased>(read);
  EXPECT_EQ(released.progress.steps_done, 1200u);
  EXPECT_EQ(released.progress.device_bytes, 0u);
  EXPECT_EQ(released.cause, ReleaseCause::kPaused);
}

TEST(Codec, NamesBelongToTheirTypes) {
  EXPECT_EQ(MessageName(WorkerHello{}), "WorkerHello");
  EXPECT_EQ(MessageName(LeaseGrant{}), "LeaseGrant");
  EXPECT_EQ(MessageName(AgentHello{}), "AgentHello");
  EXPECT_EQ(MessageName(LaunchWorker{}), "LaunchWorker");
  EXPECT_EQ(MessageName(SubmitRequest{}), "SubmitRequest");
  EXPECT_EQ(MessageName(LogReply{}), "LogReply");
}

TEST(Codec, NewerWriterWithMoreFieldsIsUnderstood) {
  Packer packer;
  packer.Array(6);
  packer.Array(5);  // WorkerKey with two more
  for (const int value : {12, 1, 3, 77, 78}) packer.Put(value);
  packer.Array(2);
  for (const int value : {2, 300}) packer.Put(value);
  packer.Put(7);
  packer.Put(std::string_view("a field of the next version"));
  packer.Array(1);
  packer.Array(0);
  packer.Put(0.5);
  ASSERT_OK_AND_ASSIGN(
      const Message read,
      DecodeMessage(Header(TypeOf<LeaseNotice>()) + packer.Take()));
  EXPECT_TRUE(Same(read, LeaseNotice{{JobId(12), 1, 3}, {2, 300}, 7}));
}

TEST(Codec, OlderWriterWithFewerFieldsGivesDefaults) {
  Packer packer;
  packer.Array(1);
  packer.Array(1);
  packer.Put(12);
  ASSERT_OK_AND_ASSIGN(
      const Message read,
      DecodeMessage(Header(TypeOf<LeaseGrant>()) + packer.Take()));
  LeaseGrant expected;
  expected.worker.job = JobId(12);
  EXPECT_TRUE(Same(read, expected));
  EXPECT_EQ(std::get<LeaseGrant>(read).slots, 2);
}

TEST(Codec, EveryMessageOfNoFieldsIsAllDefaults) {
  for (const Message& message : Defaults()) {
    ASSERT_OK_AND_ASSIGN(const Message read,
                         DecodeMessage(Header(message.index() + 1) + "\x90"));
    EXPECT_TRUE(Same(read, message));
  }
}

TEST(Codec, AFrameCutAnywhereIsRefused) {
  for (const Message& message : Filled(2)) {
    SCOPED_TRACE(MessageName(message));
    const std::string frame = Encode(message);
    for (size_t size = 0; size < frame.size(); ++size) {
      EXPECT_THAT(DecodeMessage(frame.substr(0, size)), IsInvalid("")) << size;
    }
    EXPECT_THAT(DecodeMessage(frame + '\0'), IsInvalid("behind the array"));
  }
}

TEST(Codec, ErrorsNameTheMessageAndTheField) {
  EXPECT_THAT(DecodeMessage(Header(TypeOf<LeaseGrant>()) + "\x91\x91\xc3"),
              IsInvalid("LeaseGrant: field 1.1 is a boolean, not an integer"));
}

// Frozen: all versions, past and to come, write and read it like this.
TEST(Codec, ARefusalOfAVersionStaysWhatItIs) {
  using namespace std::string_literals;
  EXPECT_EQ(EncodeVersionRefusal(),
            "GVL\x00\x01\x01this Gavel speaks protocol 1; use one release of "
            "it on all machines"s);
  EXPECT_THAT(DecodeMessage("GVL\x00\x02\x04hello"s),
              StatusIs(kFailedPrecondition,
                       "the peer speaks protocols 2 to 4, this is 1; update "
                       "this side (it says: hello)"));
  EXPECT_THAT(DecodeMessage("GVL\x00\x00\x00"s),
              StatusIs(kFailedPrecondition,
                       "the peer speaks protocol 0, this is 1; update the "
                       "peer"));
}

TEST(Codec, ARefusalIsReadWithinBounds) {
  using namespace std::string_literals;
  EXPECT_THAT(DecodeMessage("GVL\x00"s), IsInvalid("not a frame"));
  EXPECT_THAT(DecodeMessage("GVL\x00\x02"s), IsInvalid("without its versions"));
  const absl::Status read =
      DecodeMessage("GVL\x00\x02\x02\x1b[2J\xff\n"s + std::string(60000, 'x'))
          .status();
  EXPECT_THAT(read, StatusIs(kFailedPrecondition, "[2Jxxx"));
  EXPECT_LT(read.message().size(), kRefusalTextBytesMax + 100);
  EXPECT_EQ(read.message().find('\x1b'), absl::string_view::npos);
}

TEST(Codec, AnotherProtocolVersionSaysWhichSideToUpdate) {
  std::string frame = Encode(LeaseNotice{});
  frame[3] = 2;
  EXPECT_THAT(DecodeMessage(frame),
              StatusIs(kFailedPrecondition,
                       "the peer speaks protocol 2, this is 1; update the "
                       "older side"));
}

TEST(Codec, ForeignTrafficIsRefused) {
  EXPECT_THAT(DecodeMessage(""), IsInvalid("not a frame"));
  EXPECT_THAT(DecodeMessage("GVL\x01"), IsInvalid("not a fr"));
  EXPECT_THAT(DecodeMessage("GET / HTTP/1.1\r\n"),
              IsInvalid("is the port right?"));
}

TEST(Codec, UnknownTypesAreRefused) {
  for (const size_t type : {size_t{0}, kTypes + 1, size_t{255}}) {
    EXPECT_THAT(DecodeMessage(Header(type) + "\x90"),
                IsInvalid("is not known here"));
  }
}

TEST(Codec, LongFramesAreRefusedOnBothSides) {
  SubmitRequest request;
  request.toml = std::string(kStringBytesMax, 'x');
  EXPECT_THAT(DecodeMessage(Encode(request)), IsOk());
  request.source = std::string(kFrameBytesMax - kStringBytesMax, 'x');
  EXPECT_THAT(EncodeMessage(request),
              StatusIs(kResourceExhausted, "SubmitRequest: a frame of "));
  EXPECT_THAT(DecodeMessage(std::string(kFrameBytesMax + 1, 'G')),
              IsInvalid("exceeds the 65536 allowed"));
}

TEST(Codec, TheLongestFrameIsAccepted) {
  SubmitRequest request;
  request.toml = std::string(kStringBytesMax, 'x');
  request.source = std::string(1000, 'x');
  request.source.resize(1000 + kFrameBytesMax - Encode(request).size(), 'x');
  const std::string frame = Encode(request);
  EXPECT_EQ(frame.size(), kFrameBytesMax);
  EXPECT_THAT(DecodeMessage(frame), IsOk());
}

TEST(Codec, TooManyElementsAreRefusedByTheWriter) {
  AgentHello hello;
  hello.running.resize(kArrayElementsMax + 1);
  EXPECT_THAT(EncodeMessage(hello),
              StatusIs(kResourceExhausted, "AgentHello: an array of 4097"));
}

TEST(Codec, TooLongStringsAreRefusedByTheWriter) {
  LogReply reply;
  reply.data = std::string(kStringBytesMax + 1, 'x');
  EXPECT_THAT(EncodeMessage(reply),
              StatusIs(kResourceExhausted, "LogReply: a string of 61441"));
}

TEST(Codec, UnknownChoicesAreRefused) {
  PauseRequest request;
  request.tier = PauseTier::kStop;
  std::string frame = Encode(request);
  frame.back() = 4;
  EXPECT_THAT(DecodeMessage(frame),
              IsInvalid("PauseRequest: field 4 is a choice"));
}

}  // namespace
}  // namespace gavel
