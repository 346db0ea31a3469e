#include "coordinator/http/documents.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/text.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SlowDocuments : public Documents {
 public:
  absl::StatusOr<std::string> Get(const DocumentRequest& request) override {
    ++asked;
    while (waiting) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::duration<double>(work_s));
    if (throws) throw std::runtime_error("of another form");
    return StrCat(std::string(bytes, 'x'), request.key, text());
  }
  absl::Status Act(const std::string&, const std::string&,
                   const CommandRequest&) override {
    return absl::OkStatus();
  }
  void SetText(const std::string& text) {
    const std::lock_guard lock(mutex_);
    text_ = text;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  std::atomic<int> asked{0};
  std::atomic<bool> waiting{false};
  double work_s = 0;
  bool throws = false;
  size_t bytes = 0;

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(SharedDocuments, AreMadeOnceForThoseWhoAskMeanwhile) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  documents.waiting = true;
  std::vector<std::thread> readers;
  std::atomic<int> read{0};
  for (int i = 0; i < 20; ++i) {
    readers.emplace_back([&] {
      EXPECT_OK(*shared.Get({}));
      ++read;
    });
  }
  EXPECT_TRUE(Eventually([&] { return documents.asked == 1; }));
  EXPECT_EQ(read, 0);
  documents.waiting = false;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(documents.asked, 1);
}

TEST(SharedDocuments, AreNotWaitedForWithoutALimit) {
  SlowDocuments documents;
  SharedDocuments shared(documents, /*wait_s_max=*/0.05);
  documents.waiting = true;
  std::thread first([&] { EXPECT_OK(*shared.Get({})); });
  EXPECT_TRUE(Eventually([&] { return documents.asked == 1; }));
  EXPECT_THAT(*shared.Get({}), StatusIs(kUnavailable, "try again later"));
  documents.waiting = false;
  first.join();
}

TEST(SharedDocuments, AreNotSharedBetweenReadersOrQueries) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  DocumentRequest request;
  request.key = "alice";
  EXPECT_EQ(**shared.Get(request), "alice");
  request.key = "bob";
  EXPECT_EQ(**shared.Get(request), "bob");
  request.user = "ann";
  shared.Get(request);
  request.cursor = 7;
  shared.Get(request);
  EXPECT_EQ(documents.asked, 4);
  shared.Get(request);
  EXPECT_EQ(documents.asked, 4);
}

TEST(SharedDocuments, AreMadeAnewOnceSomethingHasChanged) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  shared.Get({});
  shared.Forget();
  shared.Get({});
  EXPECT_EQ(documents.asked, 2);
}

TEST(SharedDocuments, ThatTakeLongAreNotMadeAnewByEachChange) {
  SlowDocuments documents;
  documents.work_s = 0.2;
  SharedDocuments shared(documents);
  shared.Get({});
  shared.NoteChange();
  shared.Get({});
  EXPECT_EQ(documents.asked, 1);
}

TEST(SharedDocuments, HoldForAMoment) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  EXPECT_TRUE(Eventually([&] {
    shared.Get({});
    return documents.asked == 2;
  }));
}

TEST(SharedDocuments, ThatCanNotBeMadeAreErrors) {
  SlowDocuments documents;
  documents.throws = true;
  SharedDocuments shared(documents);
  EXPECT_THAT(*shared.Get({}), StatusIs(kInternal, "of another form"));
  EXPECT_THAT(*shared.Get({}), StatusIs(kInternal, "of another form"));
}

// The event comes sooner after the first reading than an answer holds.
TEST(Events, LeadToNoDocumentThatIsOlder) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  Events events(shared, /*interval_s=*/0.02, /*watchers_max=*/4);
  ASSERT_TRUE(events.Enter());
  const auto first = events.Next(0, kPatience_s);
  ASSERT_NE(first, nullptr);
  std::this_thread::sleep_for(
      std::chrono::duration<double>(SharedDocuments::kAgeMax_s / 2));
  DocumentRequest nodes;
  nodes.kind = DocumentKind::kNodes;
  EXPECT_EQ(**shared.Get(nodes), "(dashboard)");
  documents.SetText("news");
  ASSERT_NE(events.Next(first->seq, kPatience_s), nullptr);
  EXPECT_EQ(**shared.Get(nodes), "(dashboard)news");
  events.Leave();
}

TEST(SharedDocuments, TakeBoundedMemory) {
  SlowDocuments documents;
  SharedDocuments shared(documents);
  documents.bytes = SharedDocuments::kBytesMax / 2;
  DocumentRequest request;
  for (uint64_t i = 1; i <= 4; ++i) {
    request.cursor = i;
    EXPECT_EQ((*shared.Get(request))->size() >= documents.bytes, true);
  }
  // The first one is forgotten, the last one is not.
  shared.Get(request);
  EXPECT_EQ(documents.asked, 4);
  request.cursor = 1;
  shared.Get(request);
  EXPECT_EQ(documents.asked, 5);
}

}  // namespace
}  // namespace gavel::testing
