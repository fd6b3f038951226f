// Broken inputs of every format: each is one line that names the file, the position, what was found and what is
// expected; what breaks a single sample is skipped and counted, or ends the reading, as the policy says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define ZLIB_CONST  // input pointers are const
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensorflow_example.pb.h"
#include "trainer/data/dataset_source.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/cifar.h"
#include "trainer/data/formats/csv_source.h"
#include "trainer/data/formats/image_folder.h"
#include "trainer/data/formats/npy_source.h"
#include "trainer/data/formats/safetensors_source.h"
#include "trainer/data/formats/testing/npy_builder.h"
#include "trainer/data/formats/testing/read_values.h"
#include "trainer/data/formats/testing/record_builder.h"
#include "trainer/data/formats/testing/tar_builder.h"
#include "trainer/data/formats/text_source.h"
#include "trainer/data/formats/tf_record.h"
#include "trainer/data/formats/web_dataset.h"
#include "trainer/data/idx_dataset.h"
#include "trainer/data/image.h"
#include "trainer/data/index_file.h"
#include "trainer/data/open_dataset.h"
#include "trainer/data/source_dataset.h"
#include "trainer/data/vocabulary.h"
#ifdef DOWNPOUR_ARROW
#include <arrow/io/memory.h>
#include <arrow/json/from_string.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>

#include "tests/support/fake_api_server.h"
#include "trainer/data/files/arrow_files.h"
#include "trainer/data/formats/parquet_source.h"
#endif

namespace downpour::data {
namespace {

using ::testing::HasSubstr;
using Source = absl::StatusOr<std::unique_ptr<SampleSource>>;

struct Inputs {
  MemoryFiles files;
  std::string folder;  // on the disk, empty, for what is read from there alone
};

struct Case {
  std::string name;
  std::function<Source(Inputs& inputs)> open;
  // What the line has: a part of each.
  std::string file;
  std::string position;
  std::string found;
  std::string expected;
};

void Write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// The bytes from `at` on, others.
std::string With(std::string text, std::size_t at, const std::string& bytes) {
  return text.replace(at, bytes.size(), bytes);
}

std::string Jpeg() {
  Value image = PlainImage(3, 40, 40, 90);
  for (std::size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = static_cast<std::byte>(i * i >> 5U);
  return AsFile(*EncodeJpeg(image, 90));
}
std::string Png() { return AsFile(*EncodePng(PlainImage(3, 4, 5, 90))); }

std::string BigEndian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

// A PNG image that claims an extent, with the checksum that belongs to it.
std::string PngOf(std::uint32_t width, std::uint32_t height) {
  std::string png = With(Png(), 16, BigEndian(width) + BigEndian(height));
  const std::string checked = png.substr(12, 17);
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return With(png, 29, BigEndian(static_cast<std::uint32_t>(checksum)));
}

// Files in memory, then the reader.
using FileList = std::vector<std::pair<std::string, std::string>>;
std::function<Source(Inputs&)> Folder(const FileList& list, const ImageFolderOptions& options = {}) {
  return [=](Inputs& inputs) {
    for (const auto& [path, content] : list) inputs.files.Put(path, content);
    return OpenImageFolder(inputs.files, "set", options);
  };
}
std::function<Source(Inputs&)> Csv(const std::string& content, const CsvOptions& options = {}) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.csv", content);
    return OpenCsv(inputs.files, "set.csv", options);
  };
}
std::function<Source(Inputs&)> Texts(const FileList& list, TextLayout layout,
                                     const std::vector<std::string>& classes = {}) {
  return [=](Inputs& inputs) {
    for (const auto& [path, content] : list) inputs.files.Put(path, content);
    TextOptions options;
    options.layout = layout;
    options.class_names = classes;
    return OpenText(inputs.files, "set", options);
  };
}
std::function<Source(Inputs&)> Npy(const std::string& content, std::uint64_t most_inflated = 1 << 20) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.npy", content);
    NpyOptions options;
    options.most_inflated_bytes = most_inflated;
    return OpenNpy(inputs.files, "set.npy", options);
  };
}
std::function<Source(Inputs&)> Safetensors(const std::string& content) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.safetensors", content);
    return OpenSafetensors(inputs.files, "set.safetensors", {});
  };
}
std::function<Source(Inputs&)> Cifar(const FileList& list, bool hundred = false) {
  return [=](Inputs& inputs) {
    for (const auto& [path, content] : list) inputs.files.Put(path, content);
    return hundred ? OpenCifar100(inputs.files, "set", {}) : OpenCifar10(inputs.files, "set", {});
  };
}
std::function<Source(Inputs&)> Records(const std::string& content, const std::vector<TfRecordFeature>& features = {}) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.tfrecord", content);
    return OpenTfRecord(inputs.files, "set.tfrecord", {.features = features});
  };
}
std::function<Source(Inputs&)> Tar(const std::string& content, const WebDatasetOptions& options = {}) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.tar", content);
    return OpenWebDataset(inputs.files, "set.tar", options);
  };
}
std::function<Source(Inputs&)> Idx(const std::string& images, const std::string& labels) {
  return [=](Inputs& inputs) -> Source {
    Write(inputs.folder + "/train-images-idx3-ubyte", images);
    Write(inputs.folder + "/train-labels-idx1-ubyte", labels);
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenIdxDataset(inputs.folder, Split::kTrain);
    if (!dataset.ok()) return dataset.status();
    return SourceOf(*std::move(dataset));
  };
}
std::function<Source(Inputs&)> Manifest(const std::string& csv, const std::function<void(DatasetSpec&)>& change) {
  return [=](Inputs& inputs) -> Source {
    DatasetSpec spec;
    spec.format = "CSV";
    spec.directory = inputs.folder + "/train.csv";
    Write(spec.directory, csv);
    change(spec);
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain);
    if (!dataset.ok()) return dataset.status();
    return SourceOf(*std::move(dataset));
  };
}

std::string Safetensor(const std::string& header, const std::string& values) {
  Encoder length;
  length.Put<std::uint64_t>(header.size());
  return length.bytes() + header + values;
}

std::string Example(const std::function<void(tensorflow::Features&)>& change) {
  tensorflow::Example example;
  change(*example.mutable_features());
  return Record(example.SerializeAsString());
}
std::string LabelRecord(std::int64_t label) {
  return Example([label](tensorflow::Features& features) {
    (*features.mutable_feature())["label"].mutable_int64_list()->add_value(label);
  });
}
std::string BytesRecord(const std::string& name, const std::string& bytes) {
  return Example([&](tensorflow::Features& features) {
    (*features.mutable_feature())[name].mutable_bytes_list()->add_value(bytes);
  });
}

std::vector<Case> ImageCases() {
  const std::string path = "set/cat/b.jpg";
  const auto broken = [&](const std::string& content) {
    return Folder({{"set/cat/a.png", Png()}, {path, content}, {"set/dog/c.png", Png()}});
  };
  const std::string jpeg = Jpeg();
  const std::string png = Png();
  std::string damaged = jpeg;
  for (std::size_t i = jpeg.size() / 2; i < jpeg.size() / 2 + 40; ++i) damaged[i] = '\xff';
  std::string crc = png;
  crc[crc.size() - 14] = static_cast<char>(crc[crc.size() - 14] ^ 1);
  return {
      {"JPEG: cut in its header", broken(jpeg.substr(0, 10)), path, path, "Premature end of JPEG file",
       "expected a sound one"},
      {"JPEG: cut in its pixels", broken(jpeg.substr(0, jpeg.size() / 2)), path, path, "remature end of",
       "expected a sound one"},
      {"JPEG: damaged in its pixels", broken(damaged), path, path, "Corrupt JPEG data", "expected a sound one"},
      {"PNG: cut", broken(png.substr(0, 60)), path, path, "ends before its last chunk does", "expected a sound one"},
      {"PNG: wrong checksum", broken(crc), path, path, "CRC error", "expected a sound one"},
      {"PNG: bomb", broken(PngOf(100'000, 100'000)), path, path, "100000 x 100000 pixels", "at most"},
      {"PNG: more than a side may have", broken(PngOf(2'000'000'000, 1)), path, path, "IHDR", "expected a sound one"},
      {"PNG: no pixels", broken(PngOf(0, 5)), path, path, "IHDR", "expected a sound one"},
      {"image: neither", broken("GIF89a"), path, path, "begins with the bytes 47494638",
       "expected a JPEG (ffd8ff) or PNG"},
      {"image: empty", broken(""), path, path, "is empty", "expected a JPEG or PNG image"},
      {"ImageFolder: no file", Folder({{"set/README", "x"}}), "set", "set", "of 1 files, as README", "none is a .jpg"},
      {"ImageFolder: a class without an image", Folder({{"set/cat/a.png", Png()}, {"set/dog/a.txt", ""}}), "set/dog",
       "set/dog", "as dog/a.txt", "none is a .jpg"},
      {"ImageFolder: an image in no class", Folder({{"set/a.png", Png()}, {"set/cat/a.png", Png()}}), "set/a.png",
       "set/a.png", "is in no folder", "expected CLASS/NAME"},
      {"ImageFolder: a class that is none", Folder({{"set/cow/a.png", Png()}}, {.class_names = {"cat", "dog"}}),
       "set/cow", "set/cow", "is none of the 2 classes", "the first is \"cat\""},
      {"ImageFolder: nothing there", Folder({}), "set", "set", "No such file", "cannot be looked at"},
      {"ImageFolder: a file",
       [](Inputs& inputs) {
         inputs.files.Put("set", "x");
         return OpenImageFolder(inputs.files, "set", {});
       },
       "set", "set", "is a file", "expected a folder with one a class"},
  };
}

std::vector<Case> CsvCases() {
  CsvOptions numbers;
  numbers.columns = {{"a", {CsvType::kU8, {}}}, {"b", {CsvType::kI32, {}}}};
  CsvOptions classes;
  classes.columns = {{"b", {CsvType::kCategorical, {"yes", "no"}}}};
  CsvOptions other;
  other.columns = {{"z", {CsvType::kText, {}}}};
  const std::string file = "set.csv";
  return {
      {"CSV: empty", Csv(""), file, "line 1", "the end of the file", "expected a header"},
      {"CSV: a row with more fields", Csv("a,b\n1,2\n1,2,3\n"), file, "line 3", "found 3 fields", "expected 2"},
      {"CSV: a row with fewer fields", Csv("a,b\n1\n"), file, "line 2", "found 1 fields", "expected 2"},
      {"CSV: a column twice", Csv("a,a\n1,2\n"), file, "line 1", "the column \"a\" twice",
       "expected names that differ"},
      {"CSV: an open quote", Csv("a,b\n1,\"x\n"), file, "line 2: column \"b\"", "the end of the file",
       "expected a quote"},
      {"CSV: something behind a quote", Csv("a,b\n\"1\"2,3\n"), file, "line 2: column \"a\"", "found \"2\"",
       "expected \",\""},
      {"CSV: a quote within a field", Csv("a,b\n5\" pipe,3\n"), file, "line 2: column \"a\"", "found a quote",
       "expected the whole field in quotes"},
      {"CSV: a carriage return alone", Csv("a,b\n1,2\r3,4\n"), file, "line 2: column \"b\"", "found a carriage return",
       "expected both"},
      {"CSV: a header that is not UTF-8", Csv("a,\xff\n1,2\n"), file, "line 1", "the byte 0xff", "expected UTF-8"},
      {"CSV: a field that is not UTF-8", Csv("a,b\n1,x\n2,\xc3\n"), file, "line 3: column \"b\"", "the byte 0xc3",
       "expected UTF-8"},
      {"CSV: a NUL byte", Csv(std::string("a,b\n1,x\0\n", 9)), file, "line 2: column \"b\"", "NUL", "expected text"},
      {"CSV: text among numbers", Csv("a,b\n1,2\n1,x\n", numbers), file, "line 3: column \"b\"", "found \"x\"",
       "expected an integer of 32 bits"},
      {"CSV: a number that is too large", Csv("a,b\n256,2\n", numbers), file, "line 2: column \"a\"", "found \"256\"",
       "expected a number from 0 to 255"},
      {"CSV: an empty field among numbers", Csv("a,b\n1,\n", numbers), file, "line 2: column \"b\"", "an empty field",
       "expected an integer"},
      {"CSV: a label that is no class", Csv("a,b\n1,maybe\n", classes), file, "line 2: column \"b\"", "found \"maybe\"",
       "expected one of the 2 classes"},
      {"CSV: a column that is not there", Csv("a,b\n1,2\n", other), file, "column", "found no column \"z\"",
       "expected one of a, b"},
      {"CSV: too many columns", Csv(std::string(100'001, ',')), file, "line 1: column 100001",
       "more than 100000 fields", "expected no more"},
      {"CSV: files of other columns",
       [](Inputs& inputs) {
         inputs.files.Put("set/a.csv", "x,y\n1,2\n");
         inputs.files.Put("set/b.csv", "y,x\n1,2\n");
         return OpenCsv(inputs.files, "set", {});
       },
       "set/b.csv", "line 1", "\"y, x\"", "expected those of set/a.csv"},
      {"CSV: no file",
       [](Inputs& inputs) {
         inputs.files.Put("set/a.txt", "");
         return OpenCsv(inputs.files, "set", {});
       },
       "set", "set", "found no file", "expected one or more"},
      {"CSV: a file that is shorter than it was",
       [](Inputs& inputs) {
         inputs.files.Put("set.csv", "a,b\n1,2\n3,4\n");
         Source source = OpenCsv(inputs.files, "set.csv", {});
         inputs.files.Cut("set.csv", 9);
         return source;
       },
       file, "byte 9", "ends at", "expected"},
  };
}

std::vector<Case> TextCases() {
  const TextLayout lines = TextLayout::kLines;
  const TextLayout labelled = TextLayout::kLabelledLines;
  const TextLayout folders = TextLayout::kFolders;
  return {
      {"Text: not UTF-8", Texts({{"set/a.txt", "one\ntwo \xff\n"}}, lines), "set/a.txt", "line 2", "the byte 0xff",
       "expected UTF-8"},
      {"Text: a surrogate", Texts({{"set/a.txt", "\xed\xa0\x80\n"}}, lines), "set/a.txt", "line 1", "the byte 0xed",
       "expected UTF-8"},
      {"Text: a form that is too long", Texts({{"set/a.txt", "\xc0\x80\n"}}, lines), "set/a.txt", "line 1",
       "the byte 0xc0", "expected UTF-8"},
      {"Text: a NUL byte", Texts({{"set/a.txt", std::string("a\0b\n", 4)}}, lines), "set/a.txt", "line 1", "NUL",
       "expected text"},
      {"Text: a line without a label", Texts({{"set/a.txt", "x\tone\ntwo\n"}}, labelled), "set/a.txt", "line 2",
       "found \"two\" without a tab", "expected LABEL<TAB>TEXT"},
      {"Text: a label that is no class", Texts({{"set/a.txt", "good\tone\nugly\ttwo\n"}}, labelled, {"good", "bad"}),
       "set/a.txt", "line 2", "the label \"ugly\"", "expected one of the 2 classes"},
      {"Text: a folder that is no class", Texts({{"set/ugly/a.txt", "x"}}, folders, {"good", "bad"}), "set",
       "the folder", "\"ugly\"", "expected those of the classes"},
      {"Text: folders without a file", Texts({{"set/good/a.md", "x"}}, folders), "set", "set", "found no file",
       "expected a folder for each class"},
      {"Text: a file that is not UTF-8", Texts({{"set/good/a.txt", "ab\xfe"}}, folders), "set/good/a.txt", "byte 2",
       "the byte 0xfe", "expected UTF-8"},
      {"Text: no file", Texts({{"set/a.md", "x"}}, lines), "set", "set", "found no file", "expected one or more"},
  };
}

std::vector<Case> NpyCases() {
  const std::string four = Bytes<float>({1, 2, 3, 4});
  const std::string x = NpyArray("|u1", "(3,)", "abc");
  const std::string zip = Zip({{"x.npy", x, false}});
  const std::string deflated = Zip({{"x.npy", x, true}});
  const std::string signature("PK\x01\x02", 4);
  const std::size_t at = zip.rfind(signature);
  const std::size_t deflated_at = deflated.rfind(signature);
  const auto half = [](std::uint16_t number) { return Bytes<std::uint16_t>({number}); };
  const auto word = [](std::uint32_t number) { return Bytes<std::uint32_t>({number}); };
  const std::string zeros = NpyArray("|u1", "(1000000,)", std::string(1'000'000, '\0'));
  const std::string twice = Zip({{"x.npy", x, false}, {"x.npy", x, false}});
  const std::string file = "set.npy";
  return {
      {"NPY: no array", Npy("abcdefgh"), file, "at the beginning", "found \"abcdef\"", "expected \"\\x93NUMPY\""},
      {"NPY: empty", Npy(""), file, "at the beginning", "found \"\"", "expected \"\\x93NUMPY\""},
      {"NPY: cut in its header", Npy("\x93NUMPY\x01"), file, "header", "found 7 bytes", "expected more"},
      {"NPY: another version", Npy(NpyArray("<f4", "(4,)", four, 4)), file, "format version",
       "found format version 4.0", "expected 1.0, 2.0 or 3.0"},
      {"NPY: a header longer than the file", Npy(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)), file, "header",
       "65535 bytes", "expected no more than 2"},
      {"NPY: a header that is none", Npy(NpyArray("{'descr': '<f4'}", four)), file, "the header", "descr",
       "expected {'descr'"},
      {"NPY: Fortran order", Npy(NpyArray("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", four)), file,
       "shape [2, 2]", "in Fortran order", "expected C order"},
      {"NPY: objects", Npy(NpyArray("|O", "(2,)", four)), file, "elements of type", "'|O'", "expected bool"},
      {"NPY: fields", Npy(NpyArray("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four)), file,
       "elements", "several fields", "expected plain numbers"},
      {"NPY: complex numbers", Npy(NpyArray("<c8", "(2,)", four)), file, "elements of type", "'<c8'", "expected bool"},
      {"NPY: short", Npy(NpyArray("<f4", "(5,)", four)), file, "values", "found 16 bytes", "expected those of [5]"},
      {"NPY: a shape beyond all memory", Npy(NpyArray("<f4", "(4294967296, 4294967296)", "")), file, "values",
       "found 0 bytes", "expected those of [4294967296, 4294967296]"},
      {"NPY: a single number", Npy(NpyArray("<f4", "()", Bytes<float>({1}))), file, file, "a single number",
       "expected an array"},
      {"NPY: a number that is too large", Npy(NpyArray("<f8", "(2,)", Bytes<double>({1, 1e300}))), file,
       "sample 1: element 0", "found 1e+300", "expected what a 32 bit float"},
      {"NPY: a bool that is none", Npy(NpyArray("|b1", "(2,)", "\x01\x02")), file, "sample 1: element 0",
       "found the byte 2", "expected 0 or 1 of a bool"},
      {"NPZ: no directory", Npy(zip.substr(0, zip.size() - 1)), file, "end of a directory", "found no end",
       "expected one"},
      {"NPZ: bomb by its claim", Npy(With(deflated, deflated_at + 24, word(0x7fffffff))), file, "\"x.npy\"",
       "2147483647 bytes", "expected no more"},
      {"NPZ: bomb by its contents", Npy(Zip({{"x.npy", zeros, true}}), 999'999), file, "\"x.npy\"",
       "more than 999999 bytes", "as much as may be held"},
      {"NPZ: more than its directory says",
       Npy(With(deflated, deflated_at + 24, word(static_cast<std::uint32_t>(x.size() - 1)))), file, "\"x.npy\"",
       "inflates to more", "that the directory promises"},
      {"NPZ: encrypted", Npy(With(zip, at + 8, half(1))), file, "\"x.npy\"", "is encrypted",
       "expected one that is not"},
      {"NPZ: another compression", Npy(With(zip, at + 10, half(12))), file, "\"x.npy\"", "found the method 12",
       "expected 0 (stored) or 8"},
      {"NPZ: wrong checksum", Npy(With(deflated, deflated_at + 16, word(0))), file, "\"x.npy\"", "the checksum 0x",
       "expected 0x00000000"},
      {"NPZ: damaged data", Npy(With(deflated, 35, "\xff")), file, "\"x.npy\"", "invalid block type",
       "expected sound data"},
      {"NPZ: entries that overlap", Npy(With(twice, twice.rfind(signature) + 42, word(0))), file, "bytes 0 and 0",
       "overlap", "expected each for itself"},
      {"NPZ: an entry that is no array", Npy(Zip({{"x.txt", x, false}})), file, "\"x.txt\"", "found \"x.txt\"",
       "expected arrays alone"},
      {"NPZ: a name twice", Npy(twice), file, "the name \"x\"", "there twice", "expected one array"},
      {"NPZ: several volumes", Npy(With(zip, zip.size() - 18, half(1))), file, "volumes", "several volumes",
       "expected one"},
  };
}

std::vector<Case> SafetensorsCases() {
  const std::string file = "set.safetensors";
  const auto one = [](const std::string& rest) { return Safetensor(absl::StrCat("{\"x\":{", rest, "}}"), "12345678"); };
  return {
      {"SafeTensors: short", Safetensors("1234567"), file, file, "found 7 bytes", "expected more"},
      {"SafeTensors: a header longer than the file", Safetensors(std::string(8, '\xff') + "{}"), file, "header",
       "18446744073709551615 bytes", "expected no more than 2"},
      {"SafeTensors: no JSON", Safetensors(Safetensor("[]", "")), file, "header", "is not a JSON object",
       "expected one of tensors"},
      {"SafeTensors: tensors that overlap",
       Safetensors(Safetensor(
           R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           "123456")),
       file, "tensor \"y\"", "begins at 2", "expected 4"},
      {"SafeTensors: beyond the file", Safetensors(one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")), file,
       "tensor \"x\"", "[0, 16]", "in 8 bytes of data"},
      {"SafeTensors: another shape", Safetensors(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])")), file,
       "tensor \"x\"", "[0, 8]", "do not fit the shape [3]"},
      {"SafeTensors: another type", Safetensors(one(R"("dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8])")), file,
       "tensor \"x\"", "the dtype \"F8_E4M3\"", "expected one of"},
      {"SafeTensors: no shape", Safetensors(one(R"("dtype":"F32","data_offsets":[0,8])")), file, "tensor \"x\"",
       "no shape", "expected its extents"},
      {"SafeTensors: no place", Safetensors(one(R"("dtype":"F32","shape":[2])")), file, "tensor \"x\"",
       "bad data_offsets", "expected [begin, end]"},
      {"SafeTensors: data of no tensor", Safetensors(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])")), file,
       "data", "4 bytes", "expected none"},
      {"SafeTensors: a name twice",
       Safetensors(Safetensor(
           R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           "1234")),
       file, "header", "appears twice", "expected names that differ"},
      {"SafeTensors: other numbers of samples",
       Safetensors(Safetensor(
           R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
           "123456")),
       file, "tensor \"y\"", "found 2 samples", "has 4"},
  };
}

std::vector<Case> IdxAndCifarCases() {
  const std::string images = BigEndian(0x803) + BigEndian(2) + BigEndian(2) + BigEndian(2) + "12345678";
  const std::string labels = BigEndian(0x801) + BigEndian(2) + "\x01\x02";
  const std::string of_images = "train-images-idx3-ubyte";
  const std::string of_labels = "train-labels-idx1-ubyte";
  const auto sample = [](char label) { return label + std::string(3072, 'x'); };
  const std::string batch = "set/data_batch_1.bin";
  return {
      {"IDX: no directory",
       [](Inputs& inputs) -> Source { return OpenIdxDataset(inputs.folder + "/none", Split::kTrain).status(); },
       "/none", "/none", "no such", "directory"},
      {"IDX: no file", [](Inputs& inputs) -> Source { return OpenIdxDataset(inputs.folder, Split::kTrain).status(); },
       of_images, of_images, "no such file", "nor train-images-idx3-ubyte without .gz"},
      {"IDX: wrong magic", Idx(With(images, 0, BigEndian(0x804)), labels), of_images, "magic", "0x00000804",
       "expected 0x00000803"},
      {"IDX: a header that is short", Idx(images.substr(0, 9), labels), of_images, "header", "9 bytes",
       "expected a header of 16"},
      {"IDX: short", Idx(images.substr(0, images.size() - 1), labels), of_images, "truncated", "7 values",
       "expected 8"},
      {"IDX: long", Idx(images + "x", labels), of_images, "after the 8", "trailing bytes", "expected values (2x2x2)"},
      {"IDX: a header beyond all memory", Idx(BigEndian(0x803) + std::string(12, '\xff'), labels), of_images,
       "the header", "4294967295x4294967295x4294967295", "limit"},
      {"IDX: no images", Idx(With(images, 4, BigEndian(0)), labels), of_images, "the header", "no values",
       "expected one or more"},
      {"IDX: a label outside its classes", Idx(images, With(labels, 9, "\x0a")), of_labels, "index 1", "label 10",
       "expected 0 to 9"},
      {"IDX: other numbers of labels", Idx(images, BigEndian(0x801) + BigEndian(1) + "\x01"), of_labels, of_labels,
       "1 labels", "has 2 images"},
      {"IDX: gzip that is cut", Idx(std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10), labels), of_images, "gzip stream",
       "truncated", "expected its end"},
      {"CIFAR: a size that is no multiple", Cifar({{batch, sample(1) + "x"}}), batch, batch, "3074 bytes",
       "expected a multiple of 3073"},
      {"CIFAR: empty", Cifar({{batch, ""}}), batch, batch, "0 bytes", "expected a multiple of 3073"},
      {"CIFAR: a label outside its classes", Cifar({{batch, sample(1) + sample(10)}}), batch, "sample 1 at byte 3073",
       "label 10", "expected 0 to 9"},
      {"CIFAR: a coarse label outside its classes", Cifar({{"set/train.bin", std::string("\x14") + sample(1)}}, true),
       "set/train.bin", "sample 0 at byte 0", "coarse_label 20", "expected 0 to 19"},
      {"CIFAR: the version for Python", Cifar({{"set/data_batch_1", "x"}}), "set", "set", "has no data_batch_*.bin",
       "expected the binary version"},
      {"CIFAR: names of classes", Cifar({{batch, sample(1)}, {"set/batches.meta.txt", "a\nb\n"}}),
       "set/batches.meta.txt", "names of classes", "2 names", "expected 10"},
  };
}

std::vector<Case> TfRecordCases() {
  using Kind = TfRecordFeature::Kind;
  const std::string good = LabelRecord(3);
  const std::string file = "set.tfrecord";
  const std::string second = absl::StrCat("record 1 at byte ", good.size());
  const auto flipped = [](std::string record, std::size_t at) {
    record[at] = static_cast<char>(record[at] ^ 1);
    return record;
  };
  Encoder length;
  length.Put<std::uint64_t>(std::uint64_t{1} << 62);
  const std::string huge = length.bytes();
  const std::uint32_t checksum = wire::Crc32c(AsBytes(huge));
  Encoder masked;
  masked.Put<std::uint32_t>((checksum >> 15U | checksum << 17U) + 0xa282ead8U);
  return {
      {"TFRecord: checksum of a length", Records(good + flipped(good, 9)), file, second,
       "checksum of its length: found", "expected"},
      {"TFRecord: checksum of data", Records(good + flipped(good, 20)), file, second, "checksum of its data: found",
       "expected"},
      {"TFRecord: cut in a length", Records(good + good.substr(0, 5)), file, second, "ends after 5 bytes",
       "expected the 12"},
      {"TFRecord: cut in data", Records(good + good.substr(0, 20)), file, second, absl::StrCat(good.size(), " bytes"),
       "ends after 20"},
      {"TFRecord: a length beyond all memory", Records(huge + masked.bytes()), file, "record 0 at byte 0",
       "4611686018427387904 bytes", "expected 2147483647 at most"},
      {"TFRecord: no Example", Records(good + Record("no example")), file, second, "10 bytes of data that are none",
       "expected a tf.train.Example"},
      {"TFRecord: a feature that is missing", Records(good + BytesRecord("other", "x")), file, second,
       "feature \"label\" is not there", "expected in every record"},
      {"TFRecord: another kind of list", Records(good + BytesRecord("label", "x")), file, second, "is a bytes_list",
       "expected an int64_list"},
      {"TFRecord: other numbers of elements",
       Records(good + Example([](tensorflow::Features& features) {
                 auto& list = *(*features.mutable_feature())["label"].mutable_int64_list();
                 list.add_value(1);
                 list.add_value(2);
               })),
       file, second, "has 2 elements", "expected 1"},
      {"TFRecord: a label outside its classes", Records(LabelRecord(10), {{"label", Kind::kIntegers, {}, 10}}), file,
       "record 0 at byte 0", "holds 10", "expected 0 to 9"},
      {"TFRecord: text that is not UTF-8", Records(BytesRecord("text", "a\xff"), {{"text", Kind::kText}}), file,
       "record 0 at byte 0: feature \"text\" at its byte 1", "0xff", "expected UTF-8"},
      {"TFRecord: an image that is cut", Records(BytesRecord("image", Png().substr(0, 60)), {{"image", Kind::kImage}}),
       file, "record 0 at byte 0: feature \"image\"", "ends before its last chunk", "expected a sound one"},
      {"TFRecord: an image that is none", Records(BytesRecord("image", "GIF8"), {{"image", Kind::kImage}}), file,
       "record 0 at byte 0: feature \"image\"", "begins with the bytes 47494638", "expected a JPEG"},
      {"TFRecord: empty", Records(""), file, file, "without a record", "expected one at least"},
      {"TFRecord: no features", Records(Record("")), file, "record 0 at byte 0", "has no features",
       "expected one or more"},
      {"TFRecord: bytes of no kind", Records(BytesRecord("x", "\xff\xfe")), file, "record 0 at byte 0: feature \"x\"",
       "neither an image nor UTF-8 text", "has to say what"},
  };
}

std::vector<Case> WebDatasetCases() {
  const std::string file = "set.tar";
  const auto first = [] { return TarBuilder().File("a.cls", "1"); };  // 1,024 bytes
  std::string checksum = first().File("b.cls", "2").End();
  checksum[1024] = 'c';
  const std::string whole = first().File("b.cls", "2").End();
  return {
      {"WebDataset: .. in a name", Tar(first().File("../b.cls", "1").End()), file, "byte 1024: entry \"../b.cls\"",
       "\"..\" in its name", "expected one that stays"},
      {"WebDataset: an absolute name", Tar(first().File("/etc/b.cls", "1").End()), file,
       "byte 1024: entry \"/etc/b.cls\"", "absolute name", "expected one that begins without a slash"},
      {"WebDataset: no name", Tar(first().File("", "1").End()), file, "byte 1024", "without a name", "expected one"},
      {"WebDataset: wrong checksum", Tar(checksum), file, "byte 1024", "checksum", "expected"},
      {"WebDataset: cut in a header", Tar(whole.substr(0, 1300)), file, "byte 1024", "276 bytes are left",
       "expected a header of 512"},
      {"WebDataset: cut in data", Tar(first().Header('0', "b.cls", "00000100000").bytes()), file,
       "byte 1024: entry \"b.cls\"", "has 32768 bytes", "ends after 0"},
      {"WebDataset: a size that is none", Tar(first().Header('0', "b.cls", "12x").bytes()), file,
       "byte 1024: entry \"b.cls\"", "a size that is no number", "expected octal digits"},
      {"WebDataset: a link", Tar(first().Entry('2', "b.cls", "").End()), file, "byte 1024: entry \"b.cls\"",
       "a symbolic link", "expected a regular file"},
      {"WebDataset: something behind the end", Tar(first().End() + std::string(512, 'x')), file, "byte 2048",
       "something behind the end", "expected zeros"},
      {"WebDataset: archives behind each other", Tar(first().End() + first().End()), file, "byte 2048",
       "something behind the end", "expected zeros"},
      {"WebDataset: an extension that is none", Tar(first().File("a.npy", "").End()), file,
       "byte 1024: entry \"a.npy\"", "cannot be read", "expected NAME.jpg"},
      {"WebDataset: two images", Tar(TarBuilder().File("a.jpg", Jpeg()).File("a.png", Png()).End()), file,
       "entry \"a.png\"", "is another image", "expected one"},
      {"WebDataset: a sample without a label",
       Tar(TarBuilder().File("a.cls", "1").File("a.txt", "x").File("b.txt", "y").File("c.txt", "y").End()), file,
       "byte 2048: sample \"b\"", "has text", "expected label, text"},
      {"WebDataset: a label that is no number", Tar(first().File("b.cls", "cat").End()), file,
       "byte 1024: entry \"b.cls\"", "holds \"cat\"", "expected a decimal number"},
      {"WebDataset: a label outside its classes", Tar(first().File("b.cls", "10").End(), {.classes = 10}), file,
       "byte 1024: entry \"b.cls\"", "holds 10", "expected 0 to 9"},
      {"WebDataset: text that is not UTF-8", Tar(TarBuilder().File("a.txt", "x\xff").End()), file,
       "byte 0: entry \"a.txt\" at its byte 1", "0xff", "expected UTF-8"},
      {"WebDataset: an image that is cut", Tar(TarBuilder().File("a.jpg", Jpeg().substr(0, 200)).End()), file,
       "byte 0: entry \"a.jpg\"", "JPEG", "expected a sound one"},
      {"WebDataset: a PNG bomb", Tar(TarBuilder().File("a.png", PngOf(100'000, 100'000)).End()), file,
       "byte 0: entry \"a.png\"", "100000 x 100000 pixels", "at most"},
      {"WebDataset: no sample", Tar(TarBuilder().End()), file, file, "without a sample", "expected one at least"},
      {"WebDataset: a pax header that is none", Tar(first().Entry('x', "pax", "garbage").End()), file, "byte 1024",
       "a pax header with a record that is none", "expected LENGTH KEY=VALUE"},
  };
}

std::vector<Case> OtherCases() {
  const std::string csv = "width,label\n1,0\n2,1\n";
  const auto decode = [](const std::string& bytes) {
    return [bytes](Inputs&) -> Source { return Vocabulary::Decode(AsBytes(bytes)).status(); };
  };
  MemoryFiles files;
  files.Put("text", "one two\n");
  const std::string vocabulary = Vocabulary::Build(**OpenText(files, "text", {}), "text", {0}, 10)->Encode();
  return {
      {"manifest: a column that does not exist",
       Manifest(csv, [](DatasetSpec& spec) { spec.fields = {{.column = "height"}}; }), "column", "column \"height\"",
       "there is none of this name", "there are width, label"},
      {"manifest: a transform of a field that does not exist",
       Manifest(
           csv,
           [](DatasetSpec& spec) { spec.transforms = {{.type = "Cast", .field = "height", .element_type = "fp32"}}; }),
       "spec.dataset", "transforms[0].field", "\"height\"", "there is no field"},
      {"manifest: a transform of something else",
       Manifest(csv,
                [](DatasetSpec& spec) {
                  spec.transforms = {{.type = "Resize", .field = "width", .height = 1, .width = 1}};
                }),
       "spec.dataset", "transforms[0]", "width", "Resize is for images"},
      {"manifest: a delimiter of two characters", Manifest(csv, [](DatasetSpec& spec) { spec.delimiter = ";;"; }),
       "spec.dataset", "delimiter", "got \";;\"", "expected one character"},
      {"manifest: a label outside its classes",
       Manifest(csv,
                [](DatasetSpec& spec) {
                  spec.fields = {{.column = "width"}, {.column = "label", .target = true, .classes = 1}};
                }),
       "", "label", "1", "expected"},
      {"vocabulary: something else", decode("abc"), "", "begin", "found 3 bytes", "expected a vocabulary"},
      {"vocabulary: cut", decode(vocabulary.substr(0, vocabulary.size() - 1)), "", "bytes",
       absl::StrCat("found ", vocabulary.size() - 1), absl::StrCat("expected ", vocabulary.size())},
      {"vocabulary: damaged", decode(With(vocabulary, vocabulary.size() - 1, "x")), "", "header",
       "does not fit the words", "checksum"},
  };
}

#ifdef DOWNPOUR_ARROW
std::string ParquetOf(const std::shared_ptr<arrow::DataType>& type, const std::string& json) {
  const auto array = arrow::json::ArrayFromJSONString(type, json);
  EXPECT_TRUE(array.ok()) << array.status().ToString();
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("x", type)}), {*array});
  const auto sink = *arrow::io::BufferOutputStream::Create();
  const auto properties = parquet::WriterProperties::Builder().enable_page_checksum()->build();
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  EXPECT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 100, properties, arrow_properties).ok());
  return (*sink->Finish())->ToString();
}

std::function<Source(Inputs&)> Parquet(const std::string& content, const std::vector<std::string>& columns = {}) {
  return [=](Inputs& inputs) {
    inputs.files.Put("set.parquet", content);
    ParquetOptions options;
    options.columns = columns;
    return OpenParquet(inputs.files, "set.parquet", options);
  };
}

std::vector<Case> ParquetCases() {
  const std::string file = "set.parquet";
  const std::string whole = ParquetOf(arrow::int32(), "[1, 2, 3]");
  const auto nested = arrow::struct_({arrow::field("a", arrow::int32())});
  std::string damaged = whole;
  damaged[45] = static_cast<char>(damaged[45] ^ 0x55);
  return {
      {"Parquet: a struct", Parquet(ParquetOf(nested, R"([{"a": 1}])")), file, "column 'x'", "is struct<a: int32>",
       "expected bool, an integer"},
      {"Parquet: lists of any length", Parquet(ParquetOf(arrow::list(arrow::int32()), "[[1], [2, 3]]")), file,
       "column 'x'", "is list<", "expected bool, an integer"},
      {"Parquet: times", Parquet(ParquetOf(arrow::date32(), "[1]")), file, "column 'x'", "is date32",
       "expected bool, an integer"},
      {"Parquet: bytes", Parquet(ParquetOf(arrow::binary(), R"(["a"])")), file, "column 'x'", "is binary",
       "expected bool, an integer"},
      {"Parquet: something else", Parquet("number,text\n1,one\n2,two\n"), file, file, "is no Parquet file",
       "expected one"},
      {"Parquet: empty", Parquet(""), file, file, "is no Parquet file", "expected one"},
      {"Parquet: cut", Parquet(whole.substr(0, whole.size() - 5)), file, file, "is no Parquet file", "expected one"},
      {"Parquet: damaged in a page", Parquet(damaged), file, "rows 0 to 2", "cannot be read", "expected sound ones"},
      {"Parquet: a null", Parquet(ParquetOf(arrow::int32(), "[1, null]")), file, "row 1: column 'x'", "is null",
       "expected a value"},
      {"Parquet: no rows", Parquet(ParquetOf(arrow::int32(), "[]")), file, file, "found no rows",
       "expected one or more"},
      {"Parquet: a column that is not there", Parquet(whole, {"y"}), file, "column 'y'", "no column",
       "expected one of x"},
      {"Parquet: a number that is too large", Parquet(ParquetOf(arrow::uint64(), "[18446744073709551615]")), file,
       "row 0: column 'x'", "is 18446744073709551615", "expected at most 9223372036854775807"},
      {"Parquet: no file",
       [](Inputs& inputs) {
         inputs.files.Put("set/a.csv", "");
         return OpenParquet(inputs.files, "set");
       },
       "set", "set", "found no file", "expected one whose name ends with .parquet"},
  };
}
#endif

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (const auto& make : {ImageCases, CsvCases, TextCases, NpyCases, SafetensorsCases, IdxAndCifarCases, TfRecordCases,
                           WebDatasetCases, OtherCases}) {
    for (Case& one : make()) all.push_back(std::move(one));
  }
#ifdef DOWNPOUR_ARROW
  for (Case& one : ParquetCases()) all.push_back(std::move(one));
#endif
  return all;
}

class BrokenInputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/broken-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // An empty folder for each.
  Inputs Fresh() {
    const std::string folder = absl::StrCat(folder_, "/", folders_++);
    std::filesystem::create_directories(folder);
    return Inputs{{}, folder};
  }

  std::string folder_;
  int folders_ = 0;
};

// The first error of opening it or of a sample; OK: there is none.
absl::Status FirstError(const Source& source) {
  if (!source.ok()) return source.status();
  for (std::int64_t i = 0; i < (*source)->size(); ++i) {
    if (absl::Status status = (*source)->Read(i).status(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void ExpectOneLine(const absl::Status& status) {
  const std::string message(status.message());
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsInternal(status)) << message;
  EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  })) << message;
}

TEST_F(BrokenInputsTest, EachIsOneLineThatNamesFilePositionFoundAndExpected) {
  const std::vector<Case> cases = AllCases();
  EXPECT_GE(cases.size(), 100U);
  std::set<std::string> names;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_TRUE(names.insert(one.name).second) << "a name twice";
    Inputs inputs = Fresh();
    const absl::Status status = FirstError(one.open(inputs));
    ExpectOneLine(status);
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(one.file));
    EXPECT_THAT(message, HasSubstr(one.position));
    EXPECT_THAT(message, HasSubstr(one.found));
    EXPECT_THAT(message, HasSubstr(one.expected));
  }
}

// Whether a sample can be read is all that is left of it.
class Readable final : public SampleSource {
 public:
  explicit Readable(std::unique_ptr<SampleSource> source) : source_(std::move(source)) {}
  std::int64_t size() const override { return source_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const absl::StatusOr<Sample> sample = source_->Read(index);
    if (!sample.ok()) return sample.status();
    const Value number{{}, std::vector<std::byte>(sizeof(std::int64_t))};
    return Sample{number, number};
  }

 private:
  const std::unique_ptr<SampleSource> source_;
  const std::vector<Column> columns_ = {{"x", ElementType::kI64}, {"label", ElementType::kI64, {}, false, 2}};
};

TEST_F(BrokenInputsTest, ThePolicySkipsAndCountsOrFails) {
  int broken_sets = 0;
  for (const Case& one : AllCases()) {
    SCOPED_TRACE(one.name);
    Inputs inputs = Fresh();
    Source opened = one.open(inputs);
    if (!opened.ok()) continue;
    ++broken_sets;
    const auto source = std::make_shared<Readable>(*std::move(opened));
    std::vector<std::int64_t> indices;
    std::uint64_t broken = 0;
    std::string first;
    for (std::int64_t i = 0; i < source->size(); ++i) {
      indices.push_back(i);
      const absl::Status status = source->Read(i).status();
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      if (broken++ == 0) first = std::string(status.message());
    }
    ASSERT_GE(broken, 1U);
    const auto fields = UsualFields(source->columns());
    const auto strict = MakeSourceDataset(source, fields, {}, 0);
    ASSERT_TRUE(strict.ok()) << strict.status();
    EXPECT_EQ((*strict)->Read(indices, 1).status().message(), first);
    const auto lenient = MakeSourceDataset(source, fields, {.skip = true, .most = broken}, 0);
    const absl::StatusOr<Batch> batch = (*lenient)->Read(indices, 1);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(static_cast<std::uint64_t>(batch->size()), indices.size() - broken);
    EXPECT_EQ((*lenient)->skipped(), broken);
    const auto limited = MakeSourceDataset(source, fields, {.skip = true, .most = broken - 1}, 0);
    EXPECT_FALSE((*limited)->Read(indices, 1).ok()) << "one more than the limit";
  }
  EXPECT_GE(broken_sets, 30);
}

// An index is a cache: one that is broken or old is made anew, and the samples are those of the file.
TEST_F(BrokenInputsTest, IndexesThatAreCorruptOrStaleAreMadeAnew) {
  Inputs inputs = Fresh();
  CsvOptions options;
  options.cache_directory = inputs.folder;
  const auto number = [&](std::int64_t row) -> std::int64_t {
    const Source source = OpenCsv(inputs.files, "set.csv", options);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return -1;
    const auto sample = (*source)->Read(row);
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? Integer((*sample)[0]) : -1;
  };
  inputs.files.Put("set.csv", "a\n10\n20\n30\n", 1);
  ASSERT_EQ(number(1), 20);
  const std::filesystem::directory_iterator found(inputs.folder);
  const std::string index = found->path().string();
  std::ifstream file(index, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_GT(bytes.size(), 60U);
  std::vector<std::string> damaged = {"", "garbage", bytes.substr(0, 20), bytes.substr(0, bytes.size() - 1),
                                      bytes + "x"};
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    damaged.push_back(bytes);
    damaged.back()[at] = static_cast<char>(bytes[at] ^ 1);
  }
  for (const std::string& content : damaged) {
    std::filesystem::remove(index);
    Write(index, content);
    EXPECT_EQ(number(1), 20);
  }
  inputs.files.Put("set.csv", "a\n1\n200000\n3\n", 1);  // another size
  EXPECT_EQ(number(1), 200000);
  inputs.files.Put("set.csv", "a\n1\n300000\n3\n", 1);  // other content of this size and time
  EXPECT_EQ(number(1), 300000);
  inputs.files.Put("set.csv", "a\n100000\n3\n3\n", 2);  // another time
  EXPECT_EQ(number(1), 3);
}

#ifdef DOWNPOUR_ARROW
// A store that refuses: what is wrong with the answer is told in one line, without a secret.
TEST_F(BrokenInputsTest, RefusalsOfAStoreAreOneLineEach) {
  for (const char* const variable : {"AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"}) unsetenv(variable);
  setenv("AWS_ACCESS_KEY_ID", "the-id", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "the-secret", 1);
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  const struct {
    int status;
    absl::StatusCode code;
    const char* found;
  } refusals[] = {{403, absl::StatusCode::kPermissionDenied, "ACCESS_DENIED during HeadObject"},
                  {404, absl::StatusCode::kNotFound, "no such file|nothing is there"},
                  {503, absl::StatusCode::kUnavailable, "HTTP status 503.* during HeadObject"},
                  {500, absl::StatusCode::kUnavailable, "HTTP status 500.* during HeadObject"}};
  for (const auto& refusal : refusals) {
    SCOPED_TRACE(refusal.status);
    kube::FakeApiServer server;
    setenv("AWS_ENDPOINT_URL_S3", server.Start().c_str(), 1);
    server.Inject("", "/", kube::FakeApiServer::Respond(refusal.status, ""), -1);
    const auto files = OpenRemoteFiles("s3://bucket/set", {.deadline = absl::Seconds(20),
                                                           .connect_timeout = absl::Seconds(2),
                                                           .stall_timeout = absl::Seconds(2),
                                                           .attempts = 1});
    ASSERT_TRUE(files.ok()) << files.status();
    const absl::Status opened = (*files)->Open("s3://bucket/set/a.csv").status();
    const absl::Status read = OpenCsv(**files, "s3://bucket/set/a.csv", {}).status();
    for (const absl::Status& status : {opened, read}) {
      EXPECT_EQ(status.code(), refusal.code) << status;
      ExpectOneLine(status);
      EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/set/a.csv"));
      EXPECT_THAT(std::string(status.message()), ::testing::ContainsRegex(refusal.found));
      EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("the-secret")));
    }
    EXPECT_GT(server.CountRequests(), 0U);
  }
}
#endif

}  // namespace
}  // namespace downpour::data
