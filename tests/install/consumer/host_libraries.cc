#include "host_libraries.h"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace {

std::string ThroughProtobuf(int number) {
  google::protobuf::Struct out;
  (*out.mutable_fields())["number"].set_number_value(number);
  google::protobuf::Struct in;
  if (!in.ParseFromString(out.SerializeAsString())) return "";
  return fmt::format("{:g}", in.fields().at("number").number_value());
}

std::string ThroughAbseil(int number) {
  absl::Mutex mutex;
  const absl::MutexLock lock(&mutex);
  absl::flat_hash_map<int, absl::Status> statuses;
  statuses[number] = absl::NotFoundError(absl::StrFormat("%d", number));
  return std::string(statuses.at(number).message());
}

}  // namespace

std::string UseLibraries(int number) {
  std::ostringstream text;
  spdlog::logger log("host",
                     std::make_shared<spdlog::sinks::ostream_sink_st>(text));
  log.set_pattern("%v");
  log.info("protobuf {} abseil {}", ThroughProtobuf(number),
           ThroughAbseil(number));
  return text.str();
}
