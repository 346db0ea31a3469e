// Checks that the parser reads every field of `gavel solve --example` and of
// docs/solve.schema.json, and that the example conforms to the schema.

#include <fstream>

#include "core/text.h"
#include "gavel_paths.h"
#include "study/policy_case.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

// The parts of JSON Schema that our schema uses. Any other part is a failure.
class Schema {
 public:
  explicit Schema(const std::string& path)
      : root_(Json::parse(std::ifstream(path))) {}

  const Json& At(const std::string& name) const {
    return root_["$defs"].at(name);
  }
  // The error in `value` and its place; empty if there is none.
  std::string Check(const std::string& name, const Json& value) const {
    return Check(At(name), value, name);
  }
  const Json& Resolve(const Json& schema) const {
    if (!schema.contains("$ref")) return schema;
    return Resolve(At(schema["$ref"].get<std::string>().substr(8)));
  }

 private:
  static bool HasType(const Json& value, const std::string& type) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  static std::string CheckType(const Json& type, const Json& value,
                               const std::string& where) {
    const Json types = type.is_array() ? type : Json::array({type});
    for (const Json& one : types) {
      if (HasType(value, one.get<std::string>())) return "";
    }
    return StrCat(where, " is ", value.type_name());
  }

  std::string CheckAny(const Json& schemas, const Json& value,
                       const std::string& where) const {
    std::string wrong;
    for (const Json& schema : schemas) {
      wrong = Check(schema, value, where);
      if (wrong.empty()) return "";
    }
    return wrong;
  }

  std::string CheckMembers(const Json& schema, const Json& value,
                           const std::string& where) const {
    const Json known = schema.value("properties", Json::object());
    const Json rest = schema.value("additionalProperties", Json(true));
    for (const auto& [key, member] : value.items()) {
      const std::string place = StrCat(where, ".", key);
      std::string wrong;
      if (known.contains(key)) {
        wrong = Check(known[key], member, place);
      } else if (rest.is_object()) {
        wrong = Check(rest, member, place);
      } else if (rest == false) {
        wrong = place + " is not in the schema";
      }
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  std::string Check(const Json& schema, const Json& value,
                    const std::string& where) const {
    for (const auto& [word, what] : schema.items()) {
      std::string wrong;
      if (word == "$ref") {
        wrong = Check(Resolve(schema), value, where);
      } else if (word == "type") {
        wrong = CheckType(what, value, where);
      } else if (word == "anyOf") {
        wrong = CheckAny(what, value, where);
      } else if (word == "required") {
        for (const Json& key : what) {
          if (!value.contains(key.get<std::string>())) {
            wrong = StrCat(where, " lacks ", key.get<std::string>());
          }
        }
      } else if (word == "enum") {
        if (std::ranges::count(what, value) == 0) wrong = where + " is no such";
      } else if (word == "items") {
        for (const Json& item : value) {
          if (wrong.empty()) wrong = Check(what, item, where + "[]");
        }
      } else if (word == "minItems") {
        if (value.size() < what) wrong = where + " is too short";
      } else if (word == "maxItems") {
        if (value.size() > what) wrong = where + " is too long";
      } else if (word == "minimum") {
        if (value.is_number() && value < what) wrong = where + " is too small";
      } else if (word == "exclusiveMinimum") {
        if (value.is_number() && value <= what) wrong = where + " is too small";
      } else if (word != "properties" && word != "additionalProperties") {
        wrong = StrCat("the test does not know \"", word, "\"");
      }
      if (!wrong.empty()) return wrong;
    }
    return value.is_object() ? CheckMembers(schema, value, where) : "";
  }

  Json root_;
};

class PolicyExampleTest : public ::testing::Test {
 protected:
  static absl::StatusOr<std::vector<PolicyCase>> Parse(
      const Json& json, const std::string& policy) {
    const absl::StatusOr<ParsedJson> parsed = ParseJson(json.dump());
    if (!parsed.ok()) return parsed.status();
    return ParsePolicyCases(*parsed, policy);
  }

  const Schema schema_{GAVEL_SOURCE_DIR "/docs/solve.schema.json"};
};

TEST_F(PolicyExampleTest, EachPolicySolvesItsExampleAsTheSchemaSays) {
  for (const std::string& policy : PolicyNames()) {
    SCOPED_TRACE(policy);
    const Json example = PolicyExample(policy);
    EXPECT_EQ(schema_.Check("case", example), "");
    EXPECT_EQ(schema_.Check("input", example), "");
    ASSERT_OK_AND_ASSIGN(std::vector<PolicyCase> cases, Parse(example, policy));
    const auto made = MakePolicy(policy);
    ASSERT_OK(made);
    absl::StatusOr<PolicyResult> result = (*made)->Solve(cases.front().problem);
    ASSERT_OK(result);
    EXPECT_EQ(result->outcome, SolveOutcome::kOptimal) << result->detail;
    const Json answer = Json::parse(
        AnswersJson(policy, {{std::move(cases.front()), *result, 0}}).dump());
    EXPECT_EQ(schema_.Check("output", answer), "") << answer;
  }
}

TEST_F(PolicyExampleTest, AnExampleHasWhatItsPolicyNeedsAndNoMore) {
  const Json fifo = PolicyExample("fifo");
  EXPECT_EQ(fifo.size(), 3u) << fifo;
  EXPECT_FALSE(fifo["jobs"][0].contains("num_steps_remaining"));
  const Json packed =
      PolicyExample("max_sum_throughput_normalized_by_cost_packed_SLOs");
  EXPECT_TRUE(packed.contains("pair_throughputs"));
  EXPECT_TRUE(packed.contains("SLO_seconds_remaining"));
  EXPECT_TRUE(packed["jobs"][0].contains("num_steps_remaining"));
}

// Every field of the schema is in the example and is read by the parser, which
// refuses a value of another type.
TEST_F(PolicyExampleTest, EveryFieldOfTheSchemaIsRead) {
  const Json full = FullPolicyExample();
  EXPECT_EQ(schema_.Check("case", full), "");
  ASSERT_OK(Parse(full, "finish_time_fairness_packed"));
  for (const auto& [field, schema] : schema_.At("case")["properties"].items()) {
    ASSERT_TRUE(full.contains(field)) << field;
    Json wrong = full;
    wrong[field] = "x";
    EXPECT_FALSE(Parse(wrong, "fifo").ok()) << field;
  }
  for (const auto& [field, schema] : schema_.At("job")["properties"].items()) {
    Json wrong = full;
    ASSERT_TRUE(wrong["jobs"][0].contains(field)) << field;
    wrong["jobs"][0][field] = "x";
    EXPECT_FALSE(Parse(wrong, "fifo").ok()) << field;
  }
}

// The parser requires every field that the schema requires.
TEST_F(PolicyExampleTest, WhatTheSchemaRequiresIsMissed) {
  for (const Json& field : schema_.At("case")["required"]) {
    Json less = FullPolicyExample();
    less.erase(field.get<std::string>());
    EXPECT_FALSE(Parse(less, "fifo").ok()) << field;
  }
}

}  // namespace
}  // namespace gavel::testing
