// The outcome of a call into the runtime. Everything in <gavel/*.h> returns one
// of these or keeps one for status(); nothing throws into the host program.
// A value, thread-safe as one.
#ifndef GAVEL_STATUS_H_
#define GAVEL_STATUS_H_

#include <string>
#include <utility>

#define GAVEL_EXPORT __attribute__((visibility("default")))

namespace gavel {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // the call or the environment is wrong: change it
  kNotFound,            // e.g. a generation without what is tracked
  kAlreadyExists,       // e.g. a name that is tracked twice
  kFailedPrecondition,  // right call, wrong moment
  kUnavailable,         // e.g. the coordinator does not answer; it is retried
  kDataLoss,            // no checkpoint could be read
  kResourceExhausted,   // disk full, out of memory
  kCancelled,           // the loop was ended from outside: evicted, cancelled
  kInternal,            // what LibTorch or a callback threw, and the rest
};

class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // Names the object and the remedy; empty when ok().
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace gavel

#endif  // GAVEL_STATUS_H_
