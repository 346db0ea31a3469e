#include "iterator/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::internal {
namespace {

constexpr int kTrainingRow = 1;
constexpr int kRuntimeRow = 2;
constexpr int kWriterRow = 3;

std::string Escaped(const char* name) {
  std::string text;
  for (; *name != '\0'; ++name) {
    const unsigned char letter = static_cast<unsigned char>(*name);
    if (letter == '"' || letter == '\\') {
      text += '\\';
      text += *name;
    } else if (letter < 0x20) {
      absl::StrAppendFormat(&text, "\\u%04x", letter);
    } else {
      text += *name;
    }
  }
  return text;
}

class Writer {
 public:
  explicit Writer(const TraceOrigin& origin) : origin_(origin) {}

  void Row(int row, const char* name) {
    Separate();
    absl::StrAppendFormat(&text_,
                          "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,"
                          "\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                          origin_.rank, row, name);
  }
  void Span(const char* name, int row, int64_t begin_ns, int64_t end_ns,
            const std::string& arguments) {
    Separate();
    absl::StrAppendFormat(&text_,
                          "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,"
                          "\"dur\":%.3f,\"pid\":%d,\"tid\":%d%s}",
                          Escaped(name), Time_us(begin_ns),
                          Microseconds(end_ns - begin_ns), origin_.rank, row,
                          arguments);
  }
  void Counter(const char* name, int64_t time_ns, uint64_t bytes) {
    Separate();
    absl::StrAppendFormat(&text_,
                          "{\"name\":\"%s\",\"ph\":\"C\",\"ts\":%.3f,"
                          "\"pid\":%d,\"args\":{\"bytes\":%d}}",
                          Escaped(name), Time_us(time_ns), origin_.rank, bytes);
  }
  std::string Finish(const TraceRing& ring) {
    absl::StrAppendFormat(
        &text_,
        "\n],\n\"otherData\":{\"rank\":%d,\"monotonic_origin_us\":%.3f,"
        "\"dropped_events\":%d,\"dropped_runtime_events\":%d}}\n",
        origin_.rank, Microseconds(origin_.origin_ns), ring.dropped(),
        ring.runtime_dropped());
    return std::move(text_);
  }

 private:
  static double Microseconds(int64_t time_ns) {
    return static_cast<double>(time_ns) * 1e-3;
  }
  double Time_us(int64_t time_ns) const {
    return Microseconds(time_ns - origin_.origin_ns);
  }
  void Separate() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }

  const TraceOrigin& origin_;
  std::string text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first_ = true;
};

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(
      StrCat("GAVEL_TRACE_FILE: ", path, " can't be written (",
             std::strerror(errno), "); give a path that can"));
}

}  // namespace

std::string TracePath(const std::string& path, int rank, int world_size) {
  if (world_size == 1) return path;
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  const bool has_extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  const size_t end = has_extension ? dot : path.size();
  return StrCat(path.substr(0, end), ".rank-", rank, path.substr(end));
}

std::string TraceText(const TraceRing& ring, const TraceOrigin& origin) {
  Writer writer(origin);
  writer.Row(kTrainingRow, "training");
  writer.Row(kRuntimeRow, "runtime");
  writer.Row(kWriterRow, "checkpoints");
  for (const TraceEvent& event : ring.Events()) {
    if (event.kind == TraceEvent::Kind::kMemory) {
      writer.Counter(event.name, event.begin_ns, event.value);
      continue;
    }
    const bool is_step = event.kind == TraceEvent::Kind::kStep;
    writer.Span(
        event.name, kTrainingRow, event.begin_ns, event.end_ns,
        is_step ? StrCat(",\"args\":{\"step\":", event.value, "}") : "");
  }
  for (const RuntimeEvent& event : ring.RuntimeEvents()) {
    const bool is_writer = event.row == RuntimeEvent::Row::kWriter;
    writer.Span(event.name, is_writer ? kWriterRow : kRuntimeRow,
                event.begin_ns,
                event.end_ns == 0 ? origin.now_ns : event.end_ns, "");
  }
  return writer.Finish(ring);
}

absl::Status WriteTrace(const TraceRing& ring, const TraceOrigin& origin,
                        const std::string& path) {
  const std::string text = TraceText(ring, origin);
  const std::string temporary = StrCat(path, ".tmp");
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr) return CannotWrite(path);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    absl::Status status = CannotWrite(path);
    unlink(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

}  // namespace gavel::internal
