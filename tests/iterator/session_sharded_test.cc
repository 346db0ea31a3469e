// State of which each worker has its own part: the state that one worker saved
// is cut for the ranks of a gang, and state that does not fit is refused with
// the reason.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr int64_t kInputs = 4;
constexpr int64_t kOutputs = 7;

class SessionSharded : public SessionTest {
 protected:
  // Such a session can't train, because the other ranks are missing.
  std::unique_ptr<Session> OpenRank(int rank, int world_size) {
    SessionOptions options = Alone();
    options.rank = rank;
    options.world_size = world_size;
    return Session::Create(std::move(options));
  }
  static int64_t SizeOf(int rank, int world_size) {
    const int64_t step = (kOutputs + world_size - 1) / world_size;
    return std::clamp(kOutputs - rank * step, int64_t{0}, step);
  }
  static at::Tensor PartOf(const at::Tensor& whole, int rank, int world_size) {
    return whole.chunk(world_size)[static_cast<size_t>(rank)];
  }
};

TEST_F(SessionSharded, ModulesOptimizersAndTensorsAreCutForAnyGang) {
  torch::nn::Linear whole(kInputs, kOutputs);
  torch::optim::Adam whole_optimizer(whole->parameters(), 0.1);
  at::Tensor row = torch::arange(kOutputs);
  {
    auto session = OpenRank(0, 1);
    session->Track("layer", whole, Sharded{0});
    session->Track("row", row, Sharded{0});
    session->Track("optimizer", whole_optimizer);
    std::vector<int> range = {1, 2};
    for (auto& i : Iterator(*session, range)) {
      static_cast<void>(i);
      whole_optimizer.zero_grad();
      whole->forward(torch::ones({1, kInputs}, session->device()))
          .sum()
          .backward();
      whole_optimizer.step();
    }
    ASSERT_EQ(session->Finish(), 0) << log_.Text();
  }
  const at::Tensor saved_state =
      static_cast<torch::optim::AdamParamState&>(
          *whole_optimizer.state().at(whole->weight.unsafeGetTensorImpl()))
          .exp_avg()
          .cpu();
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    const int64_t size = SizeOf(rank, 3);
    torch::nn::Linear part(kInputs, size);
    torch::optim::Adam optimizer(part->parameters(), 0.1);
    at::Tensor part_of_row = torch::zeros({size}, torch::kLong);
    auto session = OpenRank(rank, 3);
    EXPECT_TRUE(session->Track("layer", part, Sharded{0, kOutputs}).ok());
    EXPECT_TRUE(session->Track("row", part_of_row, Sharded{0, kOutputs}).ok());
    EXPECT_TRUE(session->Track("optimizer", optimizer).ok());
    ASSERT_TRUE(session->status().ok()) << session->status().message();
    EXPECT_TRUE(part->weight.equal(PartOf(whole->weight.cpu(), rank, 3)));
    EXPECT_TRUE(part->bias.equal(PartOf(whole->bias.cpu(), rank, 3)));
    EXPECT_TRUE(part_of_row.equal(PartOf(row.cpu(), rank, 3)));
    EXPECT_TRUE(static_cast<torch::optim::AdamParamState&>(
                    *optimizer.state().at(part->weight.unsafeGetTensorImpl()))
                    .exp_avg()
                    .equal(PartOf(saved_state, rank, 3)));
  }
}

TEST_F(SessionSharded, ATensorWithoutTheDimensionIsTheSameOnAllWorkers) {
  auto session = OpenRank(1, 2);
  torch::nn::Linear by_inputs(kInputs / 2, 3);
  EXPECT_TRUE(session->Track("layer", by_inputs, Sharded{1, kInputs}).ok());
  EXPECT_TRUE(session->status().ok()) << session->status().message();
}

TEST_F(SessionSharded, APieceOfAModelCanBeCut) {
  torch::nn::Linear first(2, kOutputs);
  torch::nn::Linear second(kOutputs, 2);
  {
    torch::nn::Sequential model(first, second);
    torch::optim::Adam optimizer(model->parameters(), 0.1);
    auto session = OpenRank(0, 1);
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    std::vector<int> range = {1};
    for (auto& i : Iterator(*session, range)) static_cast<void>(i);
    ASSERT_EQ(session->Finish(), 0) << log_.Text();
  }
  torch::nn::Linear part_of_first(2, SizeOf(1, 2));
  torch::nn::Linear part_of_second(SizeOf(1, 2), 2);
  torch::nn::Sequential model(part_of_first, part_of_second);
  auto session = OpenRank(1, 2);
  session->Shard(part_of_first, Sharded{0, kOutputs});
  session->Shard(part_of_second, Sharded{1, kOutputs});
  session->Track("model", model);
  ASSERT_TRUE(session->status().ok()) << session->status().message();
  EXPECT_TRUE(part_of_first->weight.equal(PartOf(first->weight.cpu(), 1, 2)));
  EXPECT_TRUE(
      part_of_second->weight.equal(second->weight.cpu().chunk(2, 1)[1]));
  EXPECT_TRUE(part_of_second->bias.equal(second->bias.cpu()));
}

TEST_F(SessionSharded, WhatIsNotThisWorkersPartIsRefused) {
  const auto refused = [&](const Sharded& sharded, const std::string& why) {
    auto session = OpenRank(2, 3);
    at::Tensor tensor = torch::zeros({3, 2});
    const Status status = session->Track("w", tensor, sharded);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused({0, 8},
          "tensor 'w' has 3 elements in dimension 0 on rank 2 of 3, whose part "
          "of 8 has 2");
  refused({2, 0}, "'w' has no tensor with a dimension 2");
  refused({-1, 0}, "'w' has no tensor with a dimension -1");
}

TEST_F(SessionSharded, AnOptimizerIsTrackedBehindWhatIsSharded) {
  auto session = OpenRank(0, 2);
  torch::nn::Linear layer(2, 2);
  torch::optim::Adam optimizer(layer->parameters(), 0.1);
  EXPECT_TRUE(session->Track("optimizer", optimizer).ok());
  EXPECT_THAT(session->Track("layer", layer, Sharded{0}).message(),
              HasSubstr("tracked already, also by an optimizer"));
}

TEST_F(SessionSharded, AnotherSizeOfTheWholeIsSaid) {
  at::Tensor whole = torch::arange(kOutputs);
  {
    auto session = OpenRank(0, 1);
    session->Track("w", whole, Sharded{0});
    std::vector<int> range = {1};
    for (auto& i : Iterator(*session, range)) static_cast<void>(i);
    ASSERT_EQ(session->Finish(), 0) << log_.Text();
  }
  at::Tensor part = torch::zeros({3}, torch::kLong);
  auto session = OpenRank(1, 2);
  const Status status = session->Track("w", part, Sharded{0});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("tensor 'w' has 7 elements in dimension 0 in the "
                        "checkpoint (1 worker), and the parts of the 2 workers "
                        "make 6 here"));
}

}  // namespace
}  // namespace gavel::testing
