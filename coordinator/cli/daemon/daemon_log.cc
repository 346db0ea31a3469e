#include "coordinator/cli/daemon/daemon_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/json.h"
#include "coordinator/server/access/line_thread.h"
#include "core/text.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

constexpr char kPattern[] = "%Y-%m-%d %H:%M:%S.%e %l %v";

// "2026-01-31T12:00:00.250Z"
std::string UtcText(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      time.time_since_epoch())
                      .count() %
                  1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ",
                static_cast<int>(ms));
  return StrCat(text.data(), fraction.data());
}

std::string JsonLine(std::chrono::system_clock::time_point time,
                     const std::string& level, const std::string& message) {
  const Json json = {
      {"time", UtcText(time)}, {"level", level}, {"message", message}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace) +
         "\n";
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override {
    const spdlog::string_view_t level =
        spdlog::level::to_string_view(message.level);
    const std::string text =
        JsonLine(message.time, std::string(level.data(), level.size()),
                 std::string(message.payload.data(), message.payload.size()));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LineSink(Descriptor to)
      : to_(std::move(to)), lines_(WriteTo(to_.get())) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (const uint64_t lost = lines_.TakeLost(); lost > 0) {
      const std::string text =
          StrCat(lost, " lines of this log are lost: what takes them is slow");
      Put({message.logger_name, spdlog::level::warn, text});
    }
    Put(message);
  }
  void flush_() override {}

  // Texts of others, an agent's reasons say, make no lines of their own, nor
  // write to a terminal.
  void Put(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string text(line.data(), line.size());
    std::for_each(text.begin(), text.end() - 1, [](char& c) {
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    });
    lines_.Append(std::move(text));
  }

  Descriptor to_;
  LineThread lines_;
};

}  // namespace

void AddDaemonLogFlags(CLI::App& command, LogOptions* options) {
  AddOption(command, "--log-format", options->format, "",
            "of the log on stderr: text, or json (time, level, message)")
      ->check(CLI::IsMember({"text", "json"}));
  AddOption(command, "--log-level", options->level, "",
            "the least that is logged: debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

void SetLogLevel(spdlog::logger& log, const std::string& level) {
  const spdlog::level::level_enum least = spdlog::level::from_str(level);
  log.set_level(least == spdlog::level::off ? spdlog::level::info : least);
}

std::shared_ptr<spdlog::logger> MakeLog(Descriptor to,
                                        const LogOptions& options) {
  auto log = std::make_shared<spdlog::logger>(
      "gavel", std::make_shared<LineSink>(std::move(to)));
  SetLogLevel(*log, options.level);
  if (options.format == "json") {
    log->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    log->set_pattern(kPattern);
  }
  return log;
}

std::shared_ptr<spdlog::logger> MakeStderrLog(const LogOptions& options) {
  return MakeLog(Descriptor(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)), options);
}

absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeFileLog(
    const std::string& path) {
  Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("log file ", path)));
  }
  return MakeLog(std::move(file), {});
}

int DaemonCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kAlreadyExists:
      return kExitAlreadyRuns;
    case absl::StatusCode::kAborted:
      return kExitFenced;
    case absl::StatusCode::kResourceExhausted:
      return kExitDiskFull;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    default:
      return kExitFailed;
  }
}

int TellEnd(const absl::Status& status, const LogOptions& options) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  const std::string line =
      options.format == "json"
          ? JsonLine(std::chrono::system_clock::now(), "critical", message)
          : StrCat("gavel: ", message, "\n");
  std::fputs(line.c_str(), stderr);
  return DaemonCodeOf(status);
}

}  // namespace gavel
