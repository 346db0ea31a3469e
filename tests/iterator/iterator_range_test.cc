// Ranges of batches of all kinds, and where they go on after a restart.
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/samplers/random.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>
#include <torch/utils.h>

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
  DataLoader all(Squares{});
  const std::vector<double> whole = [&] {
    TemporaryFolder elsewhere;
    std::swap(folder_, elsewhere);
    return Read(0, 3, all, Sum);
  }();
  ASSERT_EQ(whole.size(), 30u);
  for (const int64_t cut : {4, 10, 17, 29}) {
    TemporaryFolder fresh;
    std::swap(folder_, fresh);
    DataLoader first(Squares{});
    DataLoader second(Squares{});
    std::vector<double> read = Read(cut, 3, first, Sum);
    const std::vector<double> rest = Read(0, 3, second, Sum);
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
  EXPECT_EQ(log_.Count("starts again"), 0) << log_.Text();
}

TEST_F(IteratorRange, AnythingElseBeginsTheEpochAgainAndSaysSoOnce) {
  std::vector<double> range = {1, 2, 3, 4};
  const auto value = [](const double& number) { return number; };
  EXPECT_THAT(Read(6, 3, range, value), ElementsAre(1, 2, 3, 4, 1, 2));
  EXPECT_THAT(Read(0, 3, range, value), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4));
  EXPECT_EQ(log_.Count("the epoch starts again"), 1) << log_.Text();
}

TEST_F(IteratorRange, AnythingElseIsForwardedWhenAskedTo) {
  std::vector<double> range = {1, 2, 3, 4};
  const auto value = [](const double& number) { return number; };
  EXPECT_THAT(Read(6, 3, range, value, Resume::kForward),
              ElementsAre(1, 2, 3, 4, 1, 2));
  EXPECT_THAT(Read(0, 3, range, value, Resume::kForward),
              ElementsAre(3, 4, 1, 2, 3, 4));
}

TEST_F(IteratorRange, APositionOfOtherDataIsNotUsed) {
  DataLoaderOptions options;
  DataLoader loader(Squares{}, options);
  Read(4, 1, loader, Sum);
  options.seed = 8;
  DataLoader other(Squares{}, options);
  EXPECT_EQ(Read(0, 1, other, Sum).size(), 10u);
  EXPECT_EQ(log_.Count("does not fit this data loader"), 1);
}

}  // namespace
}  // namespace gavel::testing
