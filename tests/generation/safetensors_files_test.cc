// Files that other programs wrote, whole, damaged and hostile.
#include "runtime/generation/safetensors_files.h"

#include <filesystem>
#include <string>

#include "core/text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

std::string FileOf(const std::string& json, const std::string& data) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  }
  return file + json + data;
}

// One tensor of four bytes.
std::string FileWith(const std::string& name, const std::string& data) {
  return FileOf(StrCat(R"({")", name,
                       R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})"),
                data);
}

class SafetensorsFilesTest : public Test {
 protected:
  absl::StatusOr<SafetensorsFiles> Open(const std::string& name = "") {
    return SafetensorsFiles::Open(FileSystem::Posix(),
                                  name.empty() ? folder_.path() : Path(name));
  }
  std::string Path(const std::string& name) { return folder_.PathOf(name); }
  static std::string DataOf(const SafetensorsFiles& files,
                            const std::string& name) {
    const TensorEntry& tensor = files.tensors().at(name);
    std::string data(tensor.end - tensor.begin, '\0');
    EXPECT_OK(files.Read(tensor, data.data()));
    return data;
  }
  // The error of Open() for an index and two shards beside it.
  std::string MessageOfIndex(const std::string& weight_map) {
    folder_.Write("one", FileWith("a", "aaaa"));
    folder_.Write("two", FileWith("b", "bbbb"));
    folder_.Write("model.safetensors.index.json",
                  StrCat(R"({"weight_map":)", weight_map, "}"));
    const auto files = Open();
    return std::string(files.status().message());
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsFilesTest, ReadsAFile) {
  folder_.Write("x.safetensors", FileWith("a", "abcd"));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFiles files, Open("x.safetensors"));
  ASSERT_EQ(files.tensors().size(), 1u);
  EXPECT_EQ(DataOf(files, "a"), "abcd");
}

TEST_F(SafetensorsFilesTest, ReadsTheShardsOfAFolderThroughLinks) {
  std::filesystem::create_directory(Path("blobs"));
  folder_.Write("blobs/1", FileWith("a", "aaaa"));
  folder_.Write("blobs/2", FileWith("b", "bbbb"));
  folder_.Write("blobs/3", R"({"metadata":{},"weight_map":{"a":"1.safetensors",
                               "b":"2.safetensors"}})");
  std::filesystem::create_symlink("blobs/1", Path("1.safetensors"));
  std::filesystem::create_symlink("blobs/2", Path("2.safetensors"));
  std::filesystem::create_symlink("blobs/3",
                                  Path("model.safetensors.index.json"));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFiles files, Open());
  EXPECT_EQ(DataOf(files, "a"), "aaaa");
  EXPECT_EQ(DataOf(files, "b"), "bbbb");
}

TEST_F(SafetensorsFilesTest, EveryTruncationIsToldWithTheFile) {
  const std::string whole = FileWith("a", "abcd");
  for (size_t size = 0; size < whole.size(); ++size) {
    folder_.Write("x.safetensors", whole.substr(0, size));
    const auto files = Open("x.safetensors");
    EXPECT_TRUE(absl::IsDataLoss(files.status())) << size;
    EXPECT_THAT(std::string(files.status().message()),
                HasSubstr("x.safetensors"));
  }
}

TEST_F(SafetensorsFilesTest, HostileHeadersAreToldAndTakeNoMemory) {
  const std::string deep(1'000'000, '[');
  const std::string files[] = {
      std::string(8, '\xff'),
      std::string("\xff\xff\xff\x7f\0\0\0\0", 8) + "{}",
      FileOf("", ""),
      FileOf("null", ""),
      FileOf(deep, ""),
      FileOf(R"({"a":{"dtype":"U8","shape":[9223372036854775807,4],)"
             R"("data_offsets":[0,4]}})",
             "abcd"),
      FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
             "abcdabcd"),
      FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}})",
             "abcd"),
      FileOf(R"({"a":{"dtype":"Q7","shape":[4],"data_offsets":[0,4]}})",
             "abcd"),
      FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
             R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
             "abcd")};
  for (const std::string& file : files) {
    folder_.Write("x.safetensors", file);
    const auto opened = Open("x.safetensors");
    EXPECT_TRUE(absl::IsDataLoss(opened.status()))
        << file.substr(0, 100) << opened.status();
  }
}

TEST_F(SafetensorsFilesTest, AnIndexThatIsWrongIsToldWithTheName) {
  EXPECT_EQ(MessageOfIndex(R"({"a":"one","b":"two"})"), "");
  EXPECT_THAT(MessageOfIndex(R"({"a":"one","b":"one"})"),
              HasSubstr("'b' is in one, which does not have it"));
  EXPECT_THAT(MessageOfIndex(R"({"c":"one"})"), HasSubstr("'c' is in one"));
  EXPECT_THAT(MessageOfIndex(R"({"a":"three"})"),
              HasSubstr("three can't be opened: No such file"));
  EXPECT_THAT(MessageOfIndex(R"({"a":7})"), HasSubstr("no file name for 'a'"));
  EXPECT_THAT(MessageOfIndex("[]"), HasSubstr("it has no weight_map"));
  for (const char* const outside : {"../one", "/etc/passwd", "..", "", "x/y"}) {
    EXPECT_THAT(MessageOfIndex(StrCat(R"({"a":")", outside, R"("})")),
                HasSubstr(StrCat("the shard '", outside,
                                 "', which is not a file of its own folder")));
  }
}

TEST_F(SafetensorsFilesTest, ATensorInTwoShardsIsRefused) {
  folder_.Write("one", FileWith("a", "aaaa"));
  folder_.Write("two", FileWith("a", "bbbb"));
  folder_.Write("x.json", R"({"weight_map":{"a":"one","b":"two"}})");
  EXPECT_THAT(std::string(Open("x.json").status().message()),
              HasSubstr("both have 'a'"));
}

TEST_F(SafetensorsFilesTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(std::string(Open("none").status().message()),
              HasSubstr("none can't be opened: No such file or directory; "
                        "give the path of a .safetensors file"));
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("has neither model.safetensors nor "
                        "model.safetensors.index.json"));
}

}  // namespace
}  // namespace gavel::testing
