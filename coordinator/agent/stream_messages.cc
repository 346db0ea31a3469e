#include "coordinator/agent/stream_messages.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same checksums, by AVX2 or AVX-512 if there
#endif

#include <array>
#include <tuple>
#include <utility>

#include "core/fields.h"
#include "core/packer.h"
#include "core/text.h"

namespace gavel {

auto Fields(As<Generation> auto& m) { return std::tie(m.epoch, m.step); }
auto Fields(As<StreamOpen> auto& m) {
  return std::tie(m.nonce, m.job, m.below);
}
auto Fields(As<StreamRead> auto& m) {
  return std::tie(m.session, m.file, m.offset, m.size);
}
auto Fields(As<StreamClose> auto& m) { return std::tie(m.session); }
auto Fields(As<StreamOpened> auto& m) {
  return std::tie(m.nonce, m.session, m.generation, m.manifest_bytes,
                  m.manifest_checksum);
}
auto Fields(As<StreamChunk> auto& m) {
  return std::tie(m.session, m.file, m.offset, m.checksum, m.data);
}
constexpr StreamRefusal LastOf(StreamRefusal) {
  return StreamRefusal::kOutOfSessions;
}
auto Fields(As<StreamRefused> auto& m) {
  return std::tie(m.nonce, m.session, m.refusal, m.why);
}

namespace {

constexpr std::string_view kMagic = "GVS";
constexpr char kVersion = 1;
constexpr size_t kHeaderBytes = 5;
constexpr PackLimits kLimits = {16, kStreamChunkBytesMax};
constexpr size_t kTypes = std::variant_size_v<StreamMessage>;

template <size_t index>
StreamMessage Get(Unpacker& unpacker) {
  StreamMessage message(std::in_place_index<index>);
  GetFields(unpacker, std::get<index>(message));
  return message;
}

template <size_t... index>
constexpr auto MakeReaders(std::index_sequence<index...>) {
  return std::array<StreamMessage (*)(Unpacker&), kTypes>{Get<index>...};
}
constexpr auto kReaders = MakeReaders(std::make_index_sequence<kTypes>());

}  // namespace

std::string EncodeStreamMessage(const StreamMessage& message) {
  Packer packer(kLimits);
  std::visit([&](const auto& body) { PutField(packer, body); }, message);
  std::string frame(kMagic);
  frame.push_back(kVersion);
  frame.push_back(static_cast<char>(message.index() + 1));
  frame += packer.Take();
  return frame;
}

absl::StatusOr<StreamMessage> DecodeStreamMessage(std::string_view frame) {
  if (frame.size() > kStreamFrameBytesMax || frame.size() < kHeaderBytes ||
      !frame.starts_with(kMagic) || frame[kMagic.size()] != kVersion) {
    return absl::InvalidArgumentError("not a frame of a stream");
  }
  const size_t type = static_cast<uint8_t>(frame[kMagic.size() + 1]);
  if (type == 0 || type > kTypes) {
    return absl::InvalidArgumentError("not a known frame of a stream");
  }
  Unpacker unpacker(frame.substr(kHeaderBytes), kLimits);
  StreamMessage message = kReaders[type - 1](unpacker);
  if (!unpacker.ok()) return unpacker.status();
  return message;
}

uint64_t StreamChecksum(std::string_view data) {
  return XXH3_64bits(data.data(), data.size());
}

}  // namespace gavel
