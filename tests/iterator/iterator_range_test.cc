// Ranges of batches of all kinds, and where they go on after a restart.
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class IteratorRange : public SessionTest {
 protected:
  // The values of all batches, over `epochs` loops or up to the budget.
  template <class Range, class ValueOf>
  std::vector<double> Read(int64_t steps_total, int64_t epochs, Range& range,
                           ValueOf value_of, Resume resume = Resume::kAuto) {
    std::vector<double> values;
    int64_t epoch = 0;
    auto session = Open(steps_total);
    session->Track("epoch", epoch);
    while (epoch < epochs && !session->stopped()) {
      for (auto& batch : Iterator(*session, range, resume)) {
        values.push_back(value_of(batch));
      }
      if (!session->stopped()) ++epoch;
    }
    EXPECT_EQ(session->Finish(), 0) << session->status().message();
    return values;
  }
};

TEST_F(IteratorRange, HandsOutTheElementsOfAVector) {
  auto session = Open();
  std::vector<std::string> words = {"a", "b"};
  std::string read;
  for (auto& word : Iterator(*session, words)) {
    read += word;
    word = "changed";  // no tensors inside: the element itself
  }
  EXPECT_EQ(read, "ab");
  EXPECT_THAT(words, ElementsAre("changed", "changed"));
  EXPECT_EQ(session->steps_done(), 2);
}

TEST_F(IteratorRange, TakesTemporariesConstantsAndMoveOnlyElements) {
  auto session = Open();
  int count = 0;
  for (auto& i : Iterator(*session, std::vector<int>{1, 2})) count += i;
  const std::map<int, at::Tensor> constant = {{1, torch::ones(2)}};
  for (auto& [key, tensor] : Iterator(*session, constant)) {
    count += key + tensor.sum().item<int>();
  }
  std::vector<std::unique_ptr<int>> owned;
  owned.push_back(std::make_unique<int>(4));
  for (auto& pointer : Iterator(*session, owned)) count += *pointer;
  EXPECT_EQ(count, 10);
}

TEST_F(IteratorRange, AProgramThatReturnsFromItsLoopIsToldThatItIsNotDone) {
  std::vector<int> range = {1, 2, 3};
  const auto train = [&] {
    auto session = Open();
    for (auto& i : Iterator(*session, range)) {
      if (i == 3) return;
    }
  };
  train();
  EXPECT_TRUE(log_.Contain("the training loop was left after step 2 by return"))
      << log_.Text();
  EXPECT_TRUE(log_.Contain("the job is not done"));
  EXPECT_TRUE(log_.Contain("return session->Finish()"));
}

TEST_F(IteratorRange, AnEmptyRangeIsNoStep) {
  auto session = Open();
  std::vector<int> none;
  for (auto& i : Iterator(*session, none)) static_cast<void>(i);
  EXPECT_EQ(session->steps_done(), 0);
  EXPECT_TRUE(session->finished());
  EXPECT_EQ(session->Finish(), 0);
}

TEST_F(IteratorRange, ALoopInsideALoopIsAnError) {
  auto session = Open();
  std::vector<int> range = {1, 2};
  for (auto& i : Iterator(*session, range)) {
    for (auto& j : Iterator(*session, range)) static_cast<void>(i + j);
  }
  EXPECT_THAT(session->status().message(), HasSubstr("inside another"));
  EXPECT_EQ(session->Finish(), 1);
}

TEST_F(IteratorRange, ABreakEndsTheLoopAndNothingElse) {
  auto session = Open();
  std::vector<int> range = {1, 2, 3};
  for (auto& i : Iterator(*session, range)) {
    if (i == 2) break;
  }
  EXPECT_TRUE(session->finished());
  for (auto& i : Iterator(*session, range)) static_cast<void>(i);
  EXPECT_EQ(session->steps_done(), 4);
  EXPECT_EQ(session->Finish(), 0);
}

struct Throwing {
  at::Tensor get(size_t index) const {
    if (index == 2) throw std::runtime_error("sample 2 can't be read");
    return torch::ones(1);
  }
  size_t size() const { return 5; }
};

TEST_F(IteratorRange, ARangeThatThrowsEndsTheLoopWithAStatus) {
  auto session = Open();
  DataLoader loader{Throwing()};
  for (auto& batch : Iterator(*session, loader)) static_cast<void>(batch);
  EXPECT_EQ(session->status().code(), StatusCode::kInternal);
  EXPECT_THAT(session->status().message(), HasSubstr("sample 2"));
  EXPECT_TRUE(session->stopped());
  EXPECT_EQ(session->Finish(), 1);
}

struct Squares {
  at::Tensor get(size_t index) const {
    return torch::tensor(static_cast<double>(index * index));
  }
  std::optional<size_t> size() const { return 10; }
};

double Sum(const at::Tensor& batch) { return batch.sum().item<double>(); }

TEST_F(IteratorRange, OurLoaderGoesOnExactly) {
  // Each process has one loader.
  const auto read_some = [this](int64_t steps_total) {
    DataLoader loader(Squares{});
    return Read(steps_total, 3, loader, Sum);
  };
  const std::vector<double> whole = [&] {
    TemporaryFolder elsewhere;
    std::swap(folder_, elsewhere);
    return read_some(0);
  }();
  ASSERT_EQ(whole.size(), 30u);
  for (const int64_t cut : {4, 10, 17, 29}) {
    TemporaryFolder fresh;
    std::swap(folder_, fresh);
    std::vector<double> read = read_some(cut);
    const std::vector<double> rest = read_some(0);
    read.insert(read.end(), rest.begin(), rest.end());
    EXPECT_EQ(read, whole) << "cut after " << cut;
  }
}

auto TorchLoader() {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      torch::data::datasets::TensorDataset(torch::arange(12).to(torch::kDouble))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      torch::data::DataLoaderOptions(2));
}

// Which samples, and a number that the step itself draws.
double SumOfExample(const torch::data::TensorExample& batch) {
  return batch.data.sum().item<double>() * 100 + batch.data[0].item<double>() +
         torch::rand({}).item<double>();
}

TEST_F(IteratorRange, LibTorchsLoaderIsForwarded) {
  torch::manual_seed(5);
  const std::vector<double> whole = [&] {
    TemporaryFolder elsewhere;
    std::swap(folder_, elsewhere);
    auto all = TorchLoader();
    return Read(0, 3, *all, SumOfExample);
  }();
  ASSERT_EQ(whole.size(), 18u);
  for (const int64_t cut : {1, 4, 6, 8, 17}) {
    TemporaryFolder fresh;
    std::swap(folder_, fresh);
    torch::manual_seed(5);
    auto first = TorchLoader();
    std::vector<double> read = Read(cut, 3, *first, SumOfExample);
    torch::manual_seed(99);  // another process
    auto second = TorchLoader();
    const std::vector<double> rest = Read(0, 3, *second, SumOfExample);
    read.insert(read.end(), rest.begin(), rest.end());
    EXPECT_EQ(read, whole) << "cut after " << cut;
  }
}

// A sample is its index and a number that get() draws.
struct NoisyDataset : torch::data::datasets::Dataset<NoisyDataset, double> {
  double get(size_t index) override {
    return static_cast<double>(index) + torch::rand({}).item<double>();
  }
  std::optional<size_t> size() const override { return 12; }
};

auto NoisyLoader() {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      NoisyDataset(), torch::data::DataLoaderOptions(2));
}

TEST_F(IteratorRange, RandomNumbersOfLibTorchsLoaderGoOnExactly) {
  const auto value = [](const std::vector<double>& batch) {
    return batch[0] + 100 * batch[1] + 1e4 * torch::rand({}).item<double>();
  };
  torch::manual_seed(5);
  const std::vector<double> whole = [&] {
    TemporaryFolder elsewhere;
    std::swap(folder_, elsewhere);
    auto all = NoisyLoader();
    return Read(0, 2, *all, value);
  }();
  ASSERT_EQ(whole.size(), 12u);
  for (const int64_t cut : {1, 2, 5, 6, 7, 11}) {
    TemporaryFolder fresh;
    std::swap(folder_, fresh);
    torch::manual_seed(5);
    auto first = NoisyLoader();
    std::vector<double> read = Read(cut, 2, *first, value);
    torch::manual_seed(99);
    auto second = NoisyLoader();
    const std::vector<double> rest = Read(0, 2, *second, value);
    read.insert(read.end(), rest.begin(), rest.end());
    EXPECT_EQ(read, whole) << "cut after " << cut;
  }
}

// Draws its order from an engine that nobody can save.
class OwnSampler : public torch::data::samplers::Sampler<> {
 public:
  void reset(std::optional<size_t> = std::nullopt) override {
    order_ = {0, 1, 2, 3, 4, 5};
    std::shuffle(order_.begin(), order_.end(), engine_);
  }
  std::optional<std::vector<size_t>> next(size_t count) override {
    if (order_.empty()) return std::nullopt;
    count = std::min(count, order_.size());
    std::vector<size_t> batch(order_.end() - static_cast<int64_t>(count),
                              order_.end());
    order_.resize(order_.size() - count);
    return batch;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  std::mt19937 engine_{7};
  std::vector<size_t> order_;
};

struct Indices : torch::data::datasets::Dataset<Indices, double> {
  double get(size_t index) override { return static_cast<double>(index); }
  std::optional<size_t> size() const override { return 6; }
};

double First(const std::vector<double>& batch) { return batch[0]; }

TEST_F(IteratorRange, ASamplerOfOnesOwnIsRefusedBeforeTheFirstStep) {
  auto session = Open();
  auto loader = torch::data::make_data_loader(Indices(), OwnSampler(), 1);
  for (auto& batch : Iterator(*session, *loader)) static_cast<void>(batch);
  EXPECT_EQ(session->steps_done(), 0);
  EXPECT_EQ(session->status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(session->status().message(), HasSubstr("gavel::DataLoader"));
}

TEST_F(IteratorRange, ARangeThatBeginsOtherwiseAfterARestartIsRefused) {
  auto first = torch::data::make_data_loader(Indices(), OwnSampler(), 3);
  EXPECT_EQ(Read(3, 2, *first, First, Resume::kForward).size(), 3u);
  auto second = torch::data::make_data_loader(Indices(), OwnSampler(), 3);
  auto session = Open();
  for (auto& batch : Iterator(*session, *second, Resume::kForward)) {
    static_cast<void>(batch);
  }
  EXPECT_EQ(session->steps_done(), 3);
  EXPECT_EQ(session->status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(session->status().message(), HasSubstr("kRestart"));
}

TEST_F(IteratorRange, BatchesInAnyOrderAreRefused) {
  auto session = Open();
  auto loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          Indices(),
          torch::data::DataLoaderOptions(2).workers(2).enforce_ordering(false));
  for (auto& batch : Iterator(*session, *loader)) static_cast<void>(batch);
  EXPECT_EQ(session->steps_done(), 0);
  EXPECT_THAT(session->status().message(), HasSubstr("enforce_ordering"));
}

double Itself(const double& number) { return number; }

TEST_F(IteratorRange, AVectorContinuesBehindTheLastBatch) {
  std::vector<double> range = {1, 2, 3, 4};
  EXPECT_THAT(Read(6, 3, range, Itself), ElementsAre(1, 2, 3, 4, 1, 2));
  EXPECT_THAT(Read(0, 3, range, Itself), ElementsAre(3, 4, 1, 2, 3, 4));
}

TEST_F(IteratorRange, AVectorInAnotherOrderIsRefusedAfterARestart) {
  std::vector<double> range = {1, 2, 3, 4};
  Read(2, 1, range, Itself);
  std::reverse(range.begin(), range.end());
  auto session = Open();
  for (auto& number : Iterator(*session, range)) static_cast<void>(number);
  EXPECT_EQ(session->steps_done(), 2);
  EXPECT_THAT(session->status().message(), HasSubstr("the same batch"));
}

TEST_F(IteratorRange, AVectorThatBecameTooShortIsRefusedAfterARestart) {
  std::vector<double> range = {1, 2, 3, 4};
  Read(3, 1, range, Itself);
  range.resize(2);
  auto session = Open();
  for (auto& number : Iterator(*session, range)) static_cast<void>(number);
  EXPECT_EQ(session->steps_done(), 3);
  EXPECT_THAT(session->status().message(), HasSubstr("before batch 3"));
}

TEST_F(IteratorRange, ARestartOfTheEpochBeginsWithItsFirstBatch) {
  std::vector<double> range = {1, 2, 3, 4};
  EXPECT_EQ(Read(6, 3, range, Itself, Resume::kRestart).size(), 6u);
  EXPECT_THAT(Read(0, 3, range, Itself, Resume::kRestart),
              ElementsAre(1, 2, 3, 4, 1, 2, 3, 4));
  EXPECT_EQ(log_.Count("2 batches are trained on once more"), 1);
}

TEST_F(IteratorRange, APositionOfOtherDataIsRefused) {
  DataLoaderOptions options;
  DataLoader loader(Squares{}, options);
  Read(14, 2, loader, Sum);
  options.seed = 8;
  DataLoader other(Squares{}, options);
  auto session = Open();
  for (auto& batch : Iterator(*session, other)) static_cast<void>(batch);
  EXPECT_EQ(session->steps_done(), 14);
  EXPECT_EQ(session->status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(session->status().message(), HasSubstr("seed 8"));
}

TEST_F(IteratorRange, AnEpochBeginsAgainWithOtherDataWhenToldSo) {
  DataLoaderOptions options;
  DataLoader loader(Squares{}, options);
  Read(14, 2, loader, Sum);
  options.seed = 8;
  DataLoader other(Squares{}, options);
  EXPECT_EQ(Read(0, 2, other, Sum, Resume::kRestart).size(), 10u);
  EXPECT_EQ(other.epoch(), 2);
}

// Two loaders in turn, and a third that is read beside the first, by hand.
std::vector<double> ReadInTurn(Session& session, int64_t epochs) {
  DataLoader first(Squares{});
  DataLoader second(Squares{});  // of the same data, seed and order
  DataLoader beside(Squares{}, {3});
  auto cursor = beside.begin();
  std::vector<double> values;
  int64_t part = 0;
  session.Track("part", part);
  while (part < 2 * epochs && !session.stopped()) {
    for (auto& batch : Iterator(session, part % 2 == 0 ? first : second)) {
      if (!(cursor != beside.end())) cursor = beside.begin();
      values.push_back(Sum(batch) * 1000 + Sum(*cursor));
      ++cursor;
    }
    if (!session.stopped()) ++part;
  }
  EXPECT_EQ(session.Finish(), 0) << session.status().message();
  return values;
}

TEST_F(IteratorRange, EveryLoaderGoesOnWithItsOwnEpochAndPosition) {
  const std::vector<double> whole = [&] {
    TemporaryFolder elsewhere;
    std::swap(folder_, elsewhere);
    return ReadInTurn(*Open(), 3);
  }();
  ASSERT_EQ(whole.size(), 60u);
  for (const int64_t cut : {4, 10, 13, 20, 36, 41, 59}) {
    TemporaryFolder fresh;
    std::swap(folder_, fresh);
    std::vector<double> read = ReadInTurn(*Open(cut), 3);
    const std::vector<double> rest = ReadInTurn(*Open(), 3);
    read.insert(read.end(), rest.begin(), rest.end());
    EXPECT_EQ(read, whole) << "cut after " << cut;
  }
}

// Has a position, and no number.
struct OwnRange {
  std::vector<double> numbers = {1, 2, 3};
  auto begin() { return numbers.begin(); }
  auto end() { return numbers.end(); }
  std::string SavePosition() const { return "0"; }
  bool LoadPosition(const std::string&) { return true; }
};

TEST_F(IteratorRange, ASecondRangeWithAPositionOfItsOwnIsRefused) {
  auto session = Open();
  OwnRange first;
  OwnRange second;
  for (auto& number : Iterator(*session, first)) static_cast<void>(number);
  for (auto& number : Iterator(*session, first)) static_cast<void>(number);
  EXPECT_EQ(session->status().code(), StatusCode::kOk);
  for (auto& number : Iterator(*session, second)) static_cast<void>(number);
  EXPECT_EQ(session->steps_done(), 6);
  EXPECT_THAT(session->status().message(), HasSubstr("a second range"));
}

TEST_F(IteratorRange, ALoaderWithoutOneStepAnEpochIsRefused) {
  auto session = Open(10);
  DataLoaderOptions options;
  options.batch_size = 64;
  options.drop_last = true;
  DataLoader loader(Squares{}, options);
  while (!session->stopped()) {
    for (auto& batch : Iterator(*session, loader)) static_cast<void>(batch);
  }
  EXPECT_THAT(session->status().message(), HasSubstr("drop_last"));
  EXPECT_EQ(session->Finish(), 1);
}

TEST_F(IteratorRange, LoopsThatStayEmptyEndWithAnError) {
  auto session = Open(10);
  std::vector<double> none;
  while (!session->stopped()) {
    for (auto& number : Iterator(*session, none)) static_cast<void>(number);
  }
  EXPECT_THAT(session->status().message(), HasSubstr("empty"));
}

TEST_F(IteratorRange, TheLastCheckpointHasWhatIsWrittenBehindTheLastLoop) {
  const auto train = [this](double best) {
    SessionOptions options = Alone();
    options.checkpoint_interval_steps = 5;  // the last step, too
    auto session = Session::Create(options);
    std::vector<double> range = {1, 2, 3, 4, 5};
    int64_t epoch = 0;
    double last = 0;
    session->Track("epoch", epoch);
    session->Track("last", last);
    while (epoch < 2 && !session->stopped()) {
      for (auto& number : Iterator(*session, range)) static_cast<void>(number);
      ++epoch;
      last = best;
    }
    EXPECT_EQ(session->Finish(), 0);
    return std::pair(epoch, last);
  };
  EXPECT_EQ(train(0.5), std::pair(int64_t{2}, 0.5));
  EXPECT_EQ(train(0.25), std::pair(int64_t{2}, 0.5));
}

TEST_F(IteratorRange, ADistributionGoesOnWithTheHalfPairItKeeps) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(1, 2);
  const auto draw = [&](int64_t steps) {
    auto session = Open(steps);
    session->Track("engine", engine);
    session->Track("normal", normal);
    std::vector<float> drawn;
    std::vector<double> range(7);
    for (auto& number : Iterator(*session, range)) {
      static_cast<void>(number);
      drawn.push_back(normal(engine));
    }
    EXPECT_EQ(session->Finish(), 0);
    return drawn;
  };
  std::vector<float> drawn = draw(3);  // an odd number
  const float next = normal(engine);
  engine.seed(4);
  normal = std::normal_distribution<float>();
  EXPECT_EQ(draw(0).at(0), next);
}

}  // namespace
}  // namespace gavel::testing
