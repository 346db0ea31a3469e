#include "coordinator/engine/throughput_estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/SVD"

namespace gavel {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXd;
using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic>;

struct Centered {
  Matrix values;  // 0 where not known
  Mask known;
  Eigen::VectorXd means;  // by column
};

Centered Center(std::span<const double> values, size_t columns) {
  const auto n = static_cast<Index>(values.size() / columns);
  const auto m = static_cast<Index>(columns);
  Centered made{Matrix::Zero(n, m), Mask::Constant(n, m, false),
                Eigen::VectorXd::Zero(m)};
  for (Index j = 0; j < m; ++j) {
    Index count = 0;
    for (Index i = 0; i < n; ++i) {
      const double value = values[static_cast<size_t>(i * m + j)];
      if (!std::isfinite(value)) continue;
      made.known(i, j) = true;
      made.values(i, j) = value;
      made.means(j) += value;
      ++count;
    }
    if (count > 0) made.means(j) /= static_cast<double>(count);
    for (Index i = 0; i < n; ++i) {
      if (made.known(i, j)) made.values(i, j) -= made.means(j);
    }
  }
  return made;
}

constexpr double kDiagonalMin = 1e-30;

// The factors of the rows of `values`, given those of its columns: a ridge
// regression over the known cells of each row.
Matrix SolveRows(const Matrix& values, const Mask& known, const Matrix& others,
                 double regularization) {
  const Index rank = others.cols();
  Matrix factors = Matrix::Zero(values.rows(), rank);
  for (Index i = 0; i < values.rows(); ++i) {
    Matrix gram = Matrix::Zero(rank, rank);
    Eigen::VectorXd right = Eigen::VectorXd::Zero(rank);
    double count = 0;
    for (Index j = 0; j < values.cols(); ++j) {
      if (!known(i, j)) continue;
      gram += others.row(j).transpose() * others.row(j);
      right += values(i, j) * others.row(j).transpose();
      ++count;
    }
    if (count == 0) continue;
    // Above 0 even where all known cells are alike.
    gram.diagonal().array() += regularization * count + kDiagonalMin;
    factors.row(i) = gram.ldlt().solve(right).transpose();
  }
  return factors;
}

// The root mean square of the known cells.
double Spread(const Centered& centered) {
  const auto known = static_cast<double>(centered.known.count());
  return known > 0 ? centered.values.norm() / std::sqrt(known) : 0;
}

// The first factors of the columns: the main directions of the known cells.
Matrix FirstFactors(const Matrix& values, Index rank) {
  const Eigen::BDCSVD<Matrix> svd(values, Eigen::ComputeThinV);
  return svd.matrixV().leftCols(rank) *
         svd.singularValues().head(rank).cwiseSqrt().asDiagonal();
}

}  // namespace

std::vector<double> CompleteMatrix(std::span<const double> values,
                                   size_t columns,
                                   const CompletionOptions& options) {
  if (columns == 0 || values.size() < columns) return {};
  const Centered centered = Center(values, columns);
  const Index rank =
      std::min<Index>(std::max(options.rank, 1),
                      std::min(centered.values.rows(), centered.values.cols()));
  const Mask transposed = centered.known.transpose();
  const Matrix values_by_column = centered.values.transpose();
  Matrix of_columns = FirstFactors(centered.values, rank);
  Matrix of_rows;
  Matrix product = Matrix::Zero(centered.values.rows(), centered.values.cols());
  const double spread = Spread(centered);
  for (int i = 0; i < options.iterations_max; ++i) {
    // From strong to weak: what the few cells of a row don't tell stays small.
    const double regularization =
        spread * std::max(options.regularization, std::pow(0.5, i));
    of_rows =
        SolveRows(centered.values, centered.known, of_columns, regularization);
    of_columns =
        SolveRows(values_by_column, transposed, of_rows, regularization);
    const Matrix before = product;
    product = of_rows * of_columns.transpose();
    const double change = (product - before).cwiseAbs().maxCoeff();
    if (regularization <= options.regularization * spread &&
        change <= options.change_max * product.cwiseAbs().maxCoeff()) {
      break;
    }
  }
  std::vector<double> complete(values.begin(), values.end());
  complete.resize(static_cast<size_t>(product.size()));
  for (size_t cell = 0; cell < complete.size(); ++cell) {
    const auto i = static_cast<Index>(cell / columns);
    const auto j = static_cast<Index>(cell % columns);
    if (!centered.known(i, j))
      complete[cell] = product(i, j) + centered.means(j);
  }
  return complete;
}

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// "Cannot run there" is no speed.
bool IsSpeed(double steps_per_s) {
  return std::isfinite(steps_per_s) && steps_per_s > 0;
}

// Mean of what there is; 0 without any.
template <class Function>
double MeanOver(size_t count, const Function& value_of) {
  double sum = 0;
  double known = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = value_of(i);
    if (!std::isfinite(value)) continue;
    sum += value;
    ++known;
  }
  return known > 0 ? sum / known : 0;
}

double LogOf(double steps_per_s) {
  return IsSpeed(steps_per_s) ? std::log(steps_per_s) : kUnknown;
}

// By type, the mean over jobs of the logarithm of their speed on the type, less
// the job's own mean over types.
std::vector<double> TypeSpeeds(size_t types,
                               const std::vector<ReferenceJob>& jobs) {
  std::vector<double> own;
  for (const ReferenceJob& job : jobs) {
    own.push_back(
        MeanOver(types, [&](size_t j) { return LogOf(job.alone[j]); }));
  }
  std::vector<double> speeds;
  for (size_t j = 0; j < types; ++j) {
    speeds.push_back(MeanOver(jobs.size(), [&](size_t i) {
      return LogOf(jobs[i].alone[j]) - own[i];
    }));
  }
  return speeds;
}

// A row has the speeds on the types against each other, and then the parts of
// them that the job keeps beside each partner.
std::vector<double> MakeRow(const std::vector<double>& type_speeds,
                            const std::vector<double>& alone,
                            std::span<const double> kept) {
  const size_t types = type_speeds.size();
  const double own = MeanOver(
      types, [&](size_t j) { return LogOf(alone[j]) - type_speeds[j]; });
  std::vector<double> row;
  size_t speeds = 0;
  for (size_t j = 0; j < types; ++j) {
    row.push_back(LogOf(alone[j]) - type_speeds[j] - own);
    speeds += std::isfinite(row.back()) ? 1 : 0;
  }
  // One speed tells nothing of how they compare.
  if (speeds < 2) std::fill(row.begin(), row.end(), kUnknown);
  row.insert(row.end(), kept.begin(), kept.end());
  return row;
}

double SquareDistance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace

std::vector<size_t> ChooseReferences(
    const std::vector<ReferenceJob>& candidates, size_t count) {
  if (candidates.empty()) return {};
  const std::vector<double> speeds =
      TypeSpeeds(candidates.front().alone.size(), candidates);
  std::vector<double> rows;
  for (const ReferenceJob& job : candidates) {
    const std::vector<double> row = MakeRow(speeds, job.alone, job.kept);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const size_t columns = rows.size() / candidates.size();
  rows = CompleteMatrix(rows, columns);
  const auto row = [&](size_t i) {
    return std::span<const double>(rows).subspan(i * columns, columns);
  };
  std::vector<double> mean(columns, 0);
  for (size_t c = 0; c < columns; ++c) {
    mean[c] = MeanOver(candidates.size(), [&](size_t i) { return row(i)[c]; });
  }
  std::vector<double> distance;
  for (size_t i = 0; i < candidates.size(); ++i) {
    distance.push_back(SquareDistance(row(i), mean));
  }
  auto next = static_cast<size_t>(
      std::min_element(distance.begin(), distance.end()) - distance.begin());
  std::vector<size_t> chosen;
  std::fill(distance.begin(), distance.end(), kUnknown);
  while (chosen.size() < std::max<size_t>(count, 1)) {
    chosen.push_back(next);
    for (size_t i = 0; i < candidates.size(); ++i) {
      distance[i] = std::fmin(distance[i], SquareDistance(row(i), row(next)));
    }
    next = static_cast<size_t>(
        std::max_element(distance.begin(), distance.end()) - distance.begin());
    if (!(distance[next] > 0)) break;
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

ThroughputEstimator::ThroughputEstimator(size_t types,
                                         std::vector<ReferenceJob> references)
    : types_(types),
      references_(std::move(references)),
      type_speeds_(TypeSpeeds(types, references_)) {
  for (const ReferenceJob& job : references_) {
    const std::vector<double> row = MakeRow(type_speeds_, job.alone, job.kept);
    rows_.insert(rows_.end(), row.begin(), row.end());
  }
}

double ThroughputEstimator::SpeedAgainst(
    const ReferenceJob& reference, const std::vector<double>& alone) const {
  size_t known = 0;
  const double mean = MeanOver(types_, [&](size_t j) {
    const double ratio = LogOf(alone[j]) - LogOf(reference.alone[j]);
    known += std::isfinite(ratio) ? 1 : 0;
    return ratio;
  });
  return known > 0 ? std::exp(mean) : 0;
}

std::optional<ThroughputEstimator::Match> ThroughputEstimator::Find(
    std::span<const Cell> cells) const {
  const size_t n = references_.size();
  std::vector<double> alone(types_, kUnknown);
  std::vector<double> kept(types_ * n, kUnknown);
  for (const Cell& cell : cells) {
    if (cell.type >= types_ || !std::isfinite(cell.value) || cell.value < 0) {
      continue;
    }
    if (cell.partner == kAlone) {
      alone[cell.type] = cell.value;
    } else if (cell.partner < n) {
      kept[cell.type * n + cell.partner] = cell.value;
    }
  }
  const std::vector<double> asked = MakeRow(type_speeds_, alone, kept);
  if (n == 0 || std::none_of(asked.begin(), asked.end(),
                             [](double v) { return std::isfinite(v); })) {
    return std::nullopt;
  }
  std::vector<double> all = rows_;
  all.insert(all.end(), asked.begin(), asked.end());
  all = CompleteMatrix(all, asked.size());
  const double* const own = all.data() + n * asked.size();
  Match best;
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    double weights = 0;
    for (size_t c = 0; c < asked.size(); ++c) {
      const double weight = std::isfinite(asked[c]) ? 1 : kCompletedWeight;
      const double apart = own[c] - all[i * asked.size() + c];
      sum += weight * apart * apart;
      weights += weight;
    }
    const double distance = std::sqrt(sum / weights);
    if (i == 0 || distance < best.distance) {
      best = {i, distance, SpeedAgainst(references_[i], alone)};
    }
  }
  return best;
}

ReferenceRows::ReferenceRows(std::shared_ptr<const ThroughputTable> table,
                             int models)
    : table_(std::move(table)) {
  std::map<int, std::vector<ThroughputTable::Row>> all;
  for (ThroughputTable::Row row = 0; row < table_->rows(); ++row) {
    all[table_->NameOf(row).second].push_back(row);
  }
  for (const auto& [scale_factor, rows] : all) {
    std::vector<ThroughputTable::Row> chosen;
    for (const size_t i :
         ChooseReferences(JobsOf(rows), static_cast<size_t>(models))) {
      chosen.push_back(rows[i]);
    }
    ThroughputEstimator estimator(table_->types().size(), JobsOf(chosen));
    scales_.emplace(scale_factor,
                    Scale{std::move(chosen), std::move(estimator)});
  }
}

std::vector<ReferenceJob> ReferenceRows::JobsOf(
    const std::vector<ThroughputTable::Row>& rows) const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<ReferenceJob> jobs;
  for (const ThroughputTable::Row row : rows) {
    ReferenceJob& job = jobs.emplace_back();
    for (size_t type = 0; type < table_->types().size(); ++type) {
      const double alone = table_->Alone(row, type).value_or(kUnknown);
      job.alone.push_back(alone);
      for (const ThroughputTable::Row other : rows) {
        const auto together = table_->Together(row, other, type);
        job.kept.push_back(alone > 0 && together.has_value()
                               ? together->first / alone
                               : kUnknown);
      }
    }
  }
  return jobs;
}

std::optional<ReferenceRows::Match> ReferenceRows::Find(
    int scale_factor, const std::vector<ProfiledCell>& cells) const {
  const auto found = scales_.find(scale_factor);
  if (found == scales_.end()) return std::nullopt;
  const Scale& scale = found->second;
  std::vector<ThroughputEstimator::Cell> known;
  for (const ProfiledCell& cell : cells) {
    const std::optional<size_t> type = table_->FindType(cell.type);
    if (!type.has_value()) continue;
    size_t partner = ThroughputEstimator::kAlone;
    if (!cell.beside.empty()) {
      const auto row = table_->FindRow(cell.beside, scale_factor);
      const auto place =
          std::find(scale.rows.begin(), scale.rows.end(), row.value_or(-1));
      if (place == scale.rows.end()) continue;
      partner = static_cast<size_t>(place - scale.rows.begin());
    }
    known.push_back({*type, partner, cell.value});
  }
  const auto match = scale.estimator.Find(known);
  if (!match.has_value()) return std::nullopt;
  return Match{scale.rows[match->reference], match->speed};
}

const std::vector<ThroughputTable::Row>& ReferenceRows::RowsOf(
    int scale_factor) const {
  static const std::vector<ThroughputTable::Row> kNone;
  const auto found = scales_.find(scale_factor);
  return found == scales_.end() ? kNone : found->second.rows;
}

bool ReferenceRows::CanShare(int scale_factor) const {
  const auto found = scales_.find(scale_factor);
  if (found == scales_.end()) return false;
  const auto& jobs = found->second.estimator.references();
  return std::any_of(jobs.begin(), jobs.end(), [](const ReferenceJob& job) {
    return std::any_of(job.kept.begin(), job.kept.end(),
                       [](double kept) { return kept > 0; });
  });
}

}  // namespace gavel
