// Scalars as a TensorBoard event file: records of (length, CRC, Event, CRC), an
// Event being a protocol buffer, both written by hand.
// Source: TensorFlow's record_writer.h, event.proto and summary.proto.
//
// One thread. Written when 32 KiB came together, and by Flush.
#ifndef GAVEL_ITERATOR_EVENT_FILE_H_
#define GAVEL_ITERATOR_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel::internal {

// CRC-32C (Castagnoli), and as records have it.
uint32_t Crc32c(std::string_view bytes);
uint32_t MaskedCrc32c(std::string_view bytes);

class EventFile {
 public:
  // A new file in `directory`, which is made. What earlier files there say of
  // `first_step` and later steps is void: a restart trains them again.
  // UNAVAILABLE: it can't be written.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(
      const std::string& directory, uint64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // UNAVAILABLE: the file can't be written. Then nothing is written any more.
  absl::Status AddScalar(std::string_view tag, uint64_t step, double value);
  absl::Status Flush();

 private:
  EventFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  void AddRecord(std::string_view event);

  std::string path_;
  int file_;
  std::string buffer_;
  std::string event_;  // keeps its memory
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_EVENT_FILE_H_
