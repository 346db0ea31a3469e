// All of gavel/training.h on a page: pretrained weights, a schedule with
// warm-up, gradient scaling and clipping, steps of four batches, an average of
// the weights, evaluations, and the best checkpoint at the end. Run it alone,
// or submit it to a coordinator.
//
//   ./finetune RESULT.safetensors [PRETRAINED.safetensors]
//   GAVEL_CHECKPOINT_DIRECTORY=here ./finetune RESULT.safetensors
#include <torch/torch.h>

#include <cstdio>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "gavel/training.h"

namespace {

constexpr int64_t kEpochs = 6;
constexpr int64_t kStepsPerEpoch = 32;  // of 4 batches of 32 samples

// Points, and whether each is inside a circle. Odd ones are for training.
struct Circle {
  size_t first = 1;
  size_t size() const { return 4096; }
  torch::data::Example<> get(size_t index) const {
    const size_t point = 2 * index + first;
    const double x = static_cast<double>(point % 128) / 64 - 1;
    const double y = static_cast<double>(point / 128) / 32 - 1;
    return {torch::tensor({x, y}, torch::kFloat),
            torch::tensor({x * x + y * y < 0.5 ? 1 : 0}, torch::kFloat)};
  }
};

torch::nn::Sequential MakeModel() {
  return torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                               torch::nn::Dropout(0.1),
                               torch::nn::Linear(32, 1));
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  torch::nn::Sequential model = MakeModel();
  torch::nn::Sequential averaged = MakeModel();
  if (argc > 2) {
    const gavel::Status loaded = gavel::LoadSafetensors(*model, argv[2]);
    if (!loaded.ok()) return std::puts(loaded.message().c_str()), 1;
  }
  torch::optim::AdamW optimizer(model->parameters(), 0.02);
  gavel::Schedule schedule(
      optimizer, gavel::Curve::Cosine(kEpochs * kStepsPerEpoch, 10, 0.1));
  gavel::GradScaler scaler;
  gavel::Ema ema(model, averaged, 0.9);
  gavel::DataLoaderOptions data;
  data.batch_size = 32;
  gavel::DataLoader loader(Circle(), data);
  data.shuffle = false;
  gavel::DataLoader held_out(Circle{0}, data);
  int64_t epoch = 0;

  gavel::SessionOptions options;
  options.checkpoints_kept_best = "max:accuracy";
  options.steps_total = kEpochs * kStepsPerEpoch;  // for the progress bar
  const gavel::Status read = gavel::ReadEnvironment(&options);
  if (!read.ok()) return std::puts(read.message().c_str()), 1;
  auto session = gavel::Session::Create(options);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("schedule", schedule);
  session->Track("scaler", scaler);
  session->Track("ema", ema);
  session->Track("epoch", epoch);
  session->Accumulate(4);
  session->OnEpoch(
      [&] { std::printf("epoch %d\n", static_cast<int>(++epoch)); });
  session->OnEvaluate(40, [&] {
    double right = 0;
    for (auto batch : held_out) {
      if (!session->Boundary()) return;  // the process may pause here
      const auto guess = averaged->forward(batch.data.to(session->device()));
      right += ((guess > 0) == (batch.target.to(session->device()) > 0))
                   .sum()
                   .item<double>();
    }
    session->Report("accuracy", right / 4096);
  });

  while (epoch < kEpochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const torch::Tensor loss = torch::binary_cross_entropy_with_logits(
          model->forward(batch.data), batch.target);
      scaler.Scale(loss * session->loss_scale()).backward();
      if (!session->last_micro_batch()) continue;
      session->Report("loss", loss);
      scaler.Unscale(optimizer);
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      scaler.Step(optimizer);
      scaler.Update();
      optimizer.zero_grad();
      schedule.step();
      ema.Update();
    }
  }

  if (session->finished() && argc > 1) {
    for (const gavel::Status& status :
         {session->RestoreBest(), gavel::SaveSafetensors(*averaged, argv[1])}) {
      if (!status.ok()) std::puts(status.message().c_str());
    }
  }
  return session->Finish();
}
