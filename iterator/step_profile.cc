#include "iterator/step_profile.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {

// ---- The last events of the process.

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

// ---- The measurements.

namespace {

// The bytes of calls, and of pages that came from a disk. Writes through the
// page cache are among the calls' already.
constexpr std::string_view kByteCounters[] = {
    "rchar: ", "wchar: ", "read_bytes: "};

MemoryUse ReadDevice(c10::Device device) {
  MemoryUse use;
  CatchAsStatus("reading memory statistics", [&] {
    const auto stats =
        c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    use = {stats.allocated_bytes[0].current, stats.allocated_bytes[0].peak,
           stats.reserved_bytes[0].current, stats.reserved_bytes[0].peak};
    return absl::OkStatus();
  }).IgnoreError();
  return use;
}

MemoryUse ReadProcess() {
  MemoryUse use;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long long size = 0;
  long long resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) == 2) {
      use.now_bytes = resident * sysconf(_SC_PAGESIZE);
    }
    std::fclose(file);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    use.high_bytes = int64_t{usage.ru_maxrss} * 1024;
  }
  use.high_bytes = std::max(use.high_bytes, use.now_bytes);
  return use;
}

constexpr int64_t kTick_ns = 100'000'000;
constexpr int64_t kScalars_ns = 1'000'000'000;

double Mean_s(int64_t total_ns, uint64_t count) {
  return count == 0 ? 0 : ToSeconds(total_ns) / static_cast<double>(count);
}

std::string Row(std::string_view name, uint64_t count, double mean_s,
                double max_s, const std::string& share) {
  return absl::StrFormat("  %-16s %10d x %12.3f ms, at most %12.3f ms %8s",
                         ToAbsl(name), count, mean_s * 1e3, max_s * 1e3, share);
}

}  // namespace

uint64_t ParseProcessBytes(std::string_view text) {
  uint64_t bytes = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    for (const std::string_view counter : kByteCounters) {
      if (line.substr(0, counter.size()) != counter) continue;
      uint64_t count = 0;
      std::from_chars(line.data() + counter.size(), line.data() + line.size(),
                      count);
      bytes += count;
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return bytes;
}

uint64_t ProcessBytes() {
  const int fd = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  if (size <= 0) return 0;
  return ParseProcessBytes(std::string_view(text, static_cast<size_t>(size)));
}

MemoryUse ReadMemory(c10::Device device) noexcept {
  return device.is_cpu() ? ReadProcess() : ReadDevice(device);
}

bool ScalarSlots::Set(std::string_view name, double value) {
  const size_t count = count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    if (std::string_view(slot.name.data(), slot.length) != name) continue;
    slot.value.store(value, std::memory_order_relaxed);
    return true;
  }
  if (count == kCountMax || name.empty() || name.size() > kNameLengthMax) {
    return false;
  }
  Slot& slot = slots_[count];
  std::memcpy(slot.name.data(), name.data(), name.size());
  slot.length = name.size();
  slot.value.store(value, std::memory_order_relaxed);
  count_.store(count + 1, std::memory_order_release);
  return true;
}

std::vector<std::pair<std::string, double>> ScalarSlots::Read() const {
  std::vector<std::pair<std::string, double>> scalars;
  const size_t count = count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    scalars.emplace_back(std::string(slots_[i].name.data(), slots_[i].length),
                         slots_[i].value.load(std::memory_order_relaxed));
  }
  return scalars;
}

void StepStats::CountPause() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++pauses_;
}

void StepStats::CountMove() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++moves_;
}

void StepStats::AddPausing(int64_t time_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  pausing_ns_ += time_ns;
}

void StepStats::SetLastGeneration(Generation generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_generation_ = generation;
}

void StepStats::SetMemory(uint64_t state_bytes, uint64_t device_bytes,
                          uint64_t host_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_bytes_ = state_bytes;
  device_bytes_ = device_bytes;
  host_bytes_ = host_bytes;
}

Progress StepStats::Read() const {
  Progress progress;
  progress.steps_done = steps_done();
  progress.boundaries = boundaries_.load(std::memory_order_relaxed);
  progress.scalars = scalars_.Read();
  std::lock_guard<std::mutex> lock(mutex_);
  progress.pauses = pauses_;
  progress.moves = moves_;
  progress.pausing_s = ToSeconds(pausing_ns_);
  progress.last_generation = last_generation_;
  progress.state_bytes = state_bytes_;
  progress.device_bytes = device_bytes_;
  progress.host_bytes = host_bytes_;
  return progress;
}

void ThroughputWindow::Measure(const StepStats& stats, Progress* progress) {
  const uint64_t steps = stats.steps_done();
  const int64_t running_ns = stats.running_ns();
  if (begun_ && steps > steps_ && running_ns > running_ns_) {
    progress->window_s = ToSeconds(running_ns - running_ns_);
    progress->throughput_steps_per_s =
        static_cast<double>(steps - steps_) / progress->window_s;
  }
  if (!begun_ || steps != steps_) {
    steps_ = steps;
    running_ns_ = running_ns;
    begun_ = true;
  }
}

absl::Status StepProfile::Open(const SessionOptions& options,
                               uint64_t first_step) {
  origin_ns_ = Now_ns();
  rank_ = options.rank;
  if (!options.trace_file.empty()) {
    ring_ = std::make_unique<TraceRing>();
    trace_path_ =
        TracePath(options.trace_file, options.rank, options.world_size);
    // Told now, not after hours of training.
    GAVEL_RETURN_IF_ERROR(
        WriteTrace(*ring_, {rank_, origin_ns_, origin_ns_}, trace_path_));
  }
  if (!options.tensorboard_directory.empty()) {
    const std::string directory =
        options.rank == 0
            ? options.tensorboard_directory
            : StrCat(options.tensorboard_directory, "/rank-", options.rank);
    GAVEL_ASSIGN_OR_RETURN(events_, EventFile::Open(directory, first_step));
  }
  if (ring_ || events_) next_tick_ns_ = origin_ns_;
  next_scalars_ns_ = origin_ns_ + kScalars_ns;
  return absl::OkStatus();
}

void StepProfile::EndSpan(const char* name, int64_t begin_ns, int64_t end_ns) {
  const size_t phase = FindPhase(name);
  if (phase < kPhasesMax) Count(phase, end_ns - begin_ns);
  Trace(name, begin_ns, end_ns);
}

size_t StepProfile::FindPhase(const char* name) {
  // A literal has one address, most of the time.
  for (size_t i = 0; i < phase_count_; ++i) {
    if (phases_[i].name == name) return i;
  }
  for (size_t i = 0; i < phase_count_; ++i) {
    if (std::strcmp(phases_[i].name, name) == 0) return i;
  }
  if (phase_count_ == kPhasesMax) return kPhasesMax;
  phases_[phase_count_].name = name;
  return phase_count_++;
}

void StepProfile::MeasureBoundary(int64_t now_ns) {
  Count(kWrapper,
        std::max<int64_t>(0, now_ns - boundary_begin_ns_ - excluded_ns_));
  Trace("boundary", boundary_begin_ns_, now_ns);
  step_begin_ns_ = now_ns;
  waits_for_data_ = true;
}

void StepProfile::MarkMemory(int64_t now_ns, c10::Device device) {
  // The memory of the process while it has no accelerator is no part of its
  // need there.
  if (device.is_cpu() && on_accelerator_) return;
  if (!device.is_cpu() && !std::exchange(on_accelerator_, true)) {
    memory_low_bytes_ = memory_high_bytes_ = 0;
  }
  const MemoryUse use = ReadMemory(device);
  if (use.now_bytes > 0) {
    memory_low_bytes_ = memory_low_bytes_ == 0
                            ? use.now_bytes
                            : std::min(memory_low_bytes_, use.now_bytes);
  }
  memory_high_bytes_ = std::max(memory_high_bytes_, use.high_bytes);
  if (!ring_) return;
  const auto add = [&](const char* name, int64_t bytes) {
    ring_->Add({name, now_ns, now_ns, static_cast<uint64_t>(bytes),
                TraceEvent::Kind::kMemory});
  };
  add("memory between steps", use.now_bytes);
  add("memory high mark", use.high_bytes);
}

absl::Status StepProfile::Tick(int64_t now_ns, c10::Device device,
                               const StepStats& stats) {
  if (now_ns < next_tick_ns_) return absl::OkStatus();
  next_tick_ns_ = now_ns + kTick_ns;
  MarkMemory(now_ns, device);
  if (!events_ || now_ns < next_scalars_ns_) return absl::OkStatus();
  next_scalars_ns_ = now_ns + kScalars_ns;
  AddScalars(stats);
  return Keep(events_->Flush());
}

void StepProfile::AddScalars(const StepStats& stats) {
  const uint64_t step = stats.steps_done();
  const Progress progress = stats.Read();
  const auto add = [&](std::string_view tag, double value) {
    events_->AddScalar(tag, step, value).IgnoreError();  // Flush says it again
  };
  if (steps_ > scalars_steps_) {
    add("gavel/step_time_s",
        Mean_s(steps_ns_ - scalars_steps_ns_, steps_ - scalars_steps_));
    scalars_steps_ = steps_;
    scalars_steps_ns_ = steps_ns_;
  }
  add("gavel/pauses", static_cast<double>(progress.pauses));
  add("gavel/pausing_s", progress.pausing_s);
  add("gavel/memory_between_steps_bytes",
      static_cast<double>(memory_low_bytes_));
}

absl::Status StepProfile::Report(std::string_view name, uint64_t step,
                                 double value) {
  if (!events_) return absl::OkStatus();
  return Keep(events_->AddScalar(name, step, value));
}

// Returns an error only once, since training continues without the file.
absl::Status StepProfile::Keep(absl::Status status) {
  if (status.ok() || trouble_told_) return absl::OkStatus();
  trouble_told_ = true;
  return status;
}

absl::Status StepProfile::Write(const StepStats& stats) {
  absl::Status status = absl::OkStatus();
  if (events_) {
    AddScalars(stats);
    status = Keep(events_->Flush());
  }
  if (ring_) {
    status.Update(
        Keep(WriteTrace(*ring_, {rank_, origin_ns_, Now_ns()}, trace_path_)));
  }
  return status;
}

Profile StepProfile::Read(const StepStats& stats) const {
  Profile profile;
  const Progress progress = stats.Read();
  profile.steps = steps_;
  profile.step_mean_s = Mean_s(steps_ns_, steps_);
  profile.step_max_s = ToSeconds(step_max_ns_);
  for (size_t i = 0; i < phase_count_; ++i) {
    const Phase& phase = phases_[i];
    profile.phases.push_back({phase.name, phase.count,
                              Mean_s(phase.total_ns, phase.count),
                              ToSeconds(phase.max_ns)});
  }
  profile.pauses = progress.pauses;
  profile.checkpoints = checkpoints_;
  profile.pausing_s = progress.pausing_s;
  profile.memory_low_bytes = memory_low_bytes_;
  profile.memory_high_bytes = memory_high_bytes_;
  return profile;
}

std::vector<std::string> StepProfile::Table(const StepStats& stats) const {
  const Profile profile = Read(stats);
  if (profile.steps == 0) return {};
  std::vector<std::string> lines = {absl::StrFormat(
      "profile of this process: %d pauses and %d checkpoints took %.3f s; "
      "memory %.1f MB between steps, %.1f MB at most",
      profile.pauses, profile.checkpoints, profile.pausing_s,
      static_cast<double>(profile.memory_low_bytes) * 1e-6,
      static_cast<double>(profile.memory_high_bytes) * 1e-6)};
  lines.push_back(Row("step", profile.steps, profile.step_mean_s,
                      profile.step_max_s, "of steps"));
  const double steps_s = ToSeconds(steps_ns_);
  for (size_t i = 0; i < profile.phases.size(); ++i) {
    const PhaseProfile& phase = profile.phases[i];
    if (phase.count == 0 || steps_s == 0) continue;
    const bool is_sample = i <= kWrapper && phase.count < profile.steps;
    const std::string share =
        is_sample
            ? "sampled"
            : absl::StrFormat("%.1f %%",
                              100 * ToSeconds(phases_[i].total_ns) / steps_s);
    lines.push_back(
        Row(phase.name, phase.count, phase.mean_s, phase.max_s, share));
  }
  return lines;
}

}  // namespace gavel::internal
