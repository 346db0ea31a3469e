// The record of a search, from which it resumes: written before each act, and
// again when its result is known. Called by `gavel tune`, which keeps it in the
// search's folder; pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_TUNE_SEARCH_STATE_H_
#define GAVEL_COORDINATOR_TUNE_SEARCH_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tune/optimiser.h"

namespace gavel::tune {

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

#endif  // GAVEL_COORDINATOR_TUNE_SEARCH_STATE_H_
