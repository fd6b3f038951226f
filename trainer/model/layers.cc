#include "trainer/model/layers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace downpour::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 31;  // of a field, and of a value in elements
constexpr int kMaxDepth = 32;

// Saturates far above every limit, so that a product of any sizes can be compared with one.
std::int64_t Product(std::initializer_list<std::int64_t> factors) {
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor != 0 && product > kFar / factor) return kFar;
    product *= factor;
  }
  return product;
}

std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product = Product({product, std::max<std::int64_t>(1, extent)});
  return product;
}

// What a field of a layer may hold.
enum class FieldKind { kInteger, kPadding, kNumber, kFlag, kOutput, kShape, kLayers };

struct FieldRule {
  const char* name;
  FieldKind kind;
  double least = 0;
  double most = 0;
  double standard = 0;
  bool required = false;
};

constexpr FieldRule Required(const char* name) {
  return {name, FieldKind::kInteger, 1, static_cast<double>(kMaxExtent), 0, true};
}
constexpr FieldRule Optional(const char* name, double standard, double least = 1) {
  return {name, FieldKind::kInteger, least, static_cast<double>(kMaxExtent), standard};
}
constexpr FieldRule kPaddingField{"padding", FieldKind::kPadding, 0, static_cast<double>(kMaxExtent), 0};
constexpr FieldRule kLayersField{"layers", FieldKind::kLayers, 0, 0, 0, true};

struct LayerType {
  const char* name;
  std::vector<FieldRule> fields;
  const char* needs;  // in words, for the refusal
  // Sets output and parameters from the input and the fields. False: the layer cannot take this input.
  std::function<bool(Layer&)> infer;
};

// (extent + 2 padding - kernel) / stride + 1; 0 or less: nothing is left.
std::int64_t Slid(std::int64_t extent, const Layer& layer, const char* kernel) {
  const std::int64_t padding = layer.integers.contains("padding") ? layer.integer("padding") : 0;
  if (padding == kSame) return extent;
  const std::int64_t room = extent + 2 * padding - layer.integer(kernel);
  return room < 0 ? 0 : room / layer.integer("stride") + 1;
}

bool Unchanged(Layer& layer) {
  layer.output = layer.input;
  return !layer.input.integers;
}

bool Positive(const std::vector<std::int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent > 0; });
}

bool InferConvolution(Layer& layer) {
  const std::vector<std::int64_t>& in = layer.input.shape;
  if (layer.input.integers || in.size() < 2 || !Positive(in)) return false;
  if (layer.integer("padding") == kSame && layer.integer("stride") != 1) return false;
  const std::int64_t filters = layer.integer("filters"), kernel = layer.integer("kernel");
  const std::int64_t area = in.size() == 3 ? Product({kernel, kernel}) : kernel;
  layer.output.shape = {filters};
  for (std::size_t i = 1; i < in.size(); ++i) layer.output.shape.push_back(Slid(in[i], layer, "kernel"));
  const bool bias = !layer.integers.contains("bias") || layer.integer("bias") != 0;
  layer.parameters = Product({filters, Product({in[0], area}) + (bias ? 1 : 0)});
  return Positive(layer.output.shape);
}

bool InferTransposed(Layer& layer) {
  if (layer.input.integers || !layer.input.image()) return false;
  const std::vector<std::int64_t>& in = layer.input.shape;
  const std::int64_t filters = layer.integer("filters"), kernel = layer.integer("kernel");
  const auto out = [&](std::int64_t extent) { return Product({extent - 1, layer.integer("stride")}) + kernel; };
  layer.output.shape = {filters, out(in[1]), out(in[2])};
  layer.parameters = Product({in[0], filters, kernel, kernel}) + filters;
  return true;
}

bool InferLocallyConnected(Layer& layer) {
  if (layer.input.integers || !layer.input.image()) return false;
  const std::vector<std::int64_t>& in = layer.input.shape;
  const std::int64_t filters = layer.integer("filters"), kernel = layer.integer("kernel");
  const std::int64_t height = Slid(in[1], layer, "kernel"), width = Slid(in[2], layer, "kernel");
  layer.output.shape = {filters, height, width};
  if (!Positive(layer.output.shape)) return false;
  layer.parameters = Product({height, width, filters, Product({in[0], kernel, kernel}) + 1});
  return true;
}

bool InferPooling(Layer& layer) {
  const std::vector<std::int64_t>& in = layer.input.shape;
  if (layer.input.integers || !Positive(in)) return false;
  if (layer.integer("stride") == 0) layer.integers["stride"] = layer.integer("size");
  // LibTorch's rule: a window must overlap what is there.
  if (layer.integers.contains("padding") && layer.integer("padding") * 2 > layer.integer("size")) return false;
  layer.output.shape = {in[0]};
  for (std::size_t i = 1; i < in.size(); ++i) layer.output.shape.push_back(Slid(in[i], layer, "size"));
  return Positive(layer.output.shape);
}

bool InferRecurrent(Layer& layer, std::int64_t gates) {
  if (layer.input.integers || !layer.input.sequence()) return false;
  const std::int64_t in = layer.input.shape[1], units = layer.integer("units");
  const std::int64_t directions = layer.integer("bidirectional") != 0 ? 2 : 1;
  layer.parameters = Product({directions, gates, units, in + units + 2});
  layer.output.shape = {Product({directions, units})};
  if (layer.integer("output") != 0) layer.output.shape.insert(layer.output.shape.begin(), layer.input.shape[0]);
  return true;
}

std::vector<LayerType> MakeTypes() {
  const auto image = [](bool (*infer)(Layer&)) {
    return [infer](Layer& layer) { return layer.input.image() && infer(layer); };
  };
  const auto rows = [](bool (*infer)(Layer&)) {
    return [infer](Layer& layer) { return layer.input.sequence() && infer(layer); };
  };
  const char* an_image = "[channels, height, width], no smaller than the kernel with its padding";
  const char* a_signal = "[channels, length], no shorter than the kernel with its padding";
  const char* a_sequence = "a sequence [length, features]";
  const char* floats = "floats";
  const FieldRule stride = Optional("stride", 1);
  const FieldRule pool_stride = {"stride", FieldKind::kInteger, 1, static_cast<double>(kMaxExtent), 0};
  const FieldRule pool_padding = Optional("padding", 0, 0);
  const FieldRule bidirectional{"bidirectional", FieldKind::kFlag};
  const FieldRule output{"output", FieldKind::kOutput};
  const FieldRule epsilon{"epsilon", FieldKind::kNumber, 1e-12, 1, 1e-5};
  return {
      {"dense",
       {Required("units")},
       "at least one dimension, and none ragged but the first of a sequence",
       [](Layer& layer) {
         if (layer.input.integers || layer.input.shape.empty() || layer.input.shape.back() == data::kRagged)
           return false;
         const std::int64_t in = layer.input.shape.back(), units = layer.integer("units");
         layer.output.shape = layer.input.shape;
         layer.output.shape.back() = units;
         layer.parameters = Product({units, in + 1});
         return true;
       }},
      {"conv1d", {Required("filters"), Required("kernel"), stride, kPaddingField}, a_signal, rows(InferConvolution)},
      {"conv2d",
       {Required("filters"), Required("kernel"), stride, kPaddingField, {"bias", FieldKind::kFlag, 0, 1, 1}},
       an_image,
       image(InferConvolution)},
      {"convTranspose2d",
       {Required("filters"), Required("kernel"), stride},
       "[channels, height, width]",
       InferTransposed},
      {"locallyConnected2d", {Required("filters"), Required("kernel"), stride}, an_image, InferLocallyConnected},
      {"maxPool1d", {Required("size"), pool_stride}, a_signal, rows(InferPooling)},
      {"maxPool2d", {Required("size"), pool_stride, pool_padding}, an_image, image(InferPooling)},
      {"avgPool2d", {Required("size"), pool_stride, pool_padding}, an_image, image(InferPooling)},
      {"l2Pool2d", {Required("size"), pool_stride, pool_padding}, an_image, image(InferPooling)},
      {"globalAvgPool2d",
       {},
       "[channels, height, width]",
       [](Layer& layer) {
         layer.output.shape = {layer.input.shape.empty() ? 0 : layer.input.shape[0]};
         return layer.input.image() && !layer.input.integers;
       }},
      {"localContrastNorm",
       {Optional("kernel", 5)},
       "[channels, height, width] and an odd kernel",
       [](Layer& layer) { return layer.input.image() && layer.integer("kernel") % 2 == 1 && Unchanged(layer); }},
      {"upsample2d",
       {Required("scale")},
       "[channels, height, width]",
       [](Layer& layer) {
         if (!layer.input.image() || !Unchanged(layer)) return false;
         for (const std::size_t i : {1, 2})
           layer.output.shape[i] = Product({layer.output.shape[i], layer.integer("scale")});
         return true;
       }},
      {"batchNorm",
       {{"momentum", FieldKind::kNumber, 1e-6, 1, 0.1}, epsilon},
       "[channels, height, width] or a vector",
       [](Layer& layer) {
         if (!layer.input.image() && (layer.input.shape.size() != 1 || !Positive(layer.input.shape))) return false;
         layer.parameters = Product({2, layer.input.shape[0]});
         return Unchanged(layer);
       }},
      {"layerNorm",
       {epsilon},
       "at least one dimension that is not ragged",
       [](Layer& layer) {
         if (layer.input.shape.empty() || layer.input.shape.back() == data::kRagged) return false;
         layer.parameters = Product({2, layer.input.shape.back()});
         return Unchanged(layer);
       }},
      {"dropout", {{"rate", FieldKind::kNumber, 0, 0.999, 0, true}}, floats, Unchanged},
      {"flatten",
       {},
       "floats without a ragged dimension",
       [](Layer& layer) {
         if (layer.input.integers || !Positive(layer.input.shape)) return false;
         layer.output.shape = {Elements(layer.input.shape)};
         return true;
       }},
      {"reshape",
       {{"shape", FieldKind::kShape, 0, 0, 0, true}},
       "as many values as the shape has, none ragged",
       [](Layer& layer) {
         return !layer.input.integers && Positive(layer.input.shape) &&
                Elements(layer.input.shape) == Elements(layer.output.shape);
       }},
      {"relu", {}, floats, Unchanged},
      {"leakyRelu", {{"slope", FieldKind::kNumber, 0, 1, 0.01}}, floats, Unchanged},
      {"elu", {{"alpha", FieldKind::kNumber, 0, 100, 1}}, floats, Unchanged},
      {"tanh", {}, floats, Unchanged},
      {"sigmoid", {}, floats, Unchanged},
      {"gelu", {}, floats, Unchanged},
      {"embedding",
       {Required("size"), Optional("vocabulary", 0)},
       "a list of integers [length], all of them below its vocabulary",
       [](Layer& layer) {
         if (!layer.input.integers || layer.input.shape.size() != 1) return false;
         if (layer.integer("vocabulary") == 0) layer.integers["vocabulary"] = layer.input.classes;
         const std::int64_t vocabulary = layer.integer("vocabulary");
         if (vocabulary == 0 || vocabulary < layer.input.classes) return false;
         layer.output.shape = {layer.input.shape[0], layer.integer("size")};
         layer.parameters = Product({vocabulary, layer.integer("size")});
         return true;
       }},
      {"positionalEncoding", {}, a_sequence, rows(Unchanged)},
      {"lstm",
       {Required("units"), bidirectional, output},
       a_sequence,
       [](Layer& layer) { return InferRecurrent(layer, 4); }},
      {"gru",
       {Required("units"), bidirectional, output},
       a_sequence,
       [](Layer& layer) { return InferRecurrent(layer, 3); }},
      {"attention",
       {Required("heads"), {"dropout", FieldKind::kNumber, 0, 0.999, 0}},
       "a sequence [length, features], features a multiple of heads",
       [](Layer& layer) {
         if (!layer.input.sequence() || layer.input.shape[1] % layer.integer("heads") != 0) return false;
         const std::int64_t n = layer.input.shape[1];
         layer.parameters = Product({4, n, n + 1});
         return Unchanged(layer);
       }},
      {"sequenceMean",
       {},
       a_sequence,
       [](Layer& layer) {
         if (layer.input.integers || !layer.input.sequence()) return false;
         layer.output.shape = {layer.input.shape[1]};
         return true;
       }},
      {"residual",
       {kLayersField, {"shortcut", FieldKind::kLayers}},
       "layers that end in the shape of the shortcut",
       [](Layer& layer) {
         const Value& around = layer.shortcut.empty() ? layer.input : layer.shortcut.back().output;
         layer.output = layer.layers.back().output;
         return !layer.output.integers && !around.integers && layer.output.shape == around.shape;
       }},
      {"concatenate",
       {kLayersField},
       "layers that end in the shape of what comes in, but for the first dimension, which is not ragged",
       [](Layer& layer) {
         const std::vector<std::int64_t>& in = layer.input.shape;
         layer.output = layer.layers.back().output;
         std::vector<std::int64_t>& out = layer.output.shape;
         if (in.empty() || layer.input.integers || layer.output.integers || in.size() != out.size() || in[0] < 1 ||
             out[0] < 1 || !std::equal(in.begin() + 1, in.end(), out.begin() + 1)) {
           return false;
         }
         out[0] += in[0];
         return true;
       }},
  };
}

const std::vector<LayerType>& Types() {
  static const auto* const types = new std::vector<LayerType>(MakeTypes());
  return *types;
}

std::string Brief(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

class Planner {
 public:
  absl::StatusOr<LayerPlan> Plan(const Json& list, const Value& input, const std::string& path) {
    if (absl::Status read = CollectNames(list, path, 0); !read.ok()) return read;
    LayerPlan plan;
    absl::StatusOr<std::vector<Layer>> layers = List(list, input, path);
    if (!layers.ok()) return layers.status();
    plan.layers = *std::move(layers);
    plan.output = plan.layers.back().output;
    for (const Layer& layer : plan.layers) plan.parameters += layer.parameters;
    return plan;
  }

 private:
  static absl::Status Refuse(const std::string& path, const std::string& message) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
  }

  // The names that the manifest gives, and the form of the list as far as they need it. Depth is bounded before
  // anything recurses with it.
  absl::Status CollectNames(const Json& list, const std::string& path, int depth) {
    if (depth > kMaxDepth) return Refuse(path, absl::StrCat("more than ", kMaxDepth, " lists inside each other"));
    if (!list.is_array() || list.empty()) {
      return Refuse(path, absl::StrCat("expected a list of at least one layer, got ", Brief(list)));
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string at = absl::StrCat(path, "[", i, "]");
      const Json& entry = list[i];
      if (!entry.is_object() || !entry.contains("type") || !entry["type"].is_string()) {
        return Refuse(at, absl::StrCat("expected a map with a type, such as {type: relu}, got ", Brief(entry)));
      }
      if (entry.contains("name")) {
        const Json& name = entry["name"];
        const bool is_text = name.is_string();
        const std::string text = is_text ? name.get<std::string>() : "";
        const bool fits = !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        });
        if (!fits) {
          return Refuse(at + ".name", absl::StrCat("expected 1 to 63 letters, digits and _, got ", Brief(name)));
        }
        if (!names_.insert(text).second)
          return Refuse(at + ".name", absl::StrCat("\"", text, "\" is taken by a layer before"));
      }
      for (const char* inner : {"layers", "shortcut"}) {
        if (!entry.contains(inner) || (inner == std::string_view("shortcut") && entry[inner] == Json::array()))
          continue;
        if (absl::Status read = CollectNames(entry[inner], absl::StrCat(at, ".", inner), depth + 1); !read.ok())
          return read;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Layer>> List(const Json& list, const Value& input, const std::string& path) {
    std::vector<Layer> layers;
    const Value* value = &input;
    for (std::size_t i = 0; i < list.size(); ++i) {
      absl::StatusOr<Layer> layer = One(list[i], *value, absl::StrCat(path, "[", i, "]"));
      if (!layer.ok()) return layer.status();
      layers.push_back(*std::move(layer));
      value = &layers.back().output;
    }
    return layers;
  }

  absl::StatusOr<Layer> One(const Json& entry, const Value& input, const std::string& path) {
    Layer layer;
    layer.type = entry["type"].get<std::string>();
    const auto type =
        std::find_if(Types().begin(), Types().end(), [&](const LayerType& t) { return t.name == layer.type; });
    if (type == Types().end()) {
      return Refuse(path + ".type",
                    absl::StrCat("no layer ", Brief(entry["type"]),
                                 "; known: ", absl::StrJoin(Types(), ", ", [](std::string* text, const LayerType& t) {
                                   text->append(t.name);
                                 })));
    }
    layer.name = entry.contains("name") ? entry["name"].get<std::string>() : FreshName(layer.type);
    layer.input = input;
    for (const auto& [key, value] : entry.items()) {
      const bool known = key == "type" || key == "name" ||
                         std::any_of(type->fields.begin(), type->fields.end(),
                                     [&key = key](const FieldRule& rule) { return key == rule.name; });
      if (!known) {
        const std::string fields = absl::StrJoin(
            type->fields, ", ", [](std::string* text, const FieldRule& rule) { text->append(rule.name); });
        return Refuse(absl::StrCat(path, ".", key),
                      absl::StrCat(layer.type, " has no such field; known: name", fields.empty() ? "" : ", ", fields));
      }
    }
    for (const FieldRule& rule : type->fields) {
      if (absl::Status read = Read(rule, entry, path, &layer); !read.ok()) return read;
    }
    const std::string who = absl::StrCat(path, " (", layer.type, " ", layer.name, ")");
    if (!type->infer(layer)) {
      return Refuse(who, absl::StrCat("gets ", ToString(input), Inner(layer), ", needs ", type->needs));
    }
    for (const std::vector<Layer>* inner : {&layer.layers, &layer.shortcut}) {
      for (const Layer& one : *inner) layer.parameters += one.parameters;
    }
    total_ += layer.layers.empty() ? layer.parameters : 0;
    if (total_ > kMaxParameters) {
      return Refuse(who, absl::StrCat("with it the model has ",
                                      total_ >= std::int64_t{1} << 62 ? "2^62 or more" : absl::StrCat(total_),
                                      " parameters, expected at most ", kMaxParameters));
    }
    if (Elements(layer.output.shape) > kMaxExtent) {
      return Refuse(who, absl::StrCat("makes ", ToString(layer.output), " of a sample, expected at most ", kMaxExtent,
                                      " values"));
    }
    return layer;
  }

  static std::string Inner(const Layer& layer) {
    if (layer.layers.empty()) return "";
    return absl::StrCat(
        ", its layers end in ", ToString(layer.layers.back().output),
        layer.shortcut.empty() ? "" : absl::StrCat(", its shortcut in ", ToString(layer.shortcut.back().output)));
  }

  std::string FreshName(const std::string& type) {
    std::string name;
    do {
      name = absl::StrCat(type, ++numbers_[type]);
    } while (names_.contains(name));
    names_.insert(name);
    return name;
  }

  absl::Status Read(const FieldRule& rule, const Json& entry, const std::string& path, Layer* layer) {
    const std::string at = absl::StrCat(path, ".", rule.name);
    const bool present = entry.contains(rule.name);
    if (!present && rule.required) return Refuse(at, absl::StrCat("is required by ", layer->type));
    const Json value = present ? entry[rule.name] : Json();
    switch (rule.kind) {
      case FieldKind::kNumber: {
        const double number = present && value.is_number() ? value.get<double>() : rule.standard;
        if ((present && !value.is_number()) || !(number >= rule.least && number <= rule.most)) {
          return Refuse(
              at, absl::StrFormat("expected a number from %g to %g, got %s", rule.least, rule.most, Brief(value)));
        }
        layer->numbers[rule.name] = number;
        return absl::OkStatus();
      }
      case FieldKind::kFlag:
        if (present && !value.is_boolean())
          return Refuse(at, absl::StrCat("expected true or false, got ", Brief(value)));
        layer->integers[rule.name] =
            present ? static_cast<std::int64_t>(value.get<bool>()) : static_cast<std::int64_t>(rule.standard);
        return absl::OkStatus();
      case FieldKind::kOutput:
        if (present && value != "last" && value != "sequence") {
          return Refuse(at, absl::StrCat("expected last or sequence, got ", Brief(value)));
        }
        layer->integers[rule.name] = present && value == "sequence" ? 1 : 0;
        return absl::OkStatus();
      case FieldKind::kShape: {
        const bool fits =
            value.is_array() && !value.empty() && value.size() <= 8 &&
            std::all_of(value.begin(), value.end(), [](const Json& extent) { return Fits(extent, 1, kMaxExtent); });
        if (!fits) return Refuse(at, absl::StrCat("expected a list of 1 to 8 positive integers, got ", Brief(value)));
        layer->output.shape = value.get<std::vector<std::int64_t>>();
        return absl::OkStatus();
      }
      case FieldKind::kLayers: {
        if (!present || value == Json::array()) return absl::OkStatus();
        absl::StatusOr<std::vector<Layer>> inner = List(value, layer->input, at);
        if (!inner.ok()) return inner.status();
        (rule.name == std::string_view("layers") ? layer->layers : layer->shortcut) = *std::move(inner);
        return absl::OkStatus();
      }
      case FieldKind::kPadding:
        if (present && value == "same") {
          layer->integers[rule.name] = kSame;
          return absl::OkStatus();
        }
        [[fallthrough]];
      case FieldKind::kInteger:
        break;
    }
    if (present && !Fits(value, static_cast<std::int64_t>(rule.least), static_cast<std::int64_t>(rule.most))) {
      return Refuse(at, absl::StrFormat("expected an integer from %.0f to %.0f%s, got %s", rule.least, rule.most,
                                        rule.kind == FieldKind::kPadding ? ", or same" : "", Brief(value)));
    }
    layer->integers[rule.name] = present ? ToInteger(value) : static_cast<std::int64_t>(rule.standard);
    return absl::OkStatus();
  }

  // A whole number in the range; JSON that went through another parser may carry it as 64.0.
  static bool Fits(const Json& value, std::int64_t least, std::int64_t most) {
    if (!value.is_number()) return false;
    const double number = value.get<double>();
    return number == std::floor(number) && number >= static_cast<double>(least) && number <= static_cast<double>(most);
  }
  static std::int64_t ToInteger(const Json& value) {
    return value.is_number_float() ? static_cast<std::int64_t>(value.get<double>()) : value.get<std::int64_t>();
  }

  std::set<std::string> names_;
  std::map<std::string, int> numbers_;
  std::int64_t total_ = 0;
};

}  // namespace

std::string ToString(const Value& value) {
  return absl::StrCat(value.integers ? "integers " : "", data::ShapeText(value.shape));
}

absl::StatusOr<LayerPlan> PlanLayers(const nlohmann::ordered_json& layers, const data::Field& input,
                                     const std::string& path) {
  Value value;
  // Bytes are pixels, which become floats; other integers are numbers of something.
  value.integers = input.type == data::ElementType::kI32 || input.type == data::ElementType::kI64;
  value.classes = input.classes;
  value.shape = input.shape;
  return Planner().Plan(layers, value, path);
}

}  // namespace downpour::model
