// Decides which trials of a search train next, and up to which step. Pure: a
// decision follows from the search file and the results of the
// trials so far, so that a search resumes from its record alone, and no
// decision depends on which trial was faster.
//
// A trial trains in segments, from one number of steps to the next. The metric
// at the end of a segment is all that decisions use. Called by `gavel tune`;
// values and functions, thread-safe.
//
//   random, grid: every trial trains to the end.
//   successive_halving: Jamieson and Talwalkar 2016. The best 1/eta of
//     each rung continue in the next, with eta times the steps.
//   hyperband: Li et al., JMLR 2018, Algorithm 1.
//   median: Golovin et al., KDD'17, section 3.2.2.
//   population: Jaderberg et al. 2017, section 4.1, in step: all trials of the
//     population are compared at the same number of steps.
//   program: a program of the user's; see Question.
//
// SearchState is the record of a search, from which it resumes: written before
// each act, and again when its result is known; `gavel tune` keeps it in the
// search's folder.
#ifndef GAVEL_COORDINATOR_TUNE_OPTIMISER_H_
#define GAVEL_COORDINATOR_TUNE_OPTIMISER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tune/search_spec.h"
#include "core/bids.h"

namespace gavel::tune {

struct Segment {
  int trial = 0;  // from 0
  uint64_t from_steps = 0;
  uint64_t to_steps = 0;
  // The trial whose checkpoint at from_steps it continues; another one is
  // copied first.
  int source = 0;
  std::vector<std::string> values;
  friend bool operator==(const Segment&, const Segment&) = default;
};

enum class Outcome : uint8_t {
  kRunning,
  kDone,    // `value` is the metric at to_steps
  kFailed,  // without it, and there is no checkpoint at to_steps
};

// A segment that was begun.
struct SegmentRecord {
  Segment segment;
  Outcome outcome = Outcome::kRunning;
  double value = 0;  // finite
};

// An answer of the program of Method::kProgram.
struct Answer {
  int trial = 0;
  uint64_t steps = 0;  // 0: it was asked for a trial; else told of a value
  bool stop = false;   // there are no more trials; the trial stops
  std::vector<std::string> values = {};  // of the new trial
  friend bool operator==(const Answer&, const Answer&) = default;
};

// The next question for the program.
struct Question {
  int trial = 0;
  uint64_t steps = 0;           // see Answer
  std::optional<double> value;  // the metric at `steps`; nothing: it failed
  friend bool operator==(const Question&, const Question&) = default;
};

struct Plan {
  // Segments to begin, in this order, as far as trials_at_once allows. A
  // checkpoint that several of them need is copied before any of them begins.
  std::vector<Segment> next;
  std::optional<Question> question;  // before anything else is begun
  bool over = false;                 // nothing runs or is left to do
  // The segments that are not begun, those of `next` included: their steps, the
  // most steps that one trial makes in them, and the step at which the last one
  // ends. It is as if no trial failed from now on and kMedian stopped none; for
  // kProgram only `next` counts.
  uint64_t steps_to_come = 0;
  uint64_t longest_to_come = 0;
  uint64_t last_step = 0;
};

Plan Decide(const SearchSpec& spec, const std::vector<SegmentRecord>& begun,
            const std::vector<Answer>& answers = {});

// The goal of the search for the coordinator. A kProgram alone knows its
// further segments, so its goal has no numbers.
AppGoal GoalOf(const SearchSpec& spec, const std::vector<SegmentRecord>& begun,
               const std::vector<Answer>& answers = {});

// The trial with the best metric among those that trained longest; of equal
// ones the first. Nothing: none has a metric.
struct Best {
  int trial = 0;
  uint64_t steps = 0;
  double value = 0;
};
std::optional<Best> BestOf(const SearchSpec& spec,
                           const std::vector<SegmentRecord>& begun);

// ---- The record of a search

struct TrialSegment : SegmentRecord {
  uint64_t job = 0;    // 0: it is to be submitted, or that may just have begun
  std::string why;     // it failed
  double begun_s = 0;  // since 1970: job submitted, and ended
  double ended_s = 0;
};

struct SearchState {
  std::string id;    // six hexadecimal digits, in the names of its jobs
  std::string file;  // the text of the search file
  std::vector<std::string> command;
  std::vector<TrialSegment> segments;
  std::vector<Answer> answers;

  // The segments as Decide() reads them.
  std::vector<SegmentRecord> begun() const {
    return {segments.begin(), segments.end()};
  }
};

std::string EncodeState(const SearchState& state);
// DATA_LOSS: not such a record.
absl::StatusOr<SearchState> DecodeState(std::string_view text);

// ---- The lines of JSON by which a program is the optimiser, one each without
// the end of line.

inline constexpr size_t kAnswerBytesMax = 64 * 1024;

// {"start": {...}}: the search and, in "trials", what became of those that it
// has already, for a program that is started again. It has no answer.
std::string StartLine(const SearchSpec& spec, const SearchState& state);
// {"ask": {"trial": 3}} or
// {"tell": {"trial": 3, "steps": 900, "value": 0.25}}
std::string QuestionLine(const Question& question);
// To "ask": {"values": {"lr": 0.1, "depth": 3}} or {"done": true}. To "tell":
// {"continue": true} or false. INVALID_ARGUMENT: it is no such answer, or a
// value is not one of the space.
absl::StatusOr<Answer> ParseAnswer(const SearchSpec& spec,
                                   const Question& question,
                                   std::string_view line);

}  // namespace gavel::tune

#endif  // GAVEL_COORDINATOR_TUNE_OPTIMISER_H_
