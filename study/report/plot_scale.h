// Axes of plots: where the ticks are, and where a value is drawn. Pure. Values,
// thread-safe.
#ifndef GAVEL_STUDY_REPORT_PLOT_SCALE_H_
#define GAVEL_STUDY_REPORT_PLOT_SCALE_H_

#include <string>
#include <vector>

namespace gavel::study {

struct PlotTick {
  double value = 0;
  std::string label;  // empty: a line without a word
};

// The smallest and largest of values seen so far.
struct PlotRange {
  double min = 0;
  double max = 0;
  bool empty = true;
  void Add(double value);  // NaN and infinity are left out
};

class PlotScale {
 public:
  // From 0 (or below) or from near the least value, to a round number.
  static PlotScale Linear(PlotRange range, bool from_zero);
  // To exactly these ends.
  static PlotScale Fixed(double min, double max);
  // Powers of ten; what is not above 0 is drawn at the lower end.
  static PlotScale Log(PlotRange range);

  // Draws min at `low` and max at `high`, in pixels.
  void Place(double low, double high);
  double At(double value) const;
  const std::vector<PlotTick>& ticks() const { return ticks_; }
  double min() const { return min_; }
  double max() const { return max_; }

 private:
  PlotScale(double min, double max, bool log);
  void MakeLinearTicks(double step);
  void MakeLogTicks();
  double Forward(double value) const;

  double min_;
  double max_;
  bool log_;
  double low_ = 0;
  double high_ = 1;
  std::vector<PlotTick> ticks_;
};

// "0", "2.5", "1200", "1e+06": at most `digits` significant ones.
std::string PlotNumber(double value, int digits = 6);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_PLOT_SCALE_H_
