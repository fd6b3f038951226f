#include "operator/kube/watch.h"

#include <algorithm>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "operator/kube/json_text.h"
#include "tests/support/test_data.h"

namespace downpour::kube {
namespace {

using Type = WatchEvent::Type;

std::string Line(const std::string& type, const Json& object) {
  return DumpJson({{"type", type}, {"object", object}}) + "\n";
}

Json Object(const std::string& name) {
  return {{"kind", "Pod"}, {"metadata", {{"name", name}, {"resourceVersion", "5"}}}};
}

// All events, and how it ended.
struct Decoded {
  std::vector<std::string> events;
  absl::Status end;
  friend bool operator==(const Decoded&, const Decoded&) = default;
};

template <typename NextCut>
Decoded DecodeAll(std::string_view text, NextCut next_cut) {
  WatchDecoder decoder;
  Decoded decoded;
  while (!text.empty()) {
    const std::size_t size = std::min<std::size_t>(text.size(), next_cut());
    const auto events = decoder.Decode(text.substr(0, size));
    if (!events.ok()) {
      decoded.end = events.status();
      return decoded;
    }
    for (const WatchEvent& event : *events) {
      decoded.events.push_back(std::to_string(static_cast<int>(event.type)) + DumpJson(event.object));
    }
    text.remove_prefix(size);
  }
  decoded.end = decoder.Finish();
  return decoded;
}

TEST(WatchDecoder, KnowsAllTypes) {
  WatchDecoder decoder;
  const auto events =
      decoder.Decode(Line("ADDED", Object("a")) + Line("MODIFIED", Object("b")) + Line("DELETED", Object("c")) +
                     Line("BOOKMARK", Object("d")) + Line("ERROR", {{"kind", "Status"}, {"code", 410}}));
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 5u);
  const Type types[] = {Type::kAdded, Type::kModified, Type::kDeleted, Type::kBookmark, Type::kError};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ((*events)[i].type, types[i]) << i;
  EXPECT_EQ(FindInteger((*events)[4].object, {"code"}), 410);
}

TEST(WatchDecoder, StripsManagedFields) {
  Json object = Object("a");
  object["metadata"]["managedFields"] = Json::array({{{"manager", "kubectl"}}});
  WatchDecoder decoder;
  const auto events = decoder.Decode(Line("ADDED", object));
  ASSERT_TRUE(events.ok());
  EXPECT_EQ(events->at(0).object, Object("a"));
}

TEST(WatchDecoder, CutsChangeNothing) {
  const std::string good = "\n" + Line("ADDED", Object("plain")) + "\r\n  \n" +
                           Line("MODIFIED", Object("\xE2\x82\xAC\n\"")) +
                           Line("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}}) + Line("DELETED", Object("x"));
  for (const std::string& text : {good, good + "{\"type\"", good + "nonsense\n" + good}) {
    const Decoded whole = DecodeAll(text, [&] { return text.size(); });
    EXPECT_EQ(DecodeAll(text, [] { return 1; }), whole);
    for (std::size_t first = 1; first < text.size(); ++first) {
      EXPECT_EQ(DecodeAll(text, [&, cut = false]() mutable { return std::exchange(cut, true) ? text.size() : first; }),
                whole)
          << first;
    }
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
      std::mt19937 random(seed);
      EXPECT_EQ(DecodeAll(text, [&] { return std::uniform_int_distribution<std::size_t>(1, 40)(random); }), whole)
          << seed;
    }
    EXPECT_EQ(whole.events.size(), 4u);
  }
}

TEST(WatchDecoder, RefusesWhatIsNoEvent) {
  for (const std::string line :
       {"nonsense", "{}", "[]", "null", R"({"type": "ADDED"})", R"({"type": "ADDED", "object": null})",
        R"({"type": "ADDED", "object": []})", R"({"type": "CHANGED", "object": {}})", R"({"type": 1, "object": {}})",
        R"({"type": "ADDED", "object": {}} {})", "\xff"}) {
    WatchDecoder decoder;
    EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(line + "\n").status())) << line;
    EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(Line("ADDED", Object("a"))).status())) << "for ever, after " << line;
    EXPECT_TRUE(absl::IsDataLoss(decoder.Finish())) << line;
  }
}

TEST(WatchDecoder, AnswersTheEventsBeforeABadLineFirst) {
  WatchDecoder decoder;
  const auto events = decoder.Decode(Line("ADDED", Object("a")) + "nonsense\n" + Line("ADDED", Object("b")));
  ASSERT_TRUE(events.ok());
  EXPECT_EQ(events->size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode("\n").status()));
}

TEST(WatchDecoder, RefusesDeepNesting) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  WatchDecoder decoder;
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(R"({"type": "ADDED", "object": {"a": )" + deep + "}}\n").status()));
}

TEST(WatchDecoder, LimitsTheLine) {
  const std::string head = R"({"type":"ADDED","object":{"metadata":{"name":")";
  const std::string tail = R"("}}})";
  const std::string filled = head + std::string(kMaxWatchEventBytes - head.size() - tail.size(), 'x') + tail;
  WatchDecoder decoder;
  const auto events = decoder.Decode(filled + "\n");
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_EQ(events->size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(WatchDecoder().Decode(filled + " \n").status()));

  WatchDecoder endless;
  const std::string piece(1 << 16, 'x');
  absl::Status status;
  std::size_t bytes = 0;
  for (; status.ok() && bytes <= 2 * kMaxWatchEventBytes; bytes += piece.size())
    status = endless.Decode(piece).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(bytes, kMaxWatchEventBytes + 2 * piece.size());
}

TEST(WatchDecoder, NoticesAnEndWithinALine) {
  WatchDecoder decoder;
  const std::string line = Line("ADDED", Object("a"));
  ASSERT_TRUE(decoder.Decode(line + line.substr(0, 10)).ok());
  EXPECT_TRUE(absl::IsDataLoss(decoder.Finish()));
  ASSERT_TRUE(decoder.Decode(line.substr(10)).ok());
  EXPECT_TRUE(decoder.Finish().ok());
}

// As a real server wrote them: tests/testdata/kubernetes/README.md.
TEST(WatchDecoder, CutsOfFramesChangeNothing) {
  const std::string good = ReadTestData("watch.pb");
  for (const std::string& text : {good, good.substr(0, good.size() - 1), good + std::string("\0\0\0\1x", 5) + good}) {
    const Decoded whole = DecodeAll(text, [&] { return text.size(); });
    EXPECT_GE(whole.events.size(), 10u);
    EXPECT_EQ(whole.end.ok(), text == good) << whole.end;
    EXPECT_EQ(DecodeAll(text, [] { return 1; }), whole);
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
      std::mt19937 random(seed);
      EXPECT_EQ(DecodeAll(text, [&] { return std::uniform_int_distribution<std::size_t>(1, 4000)(random); }), whole)
          << seed;
    }
  }
}

TEST(WatchDecoder, LimitsTheFrame) {
  // Nothing is waited for that could not be taken.
  WatchDecoder decoder;
  EXPECT_TRUE(absl::IsResourceExhausted(decoder.Decode(std::string("\0\x80\0\1", 4)).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(decoder.Finish()));
  WatchDecoder patient;
  EXPECT_TRUE(patient.Decode(std::string("\0\x80\0\0", 4)).ok());
  EXPECT_TRUE(absl::IsDataLoss(patient.Finish()));
}

TEST(WatchDecoder, AFrameOfNoEventIsAnError) {
  for (const std::string& frame : {std::string(), std::string("x"),
                                   std::string("\x0a\x05"
                                               "ADDED"),
                                   std::string("\x0a\x05"
                                               "ADDED"
                                               "\x12\x02\x0a\x00",
                                               11)}) {
    WatchDecoder decoder;
    const std::string head("\0\0\0", 3);
    const auto events = decoder.Decode(head + static_cast<char>(frame.size()) + frame);
    EXPECT_TRUE(absl::IsDataLoss(events.status())) << events.status();
  }
}

}  // namespace
}  // namespace downpour::kube
