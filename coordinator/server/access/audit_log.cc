#include "coordinator/server/access/audit_log.h"

#include <array>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

constexpr double kAuditMinute_s = 60;

std::string TimeText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

absl::StatusOr<AuditLog> AuditLog::Open(const std::string& path) {
  absl::StatusOr<RotatingFile> file = RotatingFile::Open(path);
  if (!file.ok()) return Annotate(file.status(), "audit log");
  return AuditLog(*std::move(file));
}

AuditLog::AuditLog(RotatingFile file)
    : lines_(std::make_unique<LineThread>(
          [file = std::make_shared<RotatingFile>(std::move(file))](
              std::string_view line, const std::stop_token&) {
            return file->Append(line);
          })) {}

void AuditLog::Refusal(Time now, const AuditEntry& entry) {
  if (now - minute_started_ >= kAuditMinute_s) {
    minute_started_ = now;
    refusals_.clear();
    refusals_written_ = 0;
  }
  const bool known = refusals_.contains(entry.who);
  if (!known && refusals_.size() >= kKeysPerMinuteMax) {
    ++left_out_;
    return;
  }
  const int refusals = ++refusals_[entry.who];
  if (refusals > kRefusalsPerMinuteMax ||
      (refusals > 1 && refusals_written_ >= kRefusalsPerMinuteOfAllMax)) {
    ++left_out_;
    return;
  }
  ++refusals_written_;
  Write(entry);
}

void AuditLog::Write(const AuditEntry& entry) {
  nlohmann::ordered_json line = {
      {"time", TimeText()},     {"who", entry.who},
      {"role", entry.role},     {"from", entry.from},
      {"action", entry.action}, {"object", entry.object},
      {"result", entry.result},
  };
  left_out_ += lines_->TakeLost();
  if (left_out_ > 0) line["left_out"] = left_out_;
  std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true,
                nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  // What it is told of is then in the queue; lost with it, it is not told.
  if (lines_->Append(std::move(text))) left_out_ = 0;
}

}  // namespace gavel
