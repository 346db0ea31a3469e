// Runs the example programs as processes, alone, on one thread: they learn, and
// they resume exactly where they stopped. README.md has results of longer runs.
// Each processor has kernels that round in their own way, and after some steps
// the trainings differ; results are therefore compared with chance by a wide
// margin.
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gavel_paths.h"
#include "models/images.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;     // stdout and stderr
  std::string last_line;  // of stdout
};

// Runs "NAME FLAGS" from build/bin; without a directory, without checkpoints.
Outcome RunProgram(const std::string& command,
                   const std::string& checkpoint_directory = "") {
  const TemporaryFolder folder;
  const std::string line =
      "env -u GAVEL_WORKER_COORDINATOR OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= "
      "GAVEL_CHECKPOINT_DIRECTORY='" +
      checkpoint_directory + "' '" + GAVEL_BINARY_DIR "'/" + command + " 2>" +
      folder.PathOf("stderr");
  Outcome outcome;
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[512];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) {
    outcome.last_line = buffer;
    outcome.output += buffer;
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  outcome.output += folder.Read("stderr");
  return outcome;
}

Outcome Succeed(const std::string& command,
                const std::string& checkpoint_directory = "") {
  Outcome outcome = RunProgram(command, checkpoint_directory);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return outcome;
}

double Value(const Outcome& outcome, const std::string& name) {
  const auto json = nlohmann::json::parse(outcome.last_line, nullptr, false);
  EXPECT_TRUE(json.is_object() && json.contains(name)) << outcome.output;
  return json.is_object() ? json.value(name, 0.0) : 0.0;
}

// Runs the program to the end, then in two parts, and compares the results.
// `steps`: 0 for a program that ends after its epochs.
void ExpectToGoOnExactly(const std::string& program, int steps_of_first_part,
                         int steps = 0) {
  const auto with_steps = [&program](int limit) {
    return program + " --steps " + std::to_string(limit);
  };
  const std::string command = steps > 0 ? with_steps(steps) : program;
  const Outcome whole = Succeed(command);
  const TemporaryFolder folder;
  const Outcome first = Succeed(with_steps(steps_of_first_part), folder.path());
  EXPECT_NE(first.last_line, whole.last_line);
  const Outcome second = Succeed(command, folder.path());
  EXPECT_EQ(second.last_line, whole.last_line);
}

class TrainImage : public Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GAVEL_DIGITS_DIR)) {
      GTEST_SKIP() << GAVEL_DIGITS_DIR
                   << " is missing; ./gavel-dev setup exports the digits";
    }
  }
};

TEST_F(TrainImage, TellsDigitsApart) {
  const Outcome outcome = Succeed("train_image --epochs 4");
  EXPECT_GT(Value(outcome, "test_accuracy"), 0.6);  // chance: 0.10
  EXPECT_EQ(Value(outcome, "steps"), 4 * 44);
}

// Runs as on a machine without the digits.
TEST(TrainImageWithoutData, TellsSyntheticStripesApart) {
  const Outcome outcome = Succeed("train_image --data '' --epochs 2 --width 8");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_GT(Value(outcome, "test_accuracy"), 0.5);  // chance: 0.10
}

TEST_F(TrainImage, GoesOnExactlyInTheMiddleOfAnEpoch) {
  ExpectToGoOnExactly("train_image --epochs 2 --width 8", 57);
}

TEST_F(TrainImage, GoesOnExactlyAtTheEndOfAnEpoch) {
  ExpectToGoOnExactly("train_image --epochs 2 --width 8", 44);
}

TEST_F(TrainImage, UsesItsFirstBatchOnlyWhenThatIsAsked) {
  const Outcome outcome =
      Succeed("train_image --epochs 4 --width 8 --synthetic");
  EXPECT_EQ(Value(outcome, "steps"), 4 * 44);  // as with all the images
  // From 32 images it learns little about the others.
  EXPECT_LT(Value(outcome, "test_accuracy"), 0.85);
  EXPECT_THAT(outcome.last_line, HasSubstr("synthetic (first batch)"));
}

TEST_F(TrainImage, TrainsNoFurtherOnceItIsDone) {
  const TemporaryFolder folder;
  const std::string command = "train_image --epochs 1 --width 8";
  const Outcome first = Succeed(command, folder.path());
  const Outcome second = RunProgram(command, folder.path());
  EXPECT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(second.last_line, first.last_line);
}

TEST(TrainImagenet, TellsSyntheticStripesApart) {
  const Outcome outcome = Succeed(
      "train_imagenet --width 8 --images 1000 --batch-size 16 --epochs 8 "
      "--lr 0.02");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_GT(Value(outcome, "validation_accuracy"), 0.3);  // chance: 0.10
}

// A folder in ImageNet's form, with two classes of plain colours.
class TrainImagenetOnFolders : public Test {
 protected:
  void SetUp() override {
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"dark", "light"}) {
        const std::string folder = std::string(part) + "/" + name;
        std::filesystem::create_directories(folder_.PathOf(folder));
        for (int image = 0; image < 12; ++image) {
          WriteImage(folder + "/" + std::to_string(image) + ".JPEG",
                     (name[0] == 'd' ? 40 : 200) + image);
        }
      }
    }
  }
  void WriteImage(const std::string& name, int level) const {
    constexpr int64_t kHeight = 50, kWidth = 40;
    models::RgbImage image{kHeight, kWidth, {}};
    image.pixels.assign(kHeight * kWidth * 3, static_cast<uint8_t>(level));
    folder_.Write(name, EncodeJpeg(image));
  }
  Outcome Train() const {
    return RunProgram(
        "train_imagenet --width 4 --side 32 --batch-size 6 --epochs 16 --lr "
        "0.02 --data " +
        folder_.path());
  }

  TemporaryFolder folder_;
};

TEST_F(TrainImagenetOnFolders, TellsThemApart) {
  const Outcome outcome = Train();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"real\""));
  EXPECT_EQ(Value(outcome, "steps"), 16 * 4);
  EXPECT_GT(Value(outcome, "validation_accuracy"), 0.65);  // chance: 0.5
}

TEST_F(TrainImagenetOnFolders, GoesOnWithoutATruncatedImageAndSaysItsNameOnce) {
  const std::string name = "train/dark/3.JPEG";
  folder_.Write(name, folder_.Read(name).substr(0, 400));
  const Outcome outcome = Train();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(Value(outcome, "broken_images"), 1);
  EXPECT_EQ(Value(outcome, "broken_validation_images"), 0);
  const std::string said = folder_.PathOf(name) + ": not a whole JPEG image";
  const size_t first = outcome.output.find(said);
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find(said, first + 1), std::string::npos);
}

TEST_F(TrainImagenetOnFolders, CountsWhatIsBrokenOfTheValidationImages) {
  folder_.Write("val/light/7.JPEG", "no image");
  const Outcome outcome = Train();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(Value(outcome, "broken_images"), 0);
  EXPECT_EQ(Value(outcome, "broken_validation_images"), 1);
}

TEST_F(TrainImagenetOnFolders, EndsWhenAClassIsEmptyOrMissing) {
  std::filesystem::create_directory(folder_.PathOf("train/none"));
  const Outcome empty = Train();
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.output,
              HasSubstr(folder_.PathOf("train/none") + ": no image"));
  std::filesystem::remove(folder_.PathOf("train/none"));
  std::filesystem::remove_all(folder_.PathOf("val/dark"));
  const Outcome missing = Train();
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.output, HasSubstr("train/ and val/ have not the same"));
}

// The network has not seen these scenes. Translated from blue to orange, they
// are far closer to the orange ones than the blue ones are, although training
// never showed a pair.
TEST(TrainCyclegan, TranslatesSyntheticScenes) {
  const Outcome outcome = Succeed(
      "train_cyclegan --width 8 --blocks 2 --epochs 2 --images 100 --lr 0.001");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_LT(Value(outcome, "translation_error"),
            0.7 * Value(outcome, "untranslated_error"));
  EXPECT_LT(Value(outcome, "cycle_error"),
            0.7 * Value(outcome, "untranslated_error"));
}

TEST(TrainCyclegan, ReadsTheFoldersOfThePublishedData) {
  const TemporaryFolder folder;
  for (const char* part : {"trainA", "trainB", "testA", "testB"}) {
    std::filesystem::create_directory(folder.PathOf(part));
    for (int image = 0; image < 3; ++image) {
      models::RgbImage plain{40, 40, {}};
      plain.pixels.assign(40 * 40 * 3, static_cast<uint8_t>(60 * image));
      folder.Write(std::string(part) + "/" + std::to_string(image) + ".jpg",
                   EncodeJpeg(plain));
    }
  }
  const std::string command =
      "train_cyclegan --width 4 --blocks 1 --side 32 --epochs 2 --data " +
      folder.path();
  const Outcome outcome = Succeed(command);
  EXPECT_EQ(Value(outcome, "steps"), 2 * 3);
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"real\""));
  EXPECT_THAT(outcome.last_line, Not(HasSubstr("translation")));
  std::filesystem::remove_all(folder.PathOf("testB"));
  const Outcome missing = RunProgram(command);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.output,
              HasSubstr(folder.PathOf("testB") + ": no such folder"));
}

TEST(TrainLanguageModel, PredictsWordsFarBetterThanTheirFrequencyDoes) {
  const Outcome outcome = Succeed("train_language_model --epochs 3");
  EXPECT_LT(Value(outcome, "perplexity"),
            0.8 * Value(outcome, "unigram_perplexity"));
}

TEST(TrainLanguageModel, PredictsCharactersFarBetterThanTheirFrequencyDoes) {
  const Outcome outcome =
      Succeed("train_language_model --characters --epochs 100 --steps 500");
  EXPECT_LT(Value(outcome, "perplexity"),
            0.8 * Value(outcome, "unigram_perplexity"));
}

TEST(TrainLanguageModel, LearnsTheSyntheticLanguageWithoutAnyText) {
  const Outcome outcome = Succeed("train_language_model --data '' --epochs 2");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_LT(Value(outcome, "perplexity"),
            0.7 * Value(outcome, "unigram_perplexity"));
}

TEST(TrainLanguageModel, GoesOnExactlyWithItsDropout) {
  ExpectToGoOnExactly("train_language_model --epochs 1 --width 32", 31);
}

TEST(TrainLanguageModel, TakesAnyText) {
  const TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 300; ++line) text += "one two three four five\n";
  folder.Write("text", text);
  const Outcome outcome = Succeed("train_language_model --epochs 25 --data " +
                                  folder.PathOf("text"));
  EXPECT_EQ(Value(outcome, "vocabulary"), 6);
  EXPECT_LT(Value(outcome, "perplexity"), 4);  // chance: 6
}

TEST(TrainTranslation, LearnsToReverseTheSyntheticLanguage) {
  const Outcome outcome = Succeed("train_translation --steps 400 --beam 1");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_GT(Value(outcome, "bleu"), 0.3);  // chance: 0
}

TEST(TrainTranslation, GoesOnExactlyWithItsDropoutAndOnlyWithItsVocabulary) {
  const std::string command =
      "train_translation --epochs 1 --width 16 --layers 1 --batch-size 256 "
      "--beam 1";
  ExpectToGoOnExactly(command, 10);
  const TemporaryFolder folder;
  ASSERT_EQ(RunProgram(command + " --steps 3", folder.path()).exit_code, 0);
  const Outcome other =
      RunProgram(command + " --vocabulary 280", folder.path());
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, HasSubstr("another vocabulary"));
}

TEST(TrainTranslation, ReadsParallelTextFiles) {
  const TemporaryFolder folder;
  std::string source;
  std::string target;
  for (int line = 0; line < 40; ++line) {
    source += "a man walks\n";
    target += "ein mann geht\n";
  }
  folder.Write("text.en", source);
  folder.Write("text.de", target);
  const std::string command =
      "train_translation --width 16 --layers 1 --batch-size 4 --warm-up 20 "
      "--dropout 0 --lr 0.01 --data " +
      folder.PathOf("text");
  const Outcome outcome = Succeed(command);
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"real\""));
  EXPECT_LT(Value(outcome, "perplexity"), 3);
  EXPECT_EQ(Value(outcome, "bleu"), 0);  // no sentence has four words
  folder.Write("text.de", target + "noch einer\n");
  const Outcome unpaired = RunProgram(command);
  EXPECT_EQ(unpaired.exit_code, 1);
  EXPECT_THAT(unpaired.output, HasSubstr("text.de:41: the other file has no"));
}

TEST(TrainGpt, PredictsTokensFarBetterThanTheirFrequencyDoes) {
  const Outcome outcome = Succeed("train_gpt --epochs 2");
  EXPECT_LT(Value(outcome, "perplexity"),
            0.8 * Value(outcome, "unigram_perplexity"));
}

TEST(TrainGpt, LearnsTheSyntheticLanguageWithoutAnyText) {
  const Outcome outcome = Succeed("train_gpt --data '' --steps 150");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_LT(Value(outcome, "perplexity"),
            0.7 * Value(outcome, "unigram_perplexity"));
}

TEST(TrainGpt, TakesTheSameStepsWithAccumulatedGradients) {
  const std::string command =
      "train_gpt --steps 6 --dropout 0 --width 32 --length 32 ";
  const Outcome whole = RunProgram(command + "--batch-size 16");
  const Outcome parts =
      RunProgram(command + "--batch-size 4 --global-batch-size 16");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(Value(parts, "steps"), 6);
  EXPECT_NEAR(Value(parts, "perplexity") / Value(whole, "perplexity"), 1, 1e-3);
}

TEST(TrainGpt, GoesOnExactlyInMixedPrecision) {
  ExpectToGoOnExactly(
      "train_gpt --epochs 1 --width 32 --length 32 --precision bfloat16 "
      "--batch-size 128",
      11);
}

TEST(TrainRecommendation, RecommendsBetterThanWhatIsPopular) {
  const Outcome outcome = Succeed("train_recommendation --epochs 15");
  EXPECT_THAT(outcome.last_line, HasSubstr("\"data\": \"synthetic\""));
  EXPECT_GT(Value(outcome, "ndcg"), 1.05 * Value(outcome, "popularity_ndcg"));
}

TEST(TrainRecommendation, GoesOnExactlyWithItsNoise) {
  ExpectToGoOnExactly("train_recommendation --epochs 3 --hidden 20", 17);
}

TEST(TrainA3c, LearnsToPlayWithSeveralActors) {
  const Outcome outcome = Succeed("train_a3c --actors 2");
  EXPECT_LT(Value(outcome, "random_margin"), -2);
  EXPECT_GT(Value(outcome, "margin"), Value(outcome, "random_margin") + 2);
}

TEST(TrainA3c, GoesOnExactlyInTheMiddleOfAGame) {
  ExpectToGoOnExactly("train_a3c --actors 1 --decay-steps 30", 13, 30);
  ExpectToGoOnExactly("train_a3c --actors 1 --decay-steps 4 --pixels", 3, 4);
}

TEST(Minimal, LearnsTheCircle) {
  const Outcome outcome = Succeed("minimal");
  EXPECT_GT(Value(outcome, "inside_at_center"), 0.7);  // chance: 0.5
}

TEST(Examples, RefuseSizesThatTheirNetworksCannotTake) {
  const std::pair<const char*, const char*> kCases[] = {
      {"train_cyclegan --side 16",
       "--side has to be a multiple of 4, at least"},
      {"train_cyclegan --side 30",
       "--side has to be a multiple of 4, at least"},
      {"train_gpt --width 10 --heads 4",
       "--width has to be a multiple of --he"},
      {"train_translation --width 12 --heads 4",
       "--width has to be a multiple of twice --heads"}};
  for (const auto& [command, said] : kCases) {
    const Outcome outcome = RunProgram(command);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.output, HasSubstr(said)) << command;
  }
}

TEST(TrainCyclegan, TakesTheSmallestImagesThatItAllows) {
  const Outcome outcome = Succeed(
      "train_cyclegan --side 24 --width 4 --blocks 1 --epochs 1 --images 2");
  EXPECT_EQ(Value(outcome, "steps"), 2);
}

TEST(Examples, SayWhatIsWrongWithTheirData) {
  const Outcome image = RunProgram("train_image --data /no/such/folder");
  EXPECT_EQ(image.exit_code, 1);
  EXPECT_THAT(image.output, HasSubstr("/no/such/folder: no such folder; "));
  const Outcome text = RunProgram("train_language_model --data /no/such/text");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.output, HasSubstr("/no/such/text: no such file; "));
  const TemporaryFolder folder;
  folder.Write("ratings.csv", "userId,movieId,rating\n1,2\n");
  const Outcome ratings =
      RunProgram("train_recommendation --data " + folder.PathOf("ratings.csv"));
  EXPECT_EQ(ratings.exit_code, 1);
  EXPECT_THAT(ratings.output,
              HasSubstr("ratings.csv:2: 2 fields instead of 3"));
}

}  // namespace
}  // namespace gavel
