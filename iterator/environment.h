// Environment variables into SessionOptions, and what makes options usable.
#ifndef GAVEL_ITERATOR_ENVIRONMENT_H_
#define GAVEL_ITERATOR_ENVIRONMENT_H_

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gavel/session.h"
#include "gavel/status.h"

namespace gavel::internal {

// INVALID_ARGUMENT names the option, its variable and the remedy.
absl::Status CheckOptions(const SessionOptions& options);

// Where the session's lines go: the host's callback, or stderr. Thread-safe.

class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void Info(const std::string& line) { Write(LogLevel::kInfo, line); }
  void Warning(const std::string& line) { Write(LogLevel::kWarning, line); }
  void Error(const std::string& line) { Write(LogLevel::kError, line); }

  // A line at the end of a terminal, which the next one replaces, and other
  // lines push down. `line` has no control characters.
  void ShowLastLine(const std::string& line);
  // Keeps the last line as it is; later lines come below it.
  void EndLastLine();

 private:
  void Write(LogLevel level, const std::string& line);

  std::mutex mutex_;
  Sink sink_;
  std::string last_line_;
};

// absl::Status inside, gavel::Status outside. Used by session*.cc.

inline StatusCode ToPublicCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return StatusCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return StatusCode::kInvalidArgument;
    case absl::StatusCode::kNotFound:
      return StatusCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
      return StatusCode::kAlreadyExists;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return StatusCode::kFailedPrecondition;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return StatusCode::kUnavailable;
    case absl::StatusCode::kDataLoss:
      return StatusCode::kDataLoss;
    case absl::StatusCode::kResourceExhausted:
      return StatusCode::kResourceExhausted;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kInternal;
  }
}

inline Status ToPublic(const absl::Status& status) {
  if (status.ok()) return Status();
  return Status(ToPublicCode(status.code()), std::string(status.message()));
}

// Converts a status of a class that tracks its own parts.
inline absl::Status FromPublic(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return status.code() == StatusCode::kInvalidArgument
             ? absl::InvalidArgumentError(status.message())
             : absl::FailedPreconditionError(status.message());
}

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_ENVIRONMENT_H_
