// Trains a Transformer to translate: two text files that belong together line
// by line (--data PREFIX --from en --to de), or, without any, a made-up
// language whose sentences are to be reversed. Alone or under a coordinator, on
// one worker or as a gang. Prints one line of JSON at the end: BLEU on
// sentences that it was not trained on.
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "examples/training.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/text.h"
#include "models/text_models.h"
#include "models/training.h"

namespace {

using gavel::examples::OrFail;
using gavel::models::ParallelText;
using gavel::models::SentencePair;
using gavel::models::SumTokenLoss;
using gavel::models::TokenLoss;
using gavel::models::Transformer;
using gavel::models::TranslationLoss;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    batch_size = 64;
    learning_rate = 0.002;
  }
  std::string from = "en";
  std::string to = "de";
  gavel::models::ParallelTextOptions text;
  gavel::models::TransformerOptions model{
      .width = 64, .feed_forward = 256, .heads = 4, .layers = 2};
  int64_t warm_up = 200;
  double smoothing = 0.1;
  gavel::models::BeamOptions beam{.beam = 4};
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags, "PREFIX of the text files PREFIX.FROM, PREFIX.TO",
               "sentences");
  AddGangFlags(app, flags);
  app.add_option("--from", flags.from, "how the source's file name ends");
  app.add_option("--to", flags.to, "how the target's file name ends");
  app.add_option("--vocabulary", flags.text.vocabulary, "tokens at most")
      ->check(CLI::Range(259, 1'000'000));
  app.add_option("--length", flags.text.length_max,
                 "tokens of a sentence; longer pairs are left out")
      ->check(CLI::Range(1, 1000));
  app.add_option("--width", flags.model.width, "512: the paper's base model")
      ->check(CLI::PositiveNumber);
  app.add_option("--feed-forward", flags.model.feed_forward, "ibid. 2048")
      ->check(CLI::PositiveNumber);
  app.add_option("--heads", flags.model.heads, "ibid. 8; divides the width")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", flags.model.layers, "ibid. 6")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.model.dropout, "in training")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--warm-up", flags.warm_up, "steps until the rate is --lr")
      ->check(CLI::PositiveNumber);
  app.add_option("--smoothing", flags.smoothing, "of labels")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--beam", flags.beam.beam, "of the search; 1: greedy")
      ->check(CLI::Range(1, 100));
}

ParallelText ReadText(const Flags& flags) {
  if (!flags.data.empty()) {
    return OrFail(ParallelText::Read(flags.data + "." + flags.from,
                                     flags.data + "." + flags.to, flags.text));
  }
  constexpr int64_t kLines = 5000;
  constexpr int64_t kWordsMax = 8;
  return OrFail(ParallelText::FromLines(
      gavel::models::ReverseLanguage(kLines, kWordsMax, /*seed=*/1),
      flags.text));
}

struct Score {
  double perplexity = 0;  // of each next token of the references
  double bleu = 0;        // of what the model makes of the sources
};

// On the held-out sentences.
Score Evaluate(Transformer& model, const ParallelText& text, const Flags& flags,
               const torch::Device& device) {
  constexpr size_t kBatchSize = 100;
  const torch::NoGradGuard no_grad;
  model->eval();
  TokenLoss loss;
  std::vector<std::string> translations;
  std::vector<std::string> references;
  std::span<const SentencePair> rest = text.validation();
  while (!rest.empty()) {
    const auto part = rest.first(std::min(kBatchSize, rest.size()));
    rest = rest.subspan(part.size());
    const auto batch = PadBatch(part, device);
    const auto of_part =
        SumTokenLoss(model(batch.source, batch.target_in), batch.target_out);
    loss.sum += of_part.sum;
    loss.tokens += of_part.tokens;
    const torch::Tensor ids =
        Translate(model, batch.source, flags.beam).cpu().contiguous();
    const auto length = static_cast<size_t>(ids.size(1));
    const int64_t* row = ids.const_data_ptr<int64_t>();
    for (const SentencePair& pair : part) {
      translations.push_back(text.Decode({row, length}));
      references.push_back(text.Decode(pair.target));
      row += length;
    }
  }
  return {std::exp(loss.sum / static_cast<double>(loss.tokens)),
          gavel::models::CorpusBleu(translations, references)};
}

int Train(Flags& flags, const ParallelText& text) {
  Seed(flags);
  flags.model.vocabulary = text.vocabulary();
  flags.model.length_max = flags.text.length_max + 1;  // and a mark
  flags.beam.length_max = flags.model.length_max;
  Transformer model(flags.model);
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(flags.learning_rate)
                                   .betas(std::make_tuple(0.9, 0.98))
                                   .eps(1e-9));
  auto loader = LoaderOf(gavel::models::SentencePairs(text.train()), flags);
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  gavel::examples::TrackVocabulary(*session, text.encoding().tokens());
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::DataParallel parallel(*session, model);
  gavel::examples::StepLoss step_loss(*session);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& pairs : gavel::Iterator(*session, loader)) {
      const auto batch = PadBatch(pairs, session->device());
      const auto loss = TranslationLoss(model(batch.source, batch.target_in),
                                        batch.target_out, flags.smoothing);
      (loss * session->loss_scale()).backward();
      step_loss.Add(loss);
      if (!session->last_micro_batch()) continue;
      gavel::models::SetLearningRate(
          optimizer, gavel::models::InverseSquareRootRate(
                         session->steps_done(), {.peak = flags.learning_rate,
                                                 .steps = flags.warm_up}));
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const Score score = Evaluate(model, text, flags, session->device());
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"vocabulary\": %lld, "
        "\"pairs_left_out\": %lld, \"perplexity\": %.9g, \"bleu\": %.9g}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        static_cast<long long>(text.vocabulary()),
        static_cast<long long>(text.left_out()), score.perplexity, score.bleu);
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a Transformer to translate.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.model.width % (2 * flags.model.heads) != 0) {
    gavel::examples::Fail("--width has to be a multiple of twice --heads");
  }
  return Train(flags, ReadText(flags));
}
