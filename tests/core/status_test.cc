#include "core/status.h"

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(value / 2);
}

absl::StatusOr<int> Quarter(int value) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

absl::Status CheckBoth(const absl::Status& first, const absl::Status& second,
                       bool with_second) {
  GAVEL_RETURN_IF_ERROR(first);
  if (with_second)
    GAVEL_RETURN_IF_ERROR(second);
  else
    return absl::UnknownError("the else belongs to this if");
  return absl::OkStatus();
}

TEST(AssignOrReturn, AssignsOrReturns) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_THAT(Quarter(6), IsInvalid("odd"));
  EXPECT_THAT(Quarter(5), IsInvalid("odd"));
}

TEST(ReturnIfError, ReturnsTheFirstErrorAndIsOneStatement) {
  const absl::Status ok;
  const absl::Status a = absl::NotFoundError("a");
  const absl::Status b = absl::NotFoundError("b");
  EXPECT_THAT(CheckBoth(ok, ok, true), IsOk());
  EXPECT_THAT(CheckBoth(a, b, true), StatusIs(kNotFound, "a"));
  EXPECT_THAT(CheckBoth(ok, b, true), StatusIs(kNotFound, "b"));
  EXPECT_THAT(CheckBoth(ok, b, false), StatusIs(kUnknown, "else"));
}

TEST(Annotate, PutsThePrefixInFrontAndKeepsTheCode) {
  EXPECT_EQ(Annotate(absl::NotFoundError("no such job"), "job 12"),
            absl::NotFoundError("job 12: no such job"));
  EXPECT_THAT(Annotate(absl::OkStatus(), "job 12"), IsOk());
}

TEST(StrCat, TakesTextOfEitherLibraryAndNumbers) {
  const std::string string = "b";
  EXPECT_EQ(StrCat("a", string, std::string_view("c"), absl::string_view("d"),
                   7, 0.5),
            "abcd70.5");
  std::string text = "x";
  StrAppend(&text, std::string_view("y"), 1);
  EXPECT_EQ(text, "xy1");
}

}  // namespace
}  // namespace gavel
