#include "trainer/data/open_dataset.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/data/dataset_source.h"
#include "trainer/data/files/cached_files.h"
#include "trainer/data/files/retrying_files.h"
#include "trainer/data/files/shown_path.h"
#include "trainer/data/formats/cifar.h"
#include "trainer/data/formats/csv_source.h"
#include "trainer/data/formats/image_folder.h"
#include "trainer/data/formats/npy_source.h"
#include "trainer/data/formats/safetensors_source.h"
#include "trainer/data/formats/shards.h"
#include "trainer/data/formats/text_source.h"
#include "trainer/data/formats/tf_record.h"
#include "trainer/data/formats/web_dataset.h"
#include "trainer/data/idx_dataset.h"
#include "trainer/data/source_dataset.h"
#include "trainer/data/split.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/vocabulary.h"

namespace downpour::data {
namespace {

constexpr std::array kFormats = {"IDX", "CIFAR10",     "CIFAR100", "ImageFolder", "CSV",        "Text",
                                 "NPY", "SafeTensors", "Parquet",  "TFRecord",    "WebDataset", "Synthetic"};

// Says itself which samples are for testing.
bool HasTestSet(const std::string& format) {
  return format == "IDX" || format == "Synthetic" || absl::StartsWith(format, "CIFAR");
}

// Given as it is stored, without a detour.
bool IsPlain(const DatasetSpec& spec) {
  return (spec.format == "IDX" || spec.format == "Synthetic") && spec.fields.empty() && spec.transforms.empty();
}

absl::Status Refuse(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("spec.dataset.", field, ": ", message));
}

// Files; where they are far away they are asked again, and a cache is around them.
class Place {
 public:
  static absl::StatusOr<std::shared_ptr<const Place>> Open(const std::string& path, const DatasetSpec& spec,
                                                           Split split, const ArrowReaders& arrow) {
    auto place = std::make_shared<Place>();
    const bool uri = path.find("://") != std::string::npos;
    if (!uri && (arrow.is_remote == nullptr || !arrow.is_remote(path))) return place;
    if (arrow.open_files == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat(ShownPath(path), ": remote data need Apache Arrow, which this program has not"));
    }
    absl::StatusOr<std::unique_ptr<RetryingFiles>> remote = RetryingFiles::Open(
        path, [&] { return arrow.open_files(path); }, spec.tell);
    if (!remote.ok()) return remote.status();
    place->remote_ = *std::move(remote);
    if (spec.cache_directory.empty()) return place;
    CacheOptions options;
    options.directory = absl::StrCat(spec.blocks_directory.empty() ? spec.cache_directory : spec.blocks_directory,
                                     split == Split::kTrain ? "/blocks" : "/test-blocks");
    options.capacity_bytes = spec.cache_bytes;
    absl::StatusOr<std::unique_ptr<CachedFiles>> cached = CachedFiles::Create(*place->remote_, std::move(options));
    if (!cached.ok()) return cached.status();
    place->cached_ = *std::move(cached);
    return place;
  }

  const Files& files() const {
    if (cached_ != nullptr) return *cached_;
    return remote_ != nullptr ? *remote_ : LocalFiles();
  }

 private:
  std::unique_ptr<RetryingFiles> remote_;
  std::unique_ptr<CachedFiles> cached_;  // ends before what it reads from
};

// A source, and where it reads from.
class PlacedSource final : public SampleSource {
 public:
  PlacedSource(std::shared_ptr<const Place> place, std::unique_ptr<SampleSource> source)
      : place_(std::move(place)), source_(std::move(source)) {}
  std::int64_t size() const override { return source_->size(); }
  const std::vector<Column>& columns() const override { return source_->columns(); }
  absl::StatusOr<Sample> Read(std::int64_t index) const override { return source_->Read(index); }
  const Files& files() const { return place_->files(); }

 private:
  const std::shared_ptr<const Place> place_;
  const std::unique_ptr<SampleSource> source_;
};

absl::StatusOr<CsvOptions> OptionsOfCsv(const DatasetSpec& spec) {
  static const auto* const types = new std::map<std::string, CsvType>{
      {"u8", CsvType::kU8},    {"i32", CsvType::kI32},   {"i64", CsvType::kI64},
      {"fp32", CsvType::kF32}, {"text", CsvType::kText}, {"categorical", CsvType::kCategorical}};
  CsvOptions options;
  options.header = spec.header;
  if (spec.delimiter.size() != 1) {
    return Refuse("delimiter", absl::StrCat("expected one character, got \"", spec.delimiter, "\""));
  }
  options.delimiter = spec.delimiter.front();
  options.cache_directory = spec.cache_directory;
  for (const ColumnSpec& column : spec.columns) {
    const auto type = types->find(column.type);
    if (type == types->end()) {
      return Refuse("columns", absl::StrCat("column \"", column.name, "\": CSV has no type \"", column.type, "\""));
    }
    options.columns[column.name] = {type->second, column.class_names};
  }
  return options;
}

absl::StatusOr<TfRecordOptions> OptionsOfTfRecord(const DatasetSpec& spec) {
  using Kind = TfRecordFeature::Kind;
  static const auto* const kinds = new std::map<std::string, Kind>{{"i64", Kind::kIntegers},
                                                                   {"fp32", Kind::kFloats},
                                                                   {"bytes", Kind::kBytes},
                                                                   {"text", Kind::kText},
                                                                   {"image", Kind::kImage}};
  TfRecordOptions options;
  options.image.channels = spec.channels;
  options.cache_directory = spec.cache_directory;
  for (const ColumnSpec& column : spec.columns) {
    const auto kind = kinds->find(column.type);
    if (kind == kinds->end()) {
      return Refuse("columns",
                    absl::StrCat("column \"", column.name, "\": TFRecord has no type \"", column.type, "\""));
    }
    options.features.push_back({column.name, kind->second, column.shape});
  }
  return options;
}

std::vector<std::string> ColumnNames(const DatasetSpec& spec) {
  std::vector<std::string> names;
  for (const ColumnSpec& column : spec.columns) names.push_back(column.name);
  return names;
}

// `spec` has the class names of the training set where `split` is another.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenFormat(const DatasetSpec& spec, const std::string& path, Split split,
                                                         const Files& files, const ArrowReaders& arrow) {
  const std::string& format = spec.format;
  if (format == "CIFAR10") return OpenCifar10(files, path, {.split = split});
  if (format == "CIFAR100") return OpenCifar100(files, path, {.split = split});
  if (format == "ImageFolder") {
    ImageFolderOptions options;
    options.image.channels = spec.channels;
    options.class_names = spec.class_names;
    return OpenImageFolder(files, path, options);
  }
  if (format == "CSV") {
    const absl::StatusOr<CsvOptions> options = OptionsOfCsv(spec);
    if (!options.ok()) return options.status();
    return OpenCsv(files, path, *options);
  }
  if (format == "Text") {
    TextOptions options;
    options.layout = spec.layout == "Folders"         ? TextLayout::kFolders
                     : spec.layout == "LabelledLines" ? TextLayout::kLabelledLines
                                                      : TextLayout::kLines;
    options.class_names = spec.class_names;
    options.cache_directory = spec.cache_directory;
    return OpenText(files, path, options);
  }
  if (format == "NPY") return OpenNpy(files, path, {});
  if (format == "SafeTensors") return OpenSafetensors(files, path, {ColumnNames(spec)});
  if (format == "Parquet") {
    if (arrow.open_parquet == nullptr) {
      return absl::UnimplementedError("Parquet needs Apache Arrow, which this program has not");
    }
    return arrow.open_parquet(files, path, ColumnNames(spec));
  }
  if (format == "TFRecord") {
    const absl::StatusOr<TfRecordOptions> options = OptionsOfTfRecord(spec);
    if (!options.ok()) return options.status();
    return OpenTfRecord(files, path, *options);
  }
  if (format == "WebDataset") {
    WebDatasetOptions options;
    options.image.channels = spec.channels;
    options.extensions = ColumnNames(spec);
    options.cache_directory = spec.cache_directory;
    return OpenWebDataset(files, path, options);
  }
  return absl::UnimplementedError(
      absl::StrCat("data set format \"", format, "\" is not supported; known: ", absl::StrJoin(kFormats, ", ")));
}

absl::StatusOr<std::shared_ptr<const PlacedSource>> OpenSource(const DatasetSpec& spec, const std::string& path,
                                                               Split split, const ArrowReaders& arrow) {
  if (spec.format == "IDX" || spec.format == "Synthetic") {
    absl::StatusOr<std::unique_ptr<Dataset>> dataset =
        spec.format == "IDX" ? OpenIdxDataset(path, split) : MakeSyntheticDataset(spec.synthetic, split);
    if (!dataset.ok()) return dataset.status();
    return std::make_shared<PlacedSource>(std::make_shared<const Place>(), SourceOf(*std::move(dataset)));
  }
  absl::StatusOr<std::shared_ptr<const Place>> place = Place::Open(path, spec, split, arrow);
  if (!place.ok()) return place.status();
  absl::StatusOr<std::unique_ptr<SampleSource>> source =
      OpenFormat(spec, ShownPath(path), split, (*place)->files(), arrow);
  if (!source.ok()) return source.status();
  return std::make_shared<PlacedSource>(*std::move(place), *std::move(source));
}

// The training set's, for a test set that may lack some of them.
void KeepClassNames(const SampleSource& train, DatasetSpec* spec) {
  for (const Column& column : train.columns()) {
    if (column.class_names.empty()) continue;
    if (spec->format == "CSV") {
      const auto known = std::find_if(spec->columns.begin(), spec->columns.end(),
                                      [&column](const ColumnSpec& one) { return one.name == column.name; });
      if (known != spec->columns.end()) known->class_names = column.class_names;
    } else if (column.name == "label") {
      spec->class_names = column.class_names;
    }
  }
}

// What decides the texts of a column, but for the files.
std::string SettingsOf(const DatasetSpec& spec, const std::vector<Column>& columns) {
  std::string text = absl::StrFormat("%s %d %s %s, held out %.17g by %d", spec.format, spec.header, spec.delimiter,
                                     spec.layout, spec.validation, spec.split_seed);
  for (const Column& column : columns) {  // a broken value in one makes a sample a broken one
    absl::StrAppend(&text, ", ", column.name, " ", TypeText(column), " ", absl::StrJoin(column.class_names, " "));
  }
  return text;
}

// Of the training set, each made once.
class Vocabularies {
 public:
  // `all`: of which `train` is a part, or the whole.
  Vocabularies(const DatasetSpec& spec, std::shared_ptr<const PlacedSource> all,
               std::shared_ptr<const SampleSource> train)
      : spec_(spec), all_(std::move(all)), train_(std::move(train)) {}

  absl::StatusOr<std::shared_ptr<const Vocabulary>> Of(const std::string& column, std::int64_t words) {
    std::shared_ptr<const Vocabulary>& made = made_[{column, words}];
    if (made != nullptr) return made;
    const absl::StatusOr<std::vector<FileInfo>> infos = List();
    if (!infos.ok()) return infos.status();
    absl::StatusOr<Vocabulary> vocabulary = OpenOrBuildVocabulary(
        all_->files(), *infos, absl::StrCat(words, " words of ", column, ", ", SettingsOf(spec_, train_->columns())),
        spec_.cache_directory, [&] { return Build(column, words); });
    if (!vocabulary.ok()) return vocabulary.status();
    made = std::make_shared<const Vocabulary>(*std::move(vocabulary));
    return made;
  }

 private:
  absl::StatusOr<Vocabulary> Build(const std::string& column, std::int64_t words) const {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(train_->size()));
    std::iota(indices.begin(), indices.end(), 0);
    return Vocabulary::Build(*train_, column, indices, static_cast<std::size_t>(words), spec_.most_bad_samples);
  }

  absl::StatusOr<std::vector<FileInfo>> List() const {
    const absl::StatusOr<std::vector<std::string>> paths = ExpandRange(ShownPath(spec_.directory));
    if (!paths.ok()) return paths.status();
    std::vector<FileInfo> infos;
    for (const std::string& path : *paths) {
      const absl::StatusOr<std::vector<FileInfo>> found = all_->files().List(path);
      if (!found.ok()) return found.status();
      infos.insert(infos.end(), found->begin(), found->end());
    }
    return infos;
  }

  const DatasetSpec spec_;
  const std::shared_ptr<const PlacedSource> all_;
  const std::shared_ptr<const SampleSource> train_;
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<const Vocabulary>> made_;
};

absl::StatusOr<ElementType> ElementTypeOf(const std::string& name) {
  for (const ElementType type : {ElementType::kU8, ElementType::kI32, ElementType::kI64, ElementType::kF32}) {
    if (name == Name(type)) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat("expected u8, i32, i64 or fp32, got \"", name, "\""));
}

absl::StatusOr<Transform> Bind(const TransformSpec& spec, const Column& column, Vocabularies* vocabularies) {
  if (spec.type == "Resize") return Resize(column, spec.height, spec.width);
  if (spec.type == "CenterCrop") return CenterCrop(column, spec.height, spec.width);
  if (spec.type == "RandomCrop") return RandomCrop(column, spec.height, spec.width, spec.padding);
  if (spec.type == "RandomFlip") return RandomFlip(column, spec.probability);
  if (spec.type == "ColorJitter") return ColorJitter(column, spec.brightness, spec.contrast, spec.saturation);
  if (spec.type == "Normalize") {
    return Normalise(column, {spec.mean.begin(), spec.mean.end()}, {spec.deviation.begin(), spec.deviation.end()});
  }
  if (spec.type == "OneHot") return OneHot(column, spec.classes);
  if (spec.type == "Cast") {
    const absl::StatusOr<ElementType> type = ElementTypeOf(spec.element_type);
    if (!type.ok()) return type.status();
    return Cast(column, *type);
  }
  if (spec.type == "Tokenize") {
    if (!column.text) return Tokenise(column, nullptr, 0);  // which says what it is for
    absl::StatusOr<std::shared_ptr<const Vocabulary>> vocabulary = vocabularies->Of(column.name, spec.words);
    if (!vocabulary.ok()) return vocabulary.status();
    return Tokenise(column, *std::move(vocabulary), spec.max_length);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no transform \"", spec.type, "\""));
}

// Whether a transform that names no field is for such a column.
bool IsMeantFor(const TransformSpec& spec, const Column& column, bool target) {
  if (spec.type == "Tokenize") return column.text;
  if (column.text) return false;
  const bool number = column.shape.empty() && column.type != ElementType::kF32;
  if (spec.type == "OneHot") return number && (column.classes > 0 || (target && spec.classes > 0));
  if (spec.type == "Cast") return !target;
  const bool image = column.type == ElementType::kU8 && column.shape.size() == 3;
  if (spec.type == "Normalize") return image || (!target && column.type == ElementType::kF32);
  return image;
}

absl::StatusOr<std::vector<SourceField>> FieldsOf(const DatasetSpec& spec, const std::vector<Column>& columns,
                                                  const std::shared_ptr<Vocabularies>& vocabularies) {
  std::vector<SourceField> fields;
  for (const FieldSpec& field : spec.fields) {
    fields.push_back({.column = field.column, .name = field.name, .target = field.target, .columns = field.columns});
    fields.back().steps.emplace_back();
    if (field.classes > 0) {
      fields.back().steps.back() = [classes = field.classes](const Column& column) {
        return LimitClasses(column, classes);
      };
    }
  }
  if (fields.empty()) fields = UsualFields(columns);
  for (std::size_t i = 0; i < spec.transforms.size(); ++i) {
    const TransformSpec& transform = spec.transforms[i];
    const std::string path = absl::StrCat("spec.dataset.transforms[", i, "]");
    bool used = false;
    for (SourceField& field : fields) {
      const std::string& name = field.name.empty() ? field.column : field.name;
      field.steps.emplace_back();
      if (!transform.field.empty() && transform.field != name) continue;
      used = true;
      field.steps.back() = [transform, path, target = field.target,
                            vocabularies](const Column& column) -> absl::StatusOr<Transform> {
        if (transform.field.empty() && !IsMeantFor(transform, column, target)) return Transform{column, nullptr};
        absl::StatusOr<Transform> bound = Bind(transform, column, vocabularies.get());
        if (bound.ok()) return bound;
        return absl::Status(bound.status().code(), absl::StrCat(path, ": ", bound.status().message()));
      };
    }
    if (!used) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".field: there is no field \"", transform.field, "\""));
    }
  }
  return fields;
}

}  // namespace

absl::StatusOr<Datasets> OpenDatasets(const DatasetSpec& given, bool with_test, const ArrowReaders& arrow) {
  Datasets datasets;
  if (IsPlain(given)) {
    for (const Split split : {Split::kTrain, Split::kTest}) {
      if (split == Split::kTest && !with_test) continue;
      absl::StatusOr<std::unique_ptr<Dataset>> dataset =
          given.format == "IDX" ? OpenIdxDataset(given.directory, split) : MakeSyntheticDataset(given.synthetic, split);
      if (!dataset.ok()) return dataset.status();
      (split == Split::kTrain ? datasets.train : datasets.test) = *std::move(dataset);
    }
    return datasets;
  }

  DatasetSpec spec = given;
  const absl::StatusOr<std::shared_ptr<const PlacedSource>> all =
      OpenSource(spec, spec.directory, Split::kTrain, arrow);
  if (!all.ok()) return all.status();
  std::shared_ptr<const SampleSource> train = *all;
  std::shared_ptr<const SampleSource> test;
  const bool own_test_set = HasTestSet(spec.format) || !spec.test_path.empty();
  if (spec.validation > 0) {
    if (own_test_set) return Refuse("split", "is for data without a test set");
    train = MakePart(*all, spec.validation, spec.split_seed, false);
    if (with_test) test = MakePart(*all, spec.validation, spec.split_seed, true);
  } else if (own_test_set && with_test) {
    KeepClassNames(*train, &spec);
    const std::string& path = HasTestSet(spec.format) ? spec.directory : spec.test_path;
    const absl::StatusOr<std::shared_ptr<const PlacedSource>> opened = OpenSource(spec, path, Split::kTest, arrow);
    if (!opened.ok()) return opened.status();
    test = *opened;
    if (test->columns() != train->columns()) {
      return absl::DataLossError(absl::StrCat(ShownPath(path), ": has other columns than ", ShownPath(spec.directory)));
    }
  } else if (with_test) {
    return Refuse("testPath", "there is no test set: expected this, split, or training.evaluate: false");
  }
  const absl::StatusOr<std::vector<SourceField>> fields =
      FieldsOf(spec, train->columns(), std::make_shared<Vocabularies>(spec, *all, train));
  if (!fields.ok()) return fields.status();
  for (const auto& source : {train, test}) {
    if (source == nullptr) continue;
    const bool trains = source == train;
    if (source->size() == 0) {
      return absl::DataLossError(absl::StrCat(ShownPath(spec.directory), ": no sample is left for the ",
                                              trains ? "training" : "test", " set"));
    }
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = MakeSourceDataset(
        source, *fields, {.skip = spec.skip_bad_samples, .most = spec.most_bad_samples}, spec.threads);
    if (!dataset.ok()) return dataset.status();
    (trains ? datasets.train : datasets.test) = *std::move(dataset);
  }
  return datasets;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split, const ArrowReaders& arrow) {
  if (IsPlain(spec)) {
    return spec.format == "IDX" ? OpenIdxDataset(spec.directory, split) : MakeSyntheticDataset(spec.synthetic, split);
  }
  absl::StatusOr<Datasets> datasets = OpenDatasets(spec, split == Split::kTest, arrow);
  if (!datasets.ok()) return datasets.status();
  return split == Split::kTest ? std::move(datasets->test) : std::move(datasets->train);
}

absl::StatusOr<SampleFields> ReadFields(const DatasetSpec& spec, const ArrowReaders& arrow) {
  if (IsPlain(spec)) return spec.format == "IDX" ? ReadIdxFields(spec.directory) : SyntheticFields(spec.synthetic);
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain, arrow);
  if (!dataset.ok()) return dataset.status();
  return (*dataset)->fields();
}

}  // namespace downpour::data
