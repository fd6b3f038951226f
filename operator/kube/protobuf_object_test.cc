#include "operator/kube/protobuf_object.h"

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "operator/kube/api_error.h"
#include "operator/kube/json_text.h"
#include "operator/kube/watch.h"
#include "tests/support/test_data.h"

namespace downpour::kube {
namespace {

using Kind = ProtobufField::Kind;

constexpr ProtobufField kSpecFields[] = {{10, "nodeName", Kind::kText}};

ProtobufFields Fields() {
  static const ProtobufField fields[] = {{1, "metadata", Kind::kMessage, MetadataFields()},
                                         {2, "spec", Kind::kMessage, kSpecFields}};
  return fields;
}

void ExpectSameMeta(const Json& one, const Json& other) {
  ObjectMeta meta = ReadMeta(other);
  meta.annotations.clear();
  EXPECT_EQ(ReadMeta(one), meta) << one;
}

TEST(ProtobufObject, AnObjectIsWhatItIsInJson) {
  const absl::StatusOr<Json> created = ParseProtobuf(ReadTestData("created.pb"), Fields());
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(FindText(*created, {"kind"}), "Pod");
  WatchDecoder decoder;
  const auto events = decoder.Decode(ReadTestData("watch.json"));
  ASSERT_TRUE(events.ok());
  ExpectSameMeta(*created, events->front().object);
  const ObjectMeta meta = ReadMeta(*created);
  EXPECT_EQ(meta.labels.size(), 6u);
  EXPECT_EQ(meta.controller_uid, "3b709f5e-ef8e-47bd-b8f1-4671efb88fc6");
  EXPECT_TRUE(meta.creation_time.has_value());
  EXPECT_EQ(Find(*created, {"spec", "containers"}), nullptr) << "nobody asked for it";
}

TEST(ProtobufObject, AListIsWhatItIsInJson) {
  const absl::StatusOr<Json> list = ParseProtobuf(ReadTestData("list.pb"), Fields());
  ASSERT_TRUE(list.ok()) << list.status();
  const Json expected = *ParseJson(ReadTestData("list.json"));
  EXPECT_EQ(FindText(*list, {"kind"}), "PodList");
  EXPECT_NE(FindText(*list, {"metadata", "resourceVersion"}), "");
  EXPECT_EQ(FindText(*list, {"metadata", "continue"}), FindText(expected, {"metadata", "continue"}));
  ASSERT_EQ(list->at("items").size(), 1u);
  ExpectSameMeta(list->at("items")[0], expected.at("items")[0]);
  EXPECT_EQ(FindText(list->at("items")[0], {"spec", "nodeName"}), "somewhere");
}

TEST(ProtobufObject, ARefusalIsWhatItIsInJson) {
  const ApiError refused = ReadApiError({404, ReadTestData("status.pb"), {}});
  const ApiError expected = ReadApiError({404, ReadTestData("status.json"), {}});
  EXPECT_EQ(refused.reason, "NotFound");
  EXPECT_EQ(refused.reason, expected.reason);
  EXPECT_EQ(refused.message, expected.message);
}

TEST(ProtobufObject, EventsAreWhatTheyAreInJson) {
  for (const std::string name : {"watch", "expired"}) {
    WatchDecoder decoder(Fields());
    const auto events = decoder.Decode(ReadTestData(name + ".pb"));
    WatchDecoder json_decoder;
    const auto expected = json_decoder.Decode(ReadTestData(name + ".json"));
    ASSERT_TRUE(events.ok()) << events.status();
    ASSERT_EQ(events->size(), expected->size());
    for (std::size_t i = 0; i < events->size(); ++i) {
      SCOPED_TRACE(i);
      const WatchEvent& event = (*events)[i];
      EXPECT_EQ(event.type, (*expected)[i].type);
      ExpectSameMeta(event.object, (*expected)[i].object);
      for (const char* const field : {"kind", "reason", "message"}) {
        EXPECT_EQ(FindText(event.object, {field}), FindText((*expected)[i].object, {field}));
      }
      EXPECT_EQ(FindInteger(event.object, {"code"}), FindInteger((*expected)[i].object, {"code"}));
    }
    EXPECT_TRUE(decoder.Finish().ok());
  }
}

// "k8s", the type's kind, and the message.
std::string Object(const std::string& kind, const std::string& raw) {
  const auto field = [](char tag, const std::string& value) {
    return std::string(1, tag) + static_cast<char>(value.size()) + value;
  };
  return std::string("k8s\0", 4) + field('\x0a', field('\x12', kind)) + field('\x12', raw);
}

constexpr ProtobufField kThingFields[] = {{1, "text", Kind::kText},
                                          {2, "number", Kind::kInteger},
                                          {3, "time", Kind::kTime},
                                          {4, "map", Kind::kTextMap},
                                          {5, "child", Kind::kMessage, kSpecFields}};

// Of a thing with one field.
Json Value(const std::string& raw, const char* field) {
  const absl::StatusOr<Json> thing = ParseProtobuf(Object("Thing", raw), kThingFields);
  if (!thing.ok()) return thing.status().ToString();
  return thing->value(field, Json());
}

TEST(ProtobufObject, KeepsWhatIsZero) {
  EXPECT_EQ(Value(std::string("\x10\x00", 2), "number"), 0);
  EXPECT_EQ(Value("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "number"), -1);
  EXPECT_EQ(Value(std::string("\x1a\x04\x08\x00\x10\x00", 6), "time"), "1970-01-01T00:00:00Z");
  EXPECT_EQ(Value("\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "time"), "1969-12-31T23:59:59Z");
  EXPECT_EQ(Value(std::string("\x1a\x00", 2), "time"), Json()) << "the zero time is none";
  EXPECT_EQ(Value(std::string("\x2a\x00", 2), "child"), Json::object());
  EXPECT_EQ(Value("\x22\x03\x0a\x01k", "map"), Json({{"k", ""}}));
  EXPECT_EQ(Value(std::string("\x0a\x00", 2), "text"), Json());
}

TEST(ProtobufObject, ASecondValueAddsToTheFirst) {
  EXPECT_EQ(Value(std::string("\x2a\x03\x52\x01n\x2a\x00", 7), "child"), Json({{"nodeName", "n"}}));
  EXPECT_EQ(Value("\x22\x06\x0a\x01k\x12\x01v\x22\x03\x0a\x01l", "map"), Json({{"k", "v"}, {"l", ""}}));
}

// Servers do not look: one pod with such a text would make the list of all unreadable, for ever.
TEST(ProtobufObject, WhatIsNotUtf8IsReplaced) {
  EXPECT_EQ(Value("\x0a\x03x\xffy", "text"), "x\xEF\xBF\xBDy");
  EXPECT_EQ(Value("\x22\x06\x0a\x01\xff\x12\x01\xfe", "map"), Json({{"\xEF\xBF\xBD", "\xEF\xBF\xBD"}}));
}

TEST(ProtobufObject, RefusalsSayWhenToTryAgain) {
  const std::string details =
      "\x22\x20\x0a\x18UnexpectedServerResponse\x12\x04"
      "busy"
      "\x28\x07";
  const std::string raw =
      "\x1a\x04"
      "slow"
      "\x22\x0fTooManyRequests\x2a" +
      std::string(1, static_cast<char>(details.size())) + details + "\x30\xad\x03";
  const ApiError error = ReadApiError({429, Object("Status", raw), {}});
  EXPECT_EQ(error.reason, "TooManyRequests");
  EXPECT_EQ(error.message, "slow: busy");
  EXPECT_EQ(error.retry_after, absl::Seconds(7));
  EXPECT_EQ(ReadApiError({500, Object("Status", raw).substr(0, 60), {}}).reason, "") << "it is cut";
}

TEST(ProtobufObject, RefusesWhatIsBroken) {
  const auto parse = [&](const std::string& raw) { return ParseProtobuf(Object("Thing", raw), kThingFields); };
  const auto good =
      parse(std::string("\x0a\x01t\x10\x07\x1a\x02\x08\x01\x22\x06\x0a\x01k\x12\x01v\x2a\x00"
                        "\x30\x01\x39"
                        "12345678"
                        "\x45"
                        "1234"
                        "\x4a\x01x",
                        38));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, Json::parse(R"({"kind": "Thing", "text": "t", "number": 7, "time": "1970-01-01T00:00:01Z",
                                   "map": {"k": "v"}, "child": {}})"));
  for (const std::string& raw : {
           std::string("\x0a\x05t"),                 // longer than all there is
           std::string("\x0a\xff\xff\xff\xff\x0f"),  // likewise, and more than an int
           std::string("\x0a"),                      // no length
           std::string("\x08\x01"),                  // a number in place of a text
           std::string("\x12\x01t"),                 // and the other way round
           std::string("\x1a\x02\x0a\x00", 4),       // a time of texts
           std::string("\x1a\x02\x08\xff"),          // a time that is cut
           std::string("\x2a\x02\x52\x05"),          // a child that is cut
           std::string("\x33"),                      // a group
           std::string("\x36\x01"),                  // no such wire type
           std::string("\x41\x01"),                  // 8 bytes of which 1 is there
           std::string("\x00", 1),                   // no such field
       }) {
    EXPECT_TRUE(absl::IsDataLoss(parse(raw).status())) << testing::PrintToString(raw);
  }
  for (const std::string& bytes : {std::string(), std::string("k8s"), std::string("{}"), std::string("k8s\0\x0a", 5)}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseProtobuf(bytes, kThingFields).status())) << testing::PrintToString(bytes);
  }
}

TEST(ProtobufObject, AnyBytesAreReadOrRefused) {
  for (const std::string name : {"created.pb", "list.pb", "status.pb"}) {
    const std::string good = ReadTestData(name);
    constexpr std::size_t kTail = 4;  // two empty fields of the envelope
    for (std::size_t size = 0; size < good.size() - kTail; ++size) {
      EXPECT_TRUE(absl::IsDataLoss(ParseProtobuf(good.substr(0, size), Fields()).status())) << name << " " << size;
    }
    for (std::uint32_t seed = 0; seed < 2000; ++seed) {
      std::mt19937 random(seed);
      std::string bytes = good;
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
      const absl::StatusOr<Json> read = ParseProtobuf(bytes, Fields());
      if (read.ok()) {
        (void)ReadMeta(*read).Key();
        EXPECT_NE(DumpJson(*read), "");
      }
    }
  }
}

}  // namespace
}  // namespace downpour::kube
