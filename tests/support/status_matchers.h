// GoogleMock matchers of absl::Status and StatusOr (this Abseil has none):
//   ASSERT_OK(status);
//   ASSERT_OK_AND_ASSIGN(Message message, DecodeMessage(frame));
//   EXPECT_THAT(DecodeMessage(""), StatusIs(kInvalidArgument, "frame"));
#ifndef GAVEL_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define GAVEL_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace gavel::testing {

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <class T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  const absl::Status status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.ok();
}

// The code, and a part of the message.
MATCHER_P2(StatusIs, code, substring, "has code and message") {
  const absl::Status status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         std::string(status.message()).find(substring) != std::string::npos;
}

// So that a test need not spell out absl::StatusCode.
inline constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
inline constexpr auto kFailedPrecondition =
    absl::StatusCode::kFailedPrecondition;
inline constexpr auto kResourceExhausted = absl::StatusCode::kResourceExhausted;
inline constexpr auto kNotFound = absl::StatusCode::kNotFound;

}  // namespace gavel::testing

#define ASSERT_OK(expression) \
  ASSERT_THAT((expression), ::gavel::testing::IsOk())
#define EXPECT_OK(expression) \
  EXPECT_THAT((expression), ::gavel::testing::IsOk())

#define ASSERT_OK_AND_ASSIGN(left, expression)                             \
  GAVEL_ASSERT_OK_AND_ASSIGN_(GAVEL_TEST_CONCAT_(gavel_result_, __LINE__), \
                              left, expression)
#define GAVEL_ASSERT_OK_AND_ASSIGN_(result, left, expression) \
  auto result = (expression);                                 \
  ASSERT_OK(result.status());                                 \
  left = *std::move(result)
#define GAVEL_TEST_CONCAT_(a, b) GAVEL_TEST_CONCAT_INNER_(a, b)
#define GAVEL_TEST_CONCAT_INNER_(a, b) a##b

#endif  // GAVEL_TESTS_SUPPORT_STATUS_MATCHERS_H_
