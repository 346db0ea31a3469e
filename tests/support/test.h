// Every test includes this header: GoogleTest, GoogleMock, matchers of
// absl::Status, and the containers of the standard library. Their names need no
// namespace in a test.
#ifndef GAVEL_TESTS_SUPPORT_TEST_H_
#define GAVEL_TESTS_SUPPORT_TEST_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {

using namespace ::testing;  // hides no name of gavel's

inline constexpr auto kAborted = absl::StatusCode::kAborted;
inline constexpr auto kAlreadyExists = absl::StatusCode::kAlreadyExists;
inline constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
inline constexpr auto kInternal = absl::StatusCode::kInternal;
inline constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;
inline constexpr auto kDeadlineExceeded = absl::StatusCode::kDeadlineExceeded;
inline constexpr auto kPermissionDenied = absl::StatusCode::kPermissionDenied;
inline constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
inline constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
inline constexpr auto kUnknown = absl::StatusCode::kUnknown;

// Matches INVALID_ARGUMENT with `part` in its message, as most refusals have.
inline auto IsInvalid(const std::string& part) {
  return StatusIs(kInvalidArgument, part);
}

}  // namespace gavel::testing

namespace gavel {
using namespace testing;
}  // namespace gavel

#endif  // GAVEL_TESTS_SUPPORT_TEST_H_
