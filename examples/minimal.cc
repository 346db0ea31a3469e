// The whole integration on a page: a small network learns to tell points
// inside a circle from points outside it. Run it alone, or submit it to a
// coordinator: the same binary then pauses, moves and resumes between two
// steps.
//
//   ./minimal                                        alone
//   GAVEL_CHECKPOINT_DIRECTORY=here ./minimal        alone, resumes when killed
#include <torch/torch.h>

#include <cstdio>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"

// Any class with size() and get(index) is a dataset.
struct Circle {
  size_t size() const { return 4096; }
  torch::data::Example<> get(size_t index) const {
    const double x = static_cast<double>(index % 64) / 32 - 1;
    const double y = static_cast<double>(index / 64) / 32 - 1;
    const double inside = x * x + y * y < 0.5 ? 1 : 0;
    return {torch::tensor({x, y}, torch::kFloat),
            torch::tensor({inside}, torch::kFloat)};
  }
};

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 1));
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  gavel::DataLoaderOptions options;
  options.batch_size = 64;
  gavel::DataLoader loader(Circle(), options);
  int epoch = 0;

  // 1. Say what makes up the state of the job.
  auto session = gavel::Session::FromEnvironment();
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);

  // 2. Wrap the loop. It goes on where the job was, on whatever device it got.
  while (epoch < 20 && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::binary_cross_entropy_with_logits(
          model->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      session->Report("loss", loss);
    }
    if (!session->stopped()) ++epoch;
  }

  // 3. Whatever comes after the training.
  if (session->finished()) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor center = torch::zeros({1, 2}, session->device());
    std::printf("{\"inside_at_center\": %.3f}\n",
                torch::sigmoid(model->forward(center)).item<double>());
  }
  return session->Finish();
}
