// A hyperparameter search as the user writes it (search.toml): the method, the
// metric, the resources and the space of the parameters. Given text, not files.
// Called by `gavel tune`; values, thread-safe.
//
// A value of a parameter is the text that the program gets in its arguments:
// whole numbers without a point, others with the shortest digits that read back
// as the same number, so that a trial can be run again by hand.
#ifndef GAVEL_COORDINATOR_TUNE_SEARCH_SPEC_H_
#define GAVEL_COORDINATOR_TUNE_SEARCH_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/file_keys.h"

namespace gavel::tune {

inline constexpr size_t kSearchBytesMax = 64 * 1024;
inline constexpr int kTrialsMax = 10'000;
inline constexpr size_t kParametersMax = 64;

enum class Method : uint8_t {
  kRandom,
  kGrid,
  kSuccessiveHalving,
  kHyperBand,
  kMedian,
  kPopulation,
  kProgram,
};

struct Parameter {
  enum class Kind : uint8_t { kUniform, kLogUniform, kInteger, kChoice };
  std::string name = "";  // [A-Za-z_][A-Za-z0-9_]{0,63}
  Kind kind = Kind::kUniform;
  double min = 0;  // numbers: min < max
  double max = 0;
  std::vector<std::string> values = {};  // of a choice; not empty
  int points = 0;                        // of a grid; 0: not given
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

struct SearchSpec {
  std::string name;
  Method method = Method::kRandom;
  std::string metric;
  bool maximise = false;
  int trials = 0;          // with grid and hyperband: as many as they have
  int trials_at_once = 8;  // that have a job
  double best_weight = 1;  // times the weight of the best trial's job
  uint64_t steps = 0;      // most steps of a trial
  // Steps of the first rung, and between decisions; 0: the method has none.
  uint64_t steps_min = 0;
  int eta = 3;
  uint64_t seed = 0;
  std::vector<std::string> program;  // the optimiser of kProgram
  std::vector<Parameter> space;      // not empty
  std::string job;  // [job] as TOML: further keys of the trials' job files
};

// INVALID_ARGUMENT as "SOURCE:LINE:COLUMN: what; remedy".
absl::StatusOr<SearchSpec> ParseSearchSpec(std::string_view toml,
                                           std::string_view source);

// The keys, in the order of the document.
std::span<const FileTable> SearchFileTables();

// "log_uniform"; "hyperband".
std::string_view NameOf(Parameter::Kind kind);
std::string_view NameOf(Method method);

// `value` as text, as above. Integers are rounded.
std::string FormatValue(const Parameter& parameter, double value);
// INVALID_ARGUMENT: `text` is not a value of the parameter.
absl::Status CheckValue(const Parameter& parameter, std::string_view text);

// `argument` with each {NAME} replaced by the value of that parameter, and
// {trial} by the trial's number. Other braces stay. INVALID_ARGUMENT: NAME is
// no parameter.
absl::StatusOr<std::string> FillIn(std::string_view argument,
                                   std::span<const Parameter> space,
                                   std::span<const std::string> values,
                                   int trial);
// INVALID_ARGUMENT: an argument names something else, or no argument names some
// parameter.
absl::Status CheckArguments(std::span<const std::string> arguments,
                            std::span<const Parameter> space);

// ---- Samplers. `values` are in the order of the space.

// A trial drawn from the space: the same for the same seed and number.
std::vector<std::string> DrawTrial(const SearchSpec& spec, int trial);

// Points of the grid, at most kTrialsMax: the product over the parameters of
// their values, `points` even steps (on the scale of log_uniform) or, for an
// integer without points, all integers. The last parameter changes fastest.
int GridSize(const SearchSpec& spec);
std::vector<std::string> GridTrial(const SearchSpec& spec, int trial);

// Perturbs another trial's values for population-based training (Jaderberg et
// al. 2017, section 4.1): each number is multiplied by 0.8 or 1.2, within its
// range; an integer moves by one at least, and a choice to a neighbour in its
// list.
std::vector<std::string> Perturb(const SearchSpec& spec,
                                 std::span<const std::string> values, int trial,
                                 uint64_t steps);

// A bracket of HyperBand or successive halving: trials at its first rung, and
// the steps of each rung.
struct Bracket {
  int trials = 0;
  std::vector<uint64_t> rungs;
};
std::vector<Bracket> BracketsOf(const SearchSpec& spec);

// Uniform in [0, 1) by (seed, a, b, c), without state.
double Draw(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

}  // namespace gavel::tune

#endif  // GAVEL_COORDINATOR_TUNE_SEARCH_SPEC_H_
