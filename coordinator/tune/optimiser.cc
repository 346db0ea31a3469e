#include "coordinator/tune/optimiser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::tune {

// ---- Decisions

namespace {

// The course of a search so far, from which each method makes a plan: it wants
// the segments in order, and those that are not begun yet become the plan's.
class Course {
 public:
  Course(const SearchSpec& spec, const std::vector<SegmentRecord>& begun)
      : spec_(spec) {
    for (const SegmentRecord& record : begun) {
      begun_[{record.segment.trial, record.segment.to_steps}] = &record;
      if (record.outcome == Outcome::kRunning) ++running_;
    }
  }

  // Whether the segment has ended; adds it to the plan if it is not begun.
  bool Want(Segment segment) {
    const SegmentRecord* record = Find(segment.trial, segment.to_steps);
    if (record != nullptr) return record->outcome != Outcome::kRunning;
    Expect(1, segment.from_steps, segment.to_steps, segment.from_steps);
    plan_.next.push_back(std::move(segment));
    return false;
  }
  // Segments of so many trials will follow those that run or are wanted. A
  // trial has had no segment beyond step `since`.
  void Expect(size_t trials, uint64_t from_steps, uint64_t to_steps,
              uint64_t since) {
    plan_.steps_to_come += trials * (to_steps - from_steps);
    plan_.longest_to_come = std::max(plan_.longest_to_come, to_steps - since);
    plan_.last_step = std::max(plan_.last_step, to_steps);
  }
  // A segment of the trial itself, with the values that it began with.
  bool Want(int trial, uint64_t from_steps, uint64_t to_steps) {
    return Want({trial, from_steps, to_steps, trial, ValuesOf(trial)});
  }

  bool HasBegun(int trial, uint64_t steps) const {
    return Find(trial, steps) != nullptr;
  }
  bool Failed(int trial, uint64_t steps) const {
    const SegmentRecord* record = Find(trial, steps);
    return record != nullptr && record->outcome == Outcome::kFailed;
  }
  // Lower is better, whatever the goal; nothing: it has none.
  std::optional<double> Loss(int trial, uint64_t steps) const {
    const SegmentRecord* record = Find(trial, steps);
    if (record == nullptr || record->outcome != Outcome::kDone) return {};
    return spec_.maximise ? -record->value : record->value;
  }
  // The trials with a metric, the best first. Equal trials keep the order of
  // their numbers.
  std::vector<int> Ranked(const std::vector<int>& trials,
                          uint64_t steps) const {
    std::vector<std::pair<double, int>> losses;
    for (const int trial : trials) {
      if (const auto loss = Loss(trial, steps))
        losses.push_back({*loss, trial});
    }
    std::ranges::sort(losses);
    std::vector<int> ranked;
    for (const auto& [loss, trial] : losses) ranked.push_back(trial);
    return ranked;
  }

  std::vector<std::string> ValuesOf(int trial) const {
    return spec_.method == Method::kGrid ? GridTrial(spec_, trial)
                                         : DrawTrial(spec_, trial);
  }

  void Ask(Question question) { plan_.question = question; }
  Plan Take() {
    plan_.over = plan_.next.empty() && !plan_.question && running_ == 0;
    return std::move(plan_);
  }

 private:
  const SegmentRecord* Find(int trial, uint64_t steps) const {
    const auto found = begun_.find({trial, steps});
    return found == begun_.end() ? nullptr : found->second;
  }

  const SearchSpec& spec_;
  std::map<std::pair<int, uint64_t>, const SegmentRecord*> begun_;
  int running_ = 0;
  Plan plan_;
};

// The first `count` numbers from `first` on.
std::vector<int> Numbers(int first, int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

// The rungs behind the one that these trials have begun at `from`.
void ExpectRungs(const SearchSpec& spec, const Bracket& bracket,
                 const std::vector<int>& trials, uint64_t from,
                 Course& course) {
  auto rung = std::ranges::upper_bound(bracket.rungs, from);
  const bool all_begun = std::ranges::all_of(
      trials, [&](int trial) { return course.HasBegun(trial, *rung); });
  const uint64_t since = all_begun ? *rung : from;
  size_t kept = trials.size();
  for (from = *rung++; rung != bracket.rungs.end(); from = *rung++) {
    kept /= static_cast<size_t>(spec.eta);
    if (kept == 0) return;
    course.Expect(kept, from, *rung, since);
  }
}

// "Successive halving", the inner loop of Algorithm 1: trials that fail are
// never among the best.
void Halve(const SearchSpec& spec, int first, const Bracket& bracket,
           Course& course) {
  std::vector<int> trials = Numbers(first, bracket.trials);
  uint64_t from = 0;
  for (const uint64_t rung : bracket.rungs) {
    bool all_there = true;
    for (const int trial : trials) all_there &= course.Want(trial, from, rung);
    if (!all_there) return ExpectRungs(spec, bracket, trials, from, course);
    const size_t kept = trials.size() / static_cast<size_t>(spec.eta);
    trials = course.Ranked(trials, rung);
    trials.resize(std::min(trials.size(), kept));
    from = rung;
  }
}

// The ends of a trial's segments: every steps_min steps, and the last.
std::vector<uint64_t> EvenRungs(const SearchSpec& spec) {
  std::vector<uint64_t> rungs;
  for (uint64_t at = spec.steps_min; at < spec.steps; at += spec.steps_min) {
    rungs.push_back(at);
  }
  rungs.push_back(spec.steps);
  return rungs;
}

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

// "Stops a pending trial at step s if its best objective value by step s is
// strictly worse than the median value of the running averages of all completed
// trials' objectives reported up to step s." So that the order in which trials
// come to s changes nothing, those before it by number count as completed: it
// waits until each of them has come to s or has stopped.
void StopByMedian(const SearchSpec& spec, Course& course) {
  const std::vector<uint64_t> rungs = EvenRungs(spec);
  // By rung: the running averages of the trials before, up to it.
  std::vector<std::vector<double>> averages(rungs.size());
  // The first rung at which some trial before has not ended its segment.
  size_t pending = rungs.size();
  for (int trial = 0; trial < spec.trials; ++trial) {
    uint64_t from = 0;
    double best = std::numeric_limits<double>::infinity();
    double sum = 0;
    for (size_t rung = 0; rung < rungs.size(); ++rung) {
      const bool has_begun = course.HasBegun(trial, rungs[rung]);
      if (!course.Want(trial, from, rungs[rung])) {
        pending = std::min(pending, rung);
        course.Expect(1, rungs[rung], spec.steps,
                      has_begun ? rungs[rung] : from);
        break;
      }
      const std::optional<double> loss = course.Loss(trial, rungs[rung]);
      if (!loss) break;
      best = std::min(best, *loss);
      sum += *loss;
      const bool judged = rung < pending;
      const bool worse =
          judged && !averages[rung].empty() && best > MedianOf(averages[rung]);
      averages[rung].push_back(sum / static_cast<double>(rung + 1));
      if (!judged) {
        pending = rung + 1;
        course.Expect(1, rungs[rung], spec.steps, rungs[rung]);
        break;
      }
      if (worse) break;
      from = rungs[rung];
    }
  }
}

// Truncation selection: a trial of the worst fifth, and one that failed,
// continues from the checkpoint of one of the best fifth, with its values
// perturbed.
void Evolve(const SearchSpec& spec, Course& course) {
  const std::vector<int> all = Numbers(0, spec.trials);
  const int fifth = std::max(1, spec.trials / 5);
  std::vector<std::vector<std::string>> values;
  for (const int trial : all) values.push_back(course.ValuesOf(trial));
  std::vector<int> source = all;
  uint64_t from = 0;
  for (const uint64_t rung : EvenRungs(spec)) {
    bool all_there = true;
    bool all_begun = true;
    for (const int trial : all) {
      const auto i = static_cast<size_t>(trial);
      all_begun &= course.HasBegun(trial, rung);
      all_there &=
          course.Want(Segment{trial, from, rung, source[i], values[i]});
    }
    if (!all_there) {
      return course.Expect(all.size(), rung, spec.steps,
                           all_begun ? rung : from);
    }
    const std::vector<int> ranked = course.Ranked(all, rung);
    if (ranked.empty()) return;
    const int good = static_cast<int>(ranked.size());
    const std::vector<std::vector<std::string>> before = values;
    source = all;
    for (const int trial : all) {
      const auto i = static_cast<size_t>(trial);
      const auto place = std::ranges::find(ranked, trial) - ranked.begin();
      if (place < spec.trials - fifth && place < good) continue;
      const double part = Draw(spec.seed, i, kParametersMax, rung);
      const int best =
          ranked[static_cast<size_t>(part * std::min(fifth, good))];
      if (best == trial) continue;  // all others failed
      source[i] = best;
      values[i] = Perturb(spec, before[static_cast<size_t>(best)], trial, rung);
    }
    from = rung;
  }
}

// Trials train in rounds: each live trial trains to its next rung, then the
// program gets their values in the order of trials, and a question for each new
// trial.
void AskProgram(const SearchSpec& spec, const std::vector<Answer>& answers,
                Course& course) {
  const std::vector<uint64_t> rungs = EvenRungs(spec);
  struct Live {
    int trial;
    size_t rung;
    const std::vector<std::string>* values;
  };
  std::vector<Live> live;
  auto answer = answers.begin();
  // The next answer; null: it is the next question.
  const auto next = [&](Question question) -> const Answer* {
    if (answer != answers.end()) return &*answer++;
    course.Ask(question);
    return nullptr;
  };
  int asked = 0;
  bool more = true;
  while (true) {
    while (more && asked < spec.trials &&
           live.size() < static_cast<size_t>(spec.trials_at_once)) {
      const Answer* given = next({asked, 0, {}});
      if (given == nullptr) return;
      if (given->stop) {
        more = false;
      } else {
        live.push_back({asked++, 0, &given->values});
      }
    }
    if (live.empty()) return;
    bool all_there = true;
    for (const Live& one : live) {
      const uint64_t from = one.rung == 0 ? 0 : rungs[one.rung - 1];
      all_there &= course.Want(
          Segment{one.trial, from, rungs[one.rung], one.trial, *one.values});
    }
    if (!all_there) return;
    std::vector<Live> left;
    for (const Live& one : live) {
      const uint64_t steps = rungs[one.rung];
      std::optional<double> value = course.Loss(one.trial, steps);
      if (value && spec.maximise) value = -*value;
      const Answer* given = next({one.trial, steps, value});
      if (given == nullptr) return;
      if (given->stop || !value || one.rung + 1 == rungs.size()) continue;
      left.push_back({one.trial, one.rung + 1, one.values});
    }
    live = std::move(left);
  }
}

}  // namespace

Plan Decide(const SearchSpec& spec, const std::vector<SegmentRecord>& begun,
            const std::vector<Answer>& answers) {
  Course course(spec, begun);
  int first = 0;
  switch (spec.method) {
    case Method::kRandom:
    case Method::kGrid:
      for (const int trial : Numbers(0, spec.trials)) {
        course.Want(trial, 0, spec.steps);
      }
      break;
    case Method::kSuccessiveHalving:
    case Method::kHyperBand:
      for (const Bracket& bracket : BracketsOf(spec)) {
        Halve(spec, first, bracket, course);
        first += bracket.trials;
      }
      break;
    case Method::kMedian:
      StopByMedian(spec, course);
      break;
    case Method::kPopulation:
      Evolve(spec, course);
      break;
    case Method::kProgram:
      AskProgram(spec, answers, course);
      break;
  }
  return course.Take();
}

AppGoal GoalOf(const SearchSpec& spec, const std::vector<SegmentRecord>& begun,
               const std::vector<Answer>& answers) {
  AppGoal goal;
  goal.app = spec.name;
  if (spec.method == Method::kProgram) return goal;
  const Plan plan = Decide(spec, begun, answers);
  uint64_t total = plan.steps_to_come;
  uint64_t longest = plan.last_step;
  for (const SegmentRecord& one : begun) {
    if (one.outcome == Outcome::kFailed) continue;
    total += one.segment.to_steps - one.segment.from_steps;
    longest = std::max(longest, one.segment.to_steps);
  }
  goal.steps_to_come = static_cast<double>(plan.steps_to_come);
  goal.longest_to_come = static_cast<double>(plan.longest_to_come);
  goal.steps_total = static_cast<double>(total);
  goal.longest_total = static_cast<double>(longest);
  return goal;
}

std::optional<Best> BestOf(const SearchSpec& spec,
                           const std::vector<SegmentRecord>& begun) {
  std::optional<Best> best;
  for (const SegmentRecord& record : begun) {
    if (record.outcome != Outcome::kDone) continue;
    const Best one{record.segment.trial, record.segment.to_steps, record.value};
    const auto is_better = [&] {
      if (one.steps != best->steps) return one.steps > best->steps;
      if (one.value != best->value) {
        return (one.value > best->value) == spec.maximise;
      }
      return one.trial < best->trial;
    };
    if (!best || is_better()) best = one;
  }
  return best;
}

// ---- The record of a search

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
