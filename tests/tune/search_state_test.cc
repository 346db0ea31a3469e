#include <nlohmann/json.hpp>

#include "coordinator/tune/optimiser.h"
#include "tests/tune/searches.h"

namespace gavel::tune {
namespace {

SearchSpec Spec() {
  SearchSpec spec = SearchOf(
      "method = 'program'\ntrials = 9\nsteps = 4\n"
      "program = ['x']");
  spec.space.push_back(
      {.name = "n", .kind = Parameter::Kind::kInteger, .min = 1, .max = 9});
  spec.space.push_back({.name = "act",
                        .kind = Parameter::Kind::kChoice,
                        .values = {"relu", "8"}});
  return spec;
}

TEST(SearchState, TheRecordComesBackTheSame) {
  SearchState state;
  state.id = "abc123";
  state.file = "name = 'x'\n";
  state.command = {"./train", "{lr}"};
  TrialSegment one;
  one.segment = {3, 9, 27, 1, {"0.1", "relu"}};
  one.outcome = Outcome::kDone;
  one.value = 0.1 + 0.2;
  one.job = 12;
  one.why = "because";
  one.begun_s = 1e9;
  one.ended_s = 1e9 + 0.5;
  state.segments = {one};
  state.answers = {{3, 0, false, {"0.1"}}, {3, 27, true, {}}};
  ASSERT_OK_AND_ASSIGN(const SearchState read, DecodeState(EncodeState(state)));
  EXPECT_EQ(EncodeState(read), EncodeState(state));
  EXPECT_EQ(read.segments[0].segment, one.segment);
  EXPECT_EQ(read.segments[0].value, one.value);
  EXPECT_EQ(read.answers, state.answers);
}

TEST(SearchState, WhatIsNoRecordIsRefused) {
  EXPECT_THAT(DecodeState(""), StatusIs(kDataLoss, ""));
  EXPECT_THAT(DecodeState("{}"), StatusIs(kDataLoss, ""));
  EXPECT_THAT(DecodeState("{\"format\": 99}"),
              StatusIs(kDataLoss, "another version"));
}

TEST(SearchState, LinesOfQuestions) {
  EXPECT_EQ(QuestionLine({3, 0, {}}), R"({"ask":{"trial":3}})");
  EXPECT_EQ(QuestionLine({3, 9, 0.5}),
            R"({"tell":{"trial":3,"steps":9,"value":0.5}})");
  EXPECT_EQ(QuestionLine({3, 9, {}}),
            R"({"tell":{"trial":3,"steps":9,"value":null}})");
}

TEST(SearchState, TheStartLineHasWhatTheProgramWasTold) {
  SearchState state;
  TrialSegment one;
  one.segment = {0, 0, 4, 0, {"0.1", "3", "relu"}};
  one.outcome = Outcome::kDone;
  one.value = 0.25;
  state.segments = {one};
  state.answers = {{0, 0, false, one.segment.values}};
  const auto trials = [&] {
    return nlohmann::json::parse(StartLine(Spec(), state))["start"]["trials"];
  };
  EXPECT_THAT(StartLine(Spec(), state), Not(HasSubstr("\n")));
  EXPECT_EQ(trials()[0]["values"],
            nlohmann::json::parse(R"({"lr": 0.1, "n": 3, "act": "relu"})"));
  EXPECT_TRUE(trials()[0]["told"].empty());
  state.answers.push_back({0, 4, false, {}});
  EXPECT_EQ(trials()[0]["told"],
            nlohmann::json::parse(
                R"([{"steps": 4, "value": 0.25, "continue": true}])"));
}

TEST(SearchState, AnswersAreChecked) {
  const SearchSpec spec = Spec();
  const auto ask = [&](const std::string& line) {
    return ParseAnswer(spec, {2, 0, {}}, line);
  };
  ASSERT_OK_AND_ASSIGN(const Answer answer,
                       ask(R"({"values": {"lr": 0.1, "n": 3, "act": 8}})"));
  EXPECT_THAT(answer.values, ElementsAre("0.1", "3", "8"));
  EXPECT_EQ(answer.trial, 2);
  EXPECT_FALSE(answer.stop);
  ASSERT_OK_AND_ASSIGN(const Answer done, ask(R"({"done": true})"));
  EXPECT_TRUE(done.stop);
  EXPECT_THAT(ask("hello"), IsInvalid(""));
  EXPECT_THAT(ask("[]"), IsInvalid("no object"));
  EXPECT_THAT(ask("{}"), IsInvalid("values"));
  EXPECT_THAT(ask(R"({"values": {"lr": 0.1, "n": 3}})"),
              IsInvalid("lacks act"));
  EXPECT_THAT(ask(R"({"values": {"lr": 9, "n": 3, "act": "8"}})"),
              IsInvalid("lr is 9; give a number from 0.0001 to 1"));
  EXPECT_THAT(ask(R"({"values": {"lr": NaN, "n": 3, "act": "8"}})"),
              IsInvalid("lr"));
  EXPECT_THAT(ask(R"({"values": {"lr": 0.1, "n": 3, "act": "tanh"}})"),
              IsInvalid("not a value of act"));
  EXPECT_THAT(ask(R"({"values": {"lr": 0.1, "n": 3, "act": "8", "b": 1}})"),
              IsInvalid("those of the space only"));
  const auto tell = [&](const std::string& line) {
    return ParseAnswer(spec, {2, 4, 0.5}, line);
  };
  ASSERT_OK_AND_ASSIGN(const Answer stop, tell(R"({"continue": false})"));
  EXPECT_TRUE(stop.stop);
  EXPECT_EQ(stop.steps, 4);
  EXPECT_THAT(tell(R"({"continue": 1})"), IsInvalid("continue"));
}

}  // namespace
}  // namespace gavel::tune
