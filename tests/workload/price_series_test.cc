#include "coordinator/workload/price_series.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(PriceSeries, IsFreeByDefault) {
  const PriceSeries prices;
  EXPECT_TRUE(prices.empty());
  EXPECT_EQ(prices.At("v100", 7), 0);
  EXPECT_EQ(prices.NextChange(0), kNever);
}

TEST(PriceSeries, ConstantPricesNeverChange) {
  ASSERT_OK_AND_ASSIGN(const PriceSeries prices,
                       PriceSeries::Constant("v100=0.74,k80=0"));
  EXPECT_FALSE(prices.empty());
  EXPECT_EQ(prices.At("v100", 0), 0.74);
  EXPECT_EQ(prices.At("v100", 1e12), 0.74);
  EXPECT_EQ(prices.At("k80", 5), 0);
  EXPECT_EQ(prices.At("p100", 5), 0);
  EXPECT_EQ(prices.NextChange(0), kNever);
  EXPECT_EQ(prices.NextChange(-1), kNever);
}

TEST(PriceSeries, KnowsThePricesOfTheOriginal) {
  ASSERT_OK_AND_ASSIGN(const PriceSeries prices, PriceSeries::Constant("gcp"));
  EXPECT_EQ(prices.At("v100", 0), 0.74);
  EXPECT_EQ(prices.At("p100", 0), 0.43);
  EXPECT_EQ(prices.At("k80", 0), 0.135);
}

TEST(PriceSeries, BadConstantPricesAreQuoted) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"\" is not NAME=NUMBER; write e.g. v100=0.74"},
      {"aws", "\"aws\" is not NAME=NUMBER"},
      {"v100=", "\"v100=\" has no good number; write a number from 0 to 1e+09"},
      {"v100=-1", "\"v100=-1\" has no good number"},
      {"v100=nan", "\"v100=nan\" has no good number"},
      {"v100=1e999", "\"v100=1e999\" has no good number"},
      {"v100=1,v100=2", "\"v100=2\" comes after another of that name"},
      {"a b=1", "\"a b\" is not the name of an accelerator type"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(PriceSeries::Constant(text), IsInvalid(error)) << text;
  }
}

constexpr std::string_view kCsv =
    "price, type, time_s\r\n"
    "2.5, v100, 100\r\n"
    "\r\n"
    "0.5, \"k80\", 0\r\n"
    "2.5, v100, 200\r\n"
    "0.4, k80, 300.5\r\n"
    "1.5, v100, 300";

TEST(PriceSeries, PricesHoldFromTheirTimeOnAndTheFirstBefore) {
  ASSERT_OK_AND_ASSIGN(const PriceSeries prices,
                       PriceSeries::Parse(kCsv, "prices.csv"));
  EXPECT_EQ(prices.At("v100", 0), 2.5);
  EXPECT_EQ(prices.At("v100", 299.9), 2.5);
  EXPECT_EQ(prices.At("v100", 300), 1.5);
  EXPECT_EQ(prices.At("v100", kNever), 1.5);
  EXPECT_EQ(prices.At("k80", 300), 0.5);
  EXPECT_EQ(prices.At("k80", 300.5), 0.4);
  EXPECT_EQ(prices.At("p100", 300), 0);
}

TEST(PriceSeries, TellsWhenAPriceChangesNext) {
  ASSERT_OK_AND_ASSIGN(const PriceSeries prices,
                       PriceSeries::Parse(kCsv, "prices.csv"));
  // Not at 100, before which the first price holds; not at 200: it is the same.
  EXPECT_EQ(prices.NextChange(-1), 300);
  EXPECT_EQ(prices.NextChange(0), 300);
  EXPECT_EQ(prices.NextChange(150), 300);
  EXPECT_EQ(prices.NextChange(300), 300.5);
  EXPECT_EQ(prices.NextChange(300.5), kNever);
}

TEST(PriceSeries, ErrorsPointIntoTheFile) {
  const std::string header = "time_s,type,price\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "p.csv:1:1: there is no column \"time_s\""},
      {"time,type,price\n",
       "p.csv:1:1: there is no column \"time_s\"; rename "
       "\"time\"?"},
      {"time_s,type\n",
       "p.csv:1:1: there is no column \"price\"; name the "
       "columns in the first line"},
      {"time_s,type,price,type\n",
       "p.csv:1:19: column \"type\" is there twice"},
      {"time_s,type,price,zone\n0,v100,1,a\n",
       "p.csv:1:19: unknown column \"zone\"; the columns are time_s, type"},
      {header, "p.csv:1:1: there are no prices; write a line"},
      {header + "0,v100,-1", "p.csv:2:8: price is \"-1\"; write a number from"},
      {header + "0,v100,nan", "p.csv:2:8: price is \"nan\"; write a number"},
      {header + "0,v100,", "p.csv:2:8: price is \"\"; write a number"},
      {header + "\n-1,v100,1", "p.csv:3:1: time_s is \"-1\"; write a number"},
      {header + "inf,v100,1", "p.csv:2:1: time_s is \"inf\"; write a number"},
      {header + "0,v 100,1", "p.csv:2:3: \"v 100\" is not the name of an acc"},
      {header + "0,v100", "p.csv:2:7: the line has 2 fields; write 3"},
      {header + "0,v100,1,2", "p.csv:2:11: the line has 4 fields; write 3"},
      {header + "0,v100,1\n0,v100,1",
       "p.csv:3:1: v100 has two prices from 0 s"},
      {header + "0,\"v100,1",
       "p.csv:2:3: the quotes do not end with the field"},
      {header + "0,\"v\"100,1", "p.csv:2:3: the quotes do not end"},
  };
  for (const auto& [csv, error] : cases) {
    EXPECT_THAT(PriceSeries::Parse(csv, "p.csv"), IsInvalid(error)) << csv;
  }
}

}  // namespace
}  // namespace gavel
