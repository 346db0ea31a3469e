// The measurements of `gavel profile`: rows of a CSV table, and Gavel's JSON
// made of them. Values; pure, thread-safe.
#ifndef GAVEL_STUDY_PROFILE_PROFILE_RESULTS_H_
#define GAVEL_STUDY_PROFILE_PROFILE_RESULTS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/throughput_table.h"

namespace gavel::study {

// Which figure it is; `beside`: another workload, empty: alone.
struct ProfileKey {
  std::string workload;
  int scale_factor = 1;
  std::string accelerator;
  bool spread = false;
  std::string beside;
  friend auto operator<=>(const ProfileKey&, const ProfileKey&) = default;
};

struct ProfileFigure {
  // Of the whole job; 0: cannot run there (the note says why); below 0: not
  // measured, to be tried again.
  double steps_per_s = -1;
  // Half of the 95 % confidence interval, steps/s.
  double half_width = 0;
  int samples = 0;     // reports that it is the mean of
  double seconds = 0;  // that they cover
  std::string note;
};

class ProfileResults {
 public:
  // Comma separated, with a line of titles. INVALID_ARGUMENT as "SOURCE:LINE:
  // what; remedy".
  static absl::StatusOr<ProfileResults> Parse(std::string_view csv,
                                              std::string_view source);
  std::string ToCsv() const;

  void Set(const ProfileKey& key, ProfileFigure figure);
  // Null: not measured, or to be measured again.
  const ProfileFigure* Find(const ProfileKey& key) const;
  const std::map<ProfileKey, ProfileFigure>& figures() const {
    return figures_;
  }
  // FAILED_PRECONDITION: nothing was measured.
  absl::StatusOr<ThroughputTable> ToTable() const;

 private:
  std::map<ProfileKey, ProfileFigure> figures_;
};

// Mean of samples, each of `weight_s` seconds, and half of the 95 % confidence
// interval of that mean (Student's t over the samples; 0 for fewer than two).
struct ProfileSample {
  double steps_per_s = 0;
  double weight_s = 0;
};
ProfileFigure FigureOf(const std::vector<ProfileSample>& samples);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_PROFILE_PROFILE_RESULTS_H_
