#include "core/codec.h"

#include <array>
#include <utility>
#include <variant>

#include "core/closed_variant_members.h"
#include "core/message_fields.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

template class ClosedVariant<MessageVariant>;

namespace {

constexpr std::string_view kMagic = "GVL";
static_assert(kFrameHeaderBytes == kMagic.size() + 2);

constexpr size_t kMessageTypes = std::variant_size_v<MessageVariant>;

// The order is that of Message.
constexpr std::array<std::string_view, kMessageTypes> kNames = {
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
    "TerminalNotice",     "AppGoalRequest"};
static_assert(!kNames.back().empty(), "each message has a name");

template <size_t index>
Message GetMessage(Unpacker& unpacker) {
  Message message(std::in_place_index<index>);
  GetFields(unpacker, std::get<index>(message));
  return message;
}

// The reader of each type, in the order of Message.
using Reader = Message (*)(Unpacker&);
template <size_t... index>
constexpr std::array<Reader, kMessageTypes> MakeReaders(
    std::index_sequence<index...>) {
  return {GetMessage<index>...};
}
constexpr std::array<Reader, kMessageTypes> kReaders =
    MakeReaders(std::make_index_sequence<kMessageTypes>());

constexpr uint8_t kRefusalVersion = 0;

// Reads a peer's refusal of our protocol version and returns it as an error.
// People read the error, so unprintable characters of the peer's text are
// dropped.
absl::Status ReadRefusal(std::string_view frame) {
  const std::string_view body = frame.substr(kMagic.size() + 1);
  if (body.size() < 2) {
    return absl::InvalidArgumentError("a refusal without its versions");
  }
  const int lowest = static_cast<uint8_t>(body[0]);
  const int highest = static_cast<uint8_t>(body[1]);
  std::string text;
  for (const char c : body.substr(2, kRefusalTextBytesMax)) {
    if (c >= ' ' && c <= '~') text += c;
  }
  const std::string spoken =
      lowest == highest ? StrCat("protocol ", lowest)
                        : StrCat("protocols ", lowest, " to ", highest);
  return absl::FailedPreconditionError(
      StrCat("the peer speaks ", spoken, ", this is ",
             static_cast<int>(kProtocolVersion), "; update ",
             highest < kProtocolVersion ? "the peer" : "this side",
             text.empty() ? "" : " (it says: ", text, text.empty() ? "" : ")"));
}

// Checks the header and returns the index of the frame's type in Message.
absl::StatusOr<size_t> ReadHeader(std::string_view frame) {
  if (frame.size() > kFrameBytesMax) {
    return absl::InvalidArgumentError(StrCat("a frame of ", frame.size(),
                                             " bytes exceeds the ",
                                             kFrameBytesMax, " allowed"));
  }
  if (frame.size() < kFrameHeaderBytes ||
      frame.substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError(
        StrCat("not a frame of Gavel's protocol (", frame.size(),
               " bytes without its header); is the port right?"));
  }
  const auto version = static_cast<uint8_t>(frame[kMagic.size()]);
  if (version == kRefusalVersion) return ReadRefusal(frame);
  if (version != kProtocolVersion) {
    return absl::FailedPreconditionError(StrCat(
        "the peer speaks protocol ", static_cast<int>(version), ", this is ",
        static_cast<int>(kProtocolVersion), "; update the older side"));
  }
  const size_t type = static_cast<uint8_t>(frame[kMagic.size() + 1]);
  if (type == 0 || type > kMessageTypes) {
    return absl::InvalidArgumentError(
        StrCat("message type ", type, " is not known here (1 to ",
               kMessageTypes, "); update this side if the peer is newer"));
  }
  return type - 1;
}

}  // namespace

absl::StatusOr<std::string> EncodeMessage(const Message& message) {
  Packer packer;
  std::visit([&](const auto& body) { PutField(packer, body); }, message);
  const std::string_view name = MessageName(message);
  GAVEL_RETURN_IF_ERROR(Annotate(packer.status(), name));
  const size_t size = kFrameHeaderBytes + packer.size();
  if (size > kFrameBytesMax) {
    return absl::ResourceExhaustedError(
        StrCat(name, ": a frame of ", size, " bytes exceeds the ",
               kFrameBytesMax, " allowed; send it in parts"));
  }
  const char version_and_type[] = {static_cast<char>(kProtocolVersion),
                                   static_cast<char>(message.index() + 1)};
  return StrCat(kMagic, std::string_view(version_and_type, 2), packer.Take());
}

absl::StatusOr<Message> DecodeMessage(std::string_view frame) {
  GAVEL_ASSIGN_OR_RETURN(const size_t index, ReadHeader(frame));
  Unpacker unpacker(frame.substr(kFrameHeaderBytes));
  Message message = kReaders[index](unpacker);
  GAVEL_RETURN_IF_ERROR(Annotate(unpacker.status(), kNames[index]));
  return message;
}

std::string EncodeVersionRefusal() {
  const char versions[] = {static_cast<char>(kRefusalVersion),
                           static_cast<char>(kProtocolVersion),
                           static_cast<char>(kProtocolVersion)};
  return StrCat(kMagic, std::string_view(versions, sizeof versions),
                "this Gavel speaks protocol ",
                static_cast<int>(kProtocolVersion),
                "; use one release of it on all machines");
}

std::string_view MessageName(const Message& message) {
  return kNames[message.index()];
}

}  // namespace gavel
