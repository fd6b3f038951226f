#include "trainer/checkpoint/initial_weights.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/wire/crc32c.h"

namespace downpour::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InitialWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = (std::filesystem::path(::testing::TempDir()) / ("initial_" + name + ".safetensors")).string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void WriteText(const std::string& header, const std::string& data) const {
    const std::uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    std::ofstream(path_, std::ios::binary) << bytes << header << data;
  }
  template <typename Value>
  void WriteOne(const std::string& dtype, const std::vector<Value>& values) const {
    const std::size_t size = values.size() * sizeof(Value);
    WriteText(R"({"w":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(values.size()) +
                  R"(],"data_offsets":[0,)" + std::to_string(size) + "]}}",
              std::string(reinterpret_cast<const char*>(values.data()), size));
  }
  std::string ErrorOf(const std::vector<WantedTensor>& wanted, bool strict = true) const {
    const auto read = ReadInitialWeights(path_, wanted, strict);
    EXPECT_FALSE(read.ok());
    const std::string message(read.status().message());
    EXPECT_TRUE(message.starts_with(path_ + ": ")) << message;
    return message.substr(std::min(message.size(), path_.size() + 2));
  }

  std::string path_;
};

TEST_F(InitialWeightsTest, HasTheValuesOfAFileThatWeWroteAndItsChecksum) {
  const std::vector<float> a{1, -2, 3, 4, 5, 6};
  const std::vector<float> b{0.5F};
  ASSERT_TRUE(WriteSafetensors(path_, {{"a", {2, 3}, a}, {"b", {}, b}}, {{"format", "pt"}}).ok());
  EXPECT_TRUE(CheckInitialWeights(path_).ok());
  const auto read = ReadInitialWeights(path_, {{"b", {}}, {"a", {2, 3}}}, /*strict=*/true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->values.at("a"), a);
  EXPECT_EQ(read->values.at("b"), b);
  EXPECT_EQ(NameDifference(*read), "");
  std::ifstream stream(path_, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(read->crc32c, wire::Crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
}

TEST_F(InitialWeightsTest, NamesThatDifferAreRefusedOrTold) {
  const std::vector<float> one{1};
  std::vector<NamedTensor> written;
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("old" + std::to_string(i));
  for (const std::string& name : names) written.push_back({name, {1}, one});
  written.push_back({"same", {1}, one});
  ASSERT_TRUE(WriteSafetensors(path_, written, {}).ok());
  const std::vector<WantedTensor> wanted = {{"new.weight", {1}}, {"same", {1}}, {"new.bias", {1}}};
  const std::string difference =
      "2 missing (new.weight, new.bias), 12 unexpected (old0, old1, old2, old3, old4, old5, old6, old7, old8, old9, "
      "...)";
  EXPECT_EQ(ErrorOf(wanted), "the names are not those of the model: " + difference +
                                 "; spec.model.initialWeights.strict: false allows that");
  const auto read = ReadInitialWeights(path_, wanted, /*strict=*/false);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(NameDifference(*read), difference);
  EXPECT_EQ(read->values.size(), 1u);
  EXPECT_EQ(read->values.at("same"), one);
}

TEST_F(InitialWeightsTest, AnotherShapeIsAnErrorEitherWay) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", {2, 3}, values}}, {}).ok());
  const std::string expected = "tensor \"w\": found the shape [2, 3], expected [3, 2]";
  EXPECT_EQ(ErrorOf({{"w", {3, 2}}}), expected);
  EXPECT_EQ(ErrorOf({{"w", {3, 2}}}, /*strict=*/false), expected);
}

TEST_F(InitialWeightsTest, OtherFloatsBecomeFloat32) {
  WriteOne<std::uint16_t>("BF16", {0x3f80, 0xc020, 0x0001, 0x8000});
  auto read = ReadInitialWeights(path_, {{"w", {4}}}, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->values.at("w"), ElementsAre(1.0F, -2.5F, std::bit_cast<float>(0x00010000u), 0.0F));
  // One, the largest, the smallest, the smallest that is normal, minus a half.
  WriteOne<std::uint16_t>("F16", {0x3c00, 0x7bff, 0x0001, 0x0400, 0xb800});
  read = ReadInitialWeights(path_, {{"w", {5}}}, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->values.at("w"), ElementsAre(1.0F, 65504.0F, 0x1p-24F, 0x1p-14F, -0.5F));
  WriteOne<double>("F64", {0.1, -3});
  read = ReadInitialWeights(path_, {{"w", {2}}}, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->values.at("w"), ElementsAre(0.1F, -3.0F));
}

TEST_F(InitialWeightsTest, OtherTypesAndWhatIsNotFiniteAreRefused) {
  WriteOne<std::int64_t>("I64", {7});
  EXPECT_EQ(ErrorOf({{"w", {1}}}), "tensor \"w\": found the dtype \"I64\", expected one of F32, F16, BF16, F64");
  const auto counted = ReadInitialWeights(path_, {{"w", {1}, /*may_be_integer=*/true}}, true);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_THAT(counted->values.at("w"), ElementsAre(7.0F));
  WriteOne<std::uint8_t>("U8", {7});
  EXPECT_EQ(ErrorOf({{"w", {1}}}), "tensor \"w\": found the dtype \"U8\", expected one of F32, F16, BF16, F64");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckInitialWeights(path_)));
  WriteOne<float>("F32", {1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(ErrorOf({{"w", {2}}}), "tensor \"w\": element 1 is not finite as float32");
  WriteOne<double>("F64", {1e300});
  EXPECT_EQ(ErrorOf({{"w", {1}}}), "tensor \"w\": element 0 is not finite as float32");
  WriteOne<std::uint16_t>("F16", {0x7c00});
  EXPECT_EQ(ErrorOf({{"w", {1}}}), "tensor \"w\": element 0 is not finite as float32");
}

TEST_F(InitialWeightsTest, WhatIsNoSuchFileIsSaid) {
  EXPECT_TRUE(absl::IsNotFound(CheckInitialWeights(path_)));
  std::ofstream(path_) << "abc";
  EXPECT_EQ(ErrorOf({}), "3 bytes, too short for a safetensors file");
  std::ofstream(path_) << "PK\x03\x04 an archive of torch.save";
  EXPECT_THAT(ErrorOf({}), HasSubstr("no safetensors file: a header of "));
  WriteText("{", "");
  EXPECT_THAT(ErrorOf({}), HasSubstr("not a JSON object"));
  WriteText(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234");
  EXPECT_THAT(ErrorOf({}), HasSubstr("do not fit"));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckInitialWeights(path_)));
}

}  // namespace
}  // namespace downpour::checkpoint
