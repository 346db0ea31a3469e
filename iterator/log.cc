#include "iterator/log.h"

#include <cstdio>

namespace gavel::internal {
namespace {

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

void Log::Write(LogLevel level, const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!sink_) {
    std::fprintf(stderr, "gavel: %s%s\n", NameOf(level), line.c_str());
    return;
  }
  try {
    sink_(level, line);
  } catch (...) {
    sink_ = nullptr;  // a sink that throws is not called again
    std::fprintf(stderr, "gavel: error: the log callback threw an exception\n");
  }
}

}  // namespace gavel::internal
