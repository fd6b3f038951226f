#include "operator/api/dataset_relations.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/api/document.h"

namespace downpour::api {
namespace {

using Names = std::initializer_list<const char*>;

bool IsOneOf(std::string_view name, Names names) {
  return std::any_of(names.begin(), names.end(), [name](const char* one) { return name == one; });
}

std::string Join(Names names) { return absl::StrJoin(names, ", "); }

void CheckFormat(const DatasetSpec& dataset, bool evaluates, FieldErrors& errors) {
  const std::string& format = dataset.format;
  const auto only_of = [&](const char* field, bool given, Names formats) {
    if (!given || IsOneOf(format, formats)) return;
    errors.Add(absl::StrCat("spec.dataset.", field),
               absl::StrCat("is for the format", formats.size() > 1 ? "s " : " ", Join(formats)));
  };
  const bool generated = format == "Synthetic";
  if (dataset.path.empty() && !generated) {
    errors.Add("spec.dataset.path", absl::StrCat("is required for the format ", format));
  }
  if (!dataset.path.empty() && generated) errors.Add("spec.dataset.path", "is not for the format Synthetic");
  if (!dataset.synthetic.has_value() && generated) {
    errors.Add("spec.dataset.synthetic", "is required for the format Synthetic");
  }
  only_of("synthetic", dataset.synthetic.has_value(), {"Synthetic"});
  only_of("csv", dataset.csv.has_value(), {"CSV"});
  only_of("textLayout", !dataset.text_layout.empty(), {"Text"});
  only_of("classNames", !dataset.class_names.empty(), {"ImageFolder", "Text"});
  only_of("channels", dataset.channels.has_value(), {"ImageFolder", "TFRecord", "WebDataset"});
  only_of("columns", !dataset.columns.empty(), {"CSV", "Parquet", "SafeTensors", "TFRecord", "WebDataset"});
  if (dataset.shuffle_block.has_value() && !dataset.shuffle_blocks) {
    errors.Add("spec.dataset.shuffleBlock", "is for the shuffle Blocks");
  }
  if (dataset.channels == 2) errors.Add("spec.dataset.channels", "must be 1 or 3, got 2");

  const bool own_test_set = IsOneOf(format, {"IDX", "CIFAR10", "CIFAR100", "Synthetic"});
  const std::string not_for = absl::StrCat("is not for the format ", format, ", which has a test set");
  if (own_test_set && !dataset.test_path.empty()) errors.Add("spec.dataset.testPath", not_for);
  if (own_test_set && dataset.split.has_value()) errors.Add("spec.dataset.split", not_for);
  if (own_test_set) return;
  if (!dataset.test_path.empty() && dataset.split.has_value()) {
    errors.Add("spec.dataset.split", "is not for data with a testPath");
  }
  if (evaluates && dataset.test_path.empty() && !dataset.split.has_value()) {
    errors.Add("spec.dataset.testPath", "is required, or split; or set spec.training.evaluate to false");
  }
}

void CheckColumn(const std::string& format, const ColumnSpec& column, const std::string& path, FieldErrors& errors) {
  const auto refuse = [&](const char* field, bool given, const char* message) {
    if (given) errors.Add(JoinPath(path, field), message);
  };
  const bool csv = format == "CSV";
  const bool record = format == "TFRecord";
  if (!csv && !record) {
    refuse("type", !column.type.empty(), "is for the formats CSV, TFRecord");
  } else if (column.type.empty()) {
    errors.Add(JoinPath(path, "type"), absl::StrCat("is required for the format ", format));
  } else {
    const bool known = csv ? IsOneOf(column.type, {"u8", "i32", "i64", "fp32", "text", "categorical"})
                           : IsOneOf(column.type, {"i64", "fp32", "text", "bytes", "image"});
    refuse("type", !known,
           csv ? "must be one of u8, i32, i64, fp32, text, categorical for the format CSV"
               : "must be one of i64, fp32, text, bytes, image for the format TFRecord");
  }
  const bool array = record && IsOneOf(column.type, {"i64", "fp32", "bytes"});
  refuse("shape", !column.shape.empty() && !array, "is for the types i64, fp32, bytes of the format TFRecord");
  refuse("classNames", !column.class_names.empty() && !(csv && column.type == "categorical"),
         "is for the type categorical of the format CSV");
}

void CheckTransform(const TransformSpec& transform, const std::string& path, FieldErrors& errors) {
  const std::string& type = transform.type;
  const auto check = [&](const char* field, bool given, Names types, bool required = true) {
    const bool used = IsOneOf(type, types);
    if (given && !used) {
      errors.Add(JoinPath(path, field), absl::StrCat("is for the type", types.size() > 1 ? "s " : " ", Join(types)));
    }
    if (!given && used && required) {
      errors.Add(JoinPath(path, field), absl::StrCat("is required for the type ", type));
    }
  };
  check("height", transform.height.has_value(), {"Resize", "CenterCrop", "RandomCrop"});
  check("width", transform.width.has_value(), {"Resize", "CenterCrop", "RandomCrop"});
  check("padding", transform.padding.has_value(), {"RandomCrop"}, false);
  check("probability", transform.probability.has_value(), {"RandomFlip"}, false);
  check("brightness", transform.brightness.has_value(), {"ColorJitter"}, false);
  check("contrast", transform.contrast.has_value(), {"ColorJitter"}, false);
  check("saturation", transform.saturation.has_value(), {"ColorJitter"}, false);
  check("mean", !transform.mean.empty(), {"Normalize"});
  check("std", !transform.std.empty(), {"Normalize"});
  check("vocabulary", transform.vocabulary.has_value(), {"Tokenize"});
  check("maxLength", transform.max_length.has_value(), {"Tokenize"}, false);
  check("classes", transform.classes.has_value(), {"OneHot"}, false);
  check("dtype", !transform.dtype.empty(), {"Cast"});
  if (type == "Normalize" && transform.mean.size() != transform.std.size() && !transform.mean.empty() &&
      !transform.std.empty()) {
    errors.Add(JoinPath(path, "std"), absl::StrCat("must have as many numbers as mean, ", transform.mean.size(),
                                                   ", got ", transform.std.size()));
  }
}

}  // namespace

void CheckDataset(const DatasetSpec& dataset, bool evaluates, FieldErrors& errors) {
  CheckFormat(dataset, evaluates, errors);
  for (std::size_t i = 0; i < dataset.columns.size(); ++i) {
    CheckColumn(dataset.format, dataset.columns[i], JoinPath("spec.dataset.columns", i), errors);
  }
  for (std::size_t i = 0; i < dataset.fields.size(); ++i) {
    const DatasetFieldSpec& field = dataset.fields[i];
    const std::string path = JoinPath("spec.dataset.fields", i);
    if (field.column.empty() == field.columns.empty()) errors.Add(path, "must have exactly one of column and columns");
    if (!field.columns.empty() && field.name.empty()) {
      errors.Add(JoinPath(path, "name"), "is required for a field of several columns");
    }
    if (!field.columns.empty() && field.classes.has_value()) {
      errors.Add(JoinPath(path, "classes"), "is not for a field of several columns");
    }
  }
  for (std::size_t i = 0; i < dataset.transforms.size(); ++i) {
    CheckTransform(dataset.transforms[i], JoinPath("spec.dataset.transforms", i), errors);
  }
}

}  // namespace downpour::api
