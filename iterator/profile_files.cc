#include "iterator/profile_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::internal {

std::vector<TraceEvent> TraceRing::Events() const {
  const size_t kept = std::min<uint64_t>(count_, events_.size());
  const size_t first = count_ > events_.size() ? next_ : 0;
  std::vector<TraceEvent> events;
  events.reserve(kept);
  for (size_t i = 0; i < kept; ++i) {
    events.push_back(events_[(first + i) % events_.size()]);
  }
  return events;
}

uint64_t TraceRing::AddRuntime(const RuntimeEvent& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (runtime_events_.size() == kRuntimeEventsMax) runtime_events_.pop_front();
  runtime_events_.push_back(event);
  return ++runtime_count_;
}

void TraceRing::End(uint64_t id, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Ids rise by one, and only the front is dropped.
  const uint64_t first = runtime_count_ - runtime_events_.size() + 1;
  if (id >= first) runtime_events_[id - first].end_ns = now_ns;
}

std::vector<RuntimeEvent> TraceRing::RuntimeEvents() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {runtime_events_.begin(), runtime_events_.end()};
}

uint64_t TraceRing::runtime_dropped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return runtime_count_ - runtime_events_.size();
}

// ---- Chrome's trace event format.

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

absl::Status CannotWriteTrace(const std::string& path) {
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
  if (file == nullptr) return CannotWriteTrace(path);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    absl::Status status = CannotWriteTrace(path);
    unlink(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

// ---- TensorBoard's event file.

namespace {

constexpr size_t kFlushBytes = 32768;
constexpr uint32_t kCastagnoli = 0x82f63b78;  // the polynomial, reversed
constexpr uint32_t kMaskDelta = 0xa282ead8;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    }
    table[byte] = crc;
  }
  return table;
}();

// ---- protocol buffers: a field is (number << 3 | type), then its value

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Integer>
void PutFixed(std::string* out, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

void PutVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

void PutTag(std::string* out, int field, WireType type) {
  PutVarint(out, static_cast<uint64_t>(field << 3 | type));
}

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

void PutString(std::string* out, int field, std::string_view value) {
  PutTag(out, field, kBytes);
  PutVarint(out, value.size());
  out->append(value);
}

double WallTime_s() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5,
// session_log = 7.
void BeginEvent(std::string* event, uint64_t step) {
  event->clear();
  PutTag(event, 1, kFixed64);
  PutFixed(event, std::bit_cast<uint64_t>(WallTime_s()));
  PutTag(event, 2, kVarint);
  PutVarint(event, step);
}

absl::Status CannotWriteEvents(const std::string& path) {
  return absl::UnavailableError(
      StrCat("GAVEL_TENSORBOARD_DIRECTORY: ", path, " can't be written (",
             std::strerror(errno), "); give a directory that can"));
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc =
        kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  return std::rotr(Crc32c(bytes), 15) + kMaskDelta;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Open(
    const std::string& directory, uint64_t first_step) {
  std::error_code made;
  std::filesystem::create_directories(directory, made);
  // Readers sort by name, and take what has "tfevents" in it.
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  const std::string path =
      absl::StrFormat("%s/events.out.tfevents.%017.6f.%s.%d", directory,
                      WallTime_s(), host, getpid());
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return CannotWriteEvents(path);
  std::unique_ptr<EventFile> events(new EventFile(path, file));
  events->buffer_.reserve(2 * kFlushBytes);
  std::string event;
  BeginEvent(&event, 0);
  PutString(&event, 3, "brain.Event:2");
  events->AddRecord(event);
  BeginEvent(&event, first_step);
  PutString(&event, 7, std::string_view("\x08\x01", 2));  // status = START
  events->AddRecord(event);
  absl::Status status = events->Flush();
  if (!status.ok()) return status;
  return events;
}

EventFile::~EventFile() {
  Flush().IgnoreError();
  if (file_ >= 0) close(file_);
}

absl::Status EventFile::AddScalar(std::string_view tag, uint64_t step,
                                  double value) {
  if (file_ < 0) return absl::OkStatus();  // was said already
  // Summary: value = 1. Summary.Value: tag = 1, simple_value = 2.
  const size_t value_size = 1 + VarintSize(tag.size()) + tag.size() + 1 + 4;
  BeginEvent(&event_, step);
  PutTag(&event_, 5, kBytes);
  PutVarint(&event_, 1 + VarintSize(value_size) + value_size);
  PutTag(&event_, 1, kBytes);
  PutVarint(&event_, value_size);
  PutString(&event_, 1, tag);
  PutTag(&event_, 2, kFixed32);
  PutFixed(&event_, std::bit_cast<uint32_t>(static_cast<float>(value)));
  AddRecord(event_);
  return buffer_.size() < kFlushBytes ? absl::OkStatus() : Flush();
}

void EventFile::AddRecord(std::string_view event) {
  std::string length;
  PutFixed(&length, static_cast<uint64_t>(event.size()));
  buffer_ += length;
  PutFixed(&buffer_, MaskedCrc32c(length));
  buffer_ += event;
  PutFixed(&buffer_, MaskedCrc32c(event));
}

absl::Status EventFile::Flush() {
  std::string_view left = buffer_;
  while (file_ >= 0 && !left.empty()) {
    const ssize_t written = write(file_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      absl::Status status = CannotWriteEvents(path_);
      close(file_);
      file_ = -1;
      buffer_.clear();
      return status;
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return absl::OkStatus();
}

}  // namespace gavel::internal
