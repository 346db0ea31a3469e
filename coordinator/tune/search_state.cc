#include "coordinator/tune/search_state.h"

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::tune {
namespace {

constexpr int kFormatVersion = 1;
constexpr std::array<const char*, 3> kOutcomes = {"running", "done", "failed"};

Outcome OutcomeOf(const std::string& name) {
  if (name == kOutcomes[1]) return Outcome::kDone;
  return name == kOutcomes[2] ? Outcome::kFailed : Outcome::kRunning;
}

Json ToJson(const TrialSegment& one) {
  return {{"trial", one.segment.trial},
          {"from_steps", one.segment.from_steps},
          {"to_steps", one.segment.to_steps},
          {"source", one.segment.source},
          {"values", one.segment.values},
          {"outcome", kOutcomes[static_cast<size_t>(one.outcome)]},
          {"value", one.value},
          {"job", one.job},
          {"why", one.why},
          {"begun_s", one.begun_s},
          {"ended_s", one.ended_s}};
}

TrialSegment SegmentFrom(const ParsedJson& json) {
  TrialSegment one;
  json.at("trial").get_to(one.segment.trial);
  json.at("from_steps").get_to(one.segment.from_steps);
  json.at("to_steps").get_to(one.segment.to_steps);
  json.at("source").get_to(one.segment.source);
  json.at("values").get_to(one.segment.values);
  one.outcome = OutcomeOf(json.at("outcome").get<std::string>());
  json.at("value").get_to(one.value);
  json.at("job").get_to(one.job);
  json.at("why").get_to(one.why);
  json.at("begun_s").get_to(one.begun_s);
  json.at("ended_s").get_to(one.ended_s);
  return one;
}

// The values by name; numbers as numbers.
Json ValuesJson(const SearchSpec& spec,
                const std::vector<std::string>& values) {
  Json json = Json::object();
  for (size_t i = 0; i < spec.space.size(); ++i) {
    const Parameter& parameter = spec.space[i];
    if (parameter.kind == Parameter::Kind::kChoice) {
      json[parameter.name] = values[i];
    } else {
      json[parameter.name] = Json::parse(values[i]);
    }
  }
  return json;
}

Json SpaceJson(const SearchSpec& spec) {
  Json space = Json::array();
  for (const Parameter& parameter : spec.space) {
    Json one = {{"name", parameter.name}, {"kind", NameOf(parameter.kind)}};
    if (parameter.kind == Parameter::Kind::kChoice) {
      one["values"] = parameter.values;
    } else {
      one["min"] = parameter.min;
      one["max"] = parameter.max;
    }
    space.push_back(std::move(one));
  }
  return space;
}

absl::StatusOr<std::vector<std::string>> ValuesFrom(const SearchSpec& spec,
                                                    const ParsedJson& json) {
  std::vector<std::string> values;
  for (const Parameter& parameter : spec.space) {
    const ParsedJson* value = FindField(json, parameter.name);
    if (value == nullptr) {
      return Refuse("values lacks ", parameter.name, "; give one");
    }
    if (parameter.kind == Parameter::Kind::kChoice) {
      values.push_back(value->is_string() ? value->get<std::string>()
                                          : value->dump());
    } else {
      GAVEL_ASSIGN_OR_RETURN(const double number,
                             Number(*value, parameter.name));
      if (!(number >= parameter.min && number <= parameter.max)) {
        return Refuse(parameter.name, " is ", number, "; give a number from ",
                      parameter.min, " to ", parameter.max);
      }
      values.push_back(FormatValue(parameter, number));
    }
    GAVEL_RETURN_IF_ERROR(CheckValue(parameter, values.back()));
  }
  if (json.size() != spec.space.size()) {
    return Refuse("values has ", json.size(), " names and the space ",
                  spec.space.size(), "; give those of the space only");
  }
  return values;
}

absl::StatusOr<bool> Truth(const ParsedJson& json, const std::string& key,
                           std::string_view form) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* field,
                         Field(json, key, ParsedJson::value_t::boolean, form));
  return field->get<bool>();
}

}  // namespace

std::string EncodeState(const SearchState& state) {
  Json segments = Json::array();
  for (const TrialSegment& one : state.segments) {
    segments.push_back(ToJson(one));
  }
  Json answers = Json::array();
  for (const Answer& one : state.answers) {
    answers.push_back({{"trial", one.trial},
                       {"steps", one.steps},
                       {"stop", one.stop},
                       {"values", one.values}});
  }
  const Json json = {{"format", kFormatVersion}, {"id", state.id},
                     {"file", state.file},       {"command", state.command},
                     {"segments", segments},     {"answers", answers}};
  return json.dump(1) + "\n";
}

absl::StatusOr<SearchState> DecodeState(std::string_view text) {
  try {
    const ParsedJson json = ParsedJson::parse(text);
    if (json.at("format").get<int>() != kFormatVersion) {
      return absl::DataLossError("it was written by another version of gavel");
    }
    SearchState state;
    json.at("id").get_to(state.id);
    json.at("file").get_to(state.file);
    json.at("command").get_to(state.command);
    for (const ParsedJson& one : json.at("segments")) {
      state.segments.push_back(SegmentFrom(one));
    }
    for (const ParsedJson& one : json.at("answers")) {
      state.answers.push_back(
          {one.at("trial").get<int>(), one.at("steps").get<uint64_t>(),
           one.at("stop").get<bool>(),
           one.at("values").get<std::vector<std::string>>()});
    }
    return state;
  } catch (const std::exception& error) {
    return absl::DataLossError(error.what());
  }
}

std::string StartLine(const SearchSpec& spec, const SearchState& state) {
  std::map<int, Json> trials;
  for (const Answer& answer : state.answers) {
    if (answer.steps == 0) {
      if (answer.stop) continue;
      trials[answer.trial] = {{"trial", answer.trial},
                              {"values", ValuesJson(spec, answer.values)},
                              {"told", Json::array()}};
      continue;
    }
    for (const TrialSegment& one : state.segments) {
      if (one.segment.trial != answer.trial ||
          one.segment.to_steps != answer.steps) {
        continue;
      }
      trials[answer.trial]["told"].push_back(
          {{"steps", answer.steps},
           {"value", one.outcome == Outcome::kDone ? Json(one.value) : Json()},
           {"continue", !answer.stop}});
    }
  }
  Json list = Json::array();
  for (auto& [number, trial] : trials) list.push_back(std::move(trial));
  const Json line = {{"start",
                      {{"name", spec.name},
                       {"metric", spec.metric},
                       {"goal", spec.maximise ? "max" : "min"},
                       {"seed", spec.seed},
                       {"steps", spec.steps},
                       {"steps_min", spec.steps_min},
                       {"space", SpaceJson(spec)},
                       {"trials", std::move(list)}}}};
  return line.dump();
}

std::string QuestionLine(const Question& question) {
  if (question.steps == 0) {
    return Json{{"ask", {{"trial", question.trial}}}}.dump();
  }
  const Json value = question.value ? Json(*question.value) : Json();
  return Json{{"tell",
               {{"trial", question.trial},
                {"steps", question.steps},
                {"value", value}}}}
      .dump();
}

absl::StatusOr<Answer> ParseAnswer(const SearchSpec& spec,
                                   const Question& question,
                                   std::string_view line) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson json, ParseJson(line));
  if (!json.is_object()) return Refuse("it is no object; give one");
  Answer answer{question.trial, question.steps};
  if (question.steps > 0) {
    GAVEL_ASSIGN_OR_RETURN(
        const bool goes_on,
        Truth(json, "continue", "{\"continue\": true} or false"));
    answer.stop = !goes_on;
    return answer;
  }
  if (FindField(json, "done") != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(answer.stop,
                           Truth(json, "done", "{\"done\": true}"));
    if (answer.stop) return answer;
  }
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* values,
      Field(json, "values", ParsedJson::value_t::object,
            "{\"values\": {\"NAME\": VALUE}} or {\"done\": true}"));
  GAVEL_ASSIGN_OR_RETURN(answer.values, ValuesFrom(spec, *values));
  return answer;
}

}  // namespace gavel::tune
