// The one place that turns what LibTorch, JSON or a user's callback throws into
// a Status. checkpoint, device and iterator call it around every use of them.
#ifndef GAVEL_RUNTIME_DEVICE_TORCH_ERRORS_H_
#define GAVEL_RUNTIME_DEVICE_TORCH_ERRORS_H_

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string_view>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel::internal {

// Runs `body`, which returns absl::Status. RESOURCE_EXHAUSTED when memory ran
// out, INTERNAL for any other exception; the message starts with `what`.
template <class Body>
absl::Status CatchAsStatus(std::string_view what, Body&& body) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(
        StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat(what, ": out of memory"));
  } catch (const c10::Error& error) {
    return absl::InternalError(
        StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(StrCat(what, ": ", error.what()));
  } catch (...) {
    return absl::InternalError(StrCat(what, ": unknown exception"));
  }
}

}  // namespace gavel::internal

#endif  // GAVEL_RUNTIME_DEVICE_TORCH_ERRORS_H_
