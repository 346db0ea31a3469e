#include "coordinator/server/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

constexpr double kMinute_s = 60;

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
  Descriptor file(open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                       0600));
  if (file.get() < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("audit log ", path)));
  }
  return AuditLog(std::move(file));
}

void AuditLog::Refusal(Time now, const AuditEntry& entry) {
  if (now - minute_started_ >= kMinute_s) {
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
  if (left_out_ > 0) line["left_out"] = left_out_;
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true,
                nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  // In one call, so that lines are whole whoever else appends.
  if (write(file_.get(), text.data(), text.size()) ==
      static_cast<ssize_t>(text.size())) {
    left_out_ = 0;
  } else {
    ++left_out_;
  }
}

}  // namespace gavel
