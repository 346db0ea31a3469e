// Where the session's lines go: the host's callback, or stderr. Thread-safe.
#ifndef GAVEL_ITERATOR_LOG_H_
#define GAVEL_ITERATOR_LOG_H_

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "gavel/session.h"

namespace gavel::internal {

class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void Info(const std::string& line) { Write(LogLevel::kInfo, line); }
  void Warning(const std::string& line) { Write(LogLevel::kWarning, line); }
  void Error(const std::string& line) { Write(LogLevel::kError, line); }

 private:
  void Write(LogLevel level, const std::string& line);

  std::mutex mutex_;
  Sink sink_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_LOG_H_
