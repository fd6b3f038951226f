#ifndef DOWNPOUR_PLUGIN_H_
#define DOWNPOUR_PLUGIN_H_

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

// Networks, losses and metrics of your own for Downpour. Needs LibTorch and the standard library, C++17 or newer.
//
//   struct Net : torch::nn::Module {
//     Net(const downpour::Parameters& parameters, const downpour::SampleFields& fields);
//     torch::Tensor forward(const torch::Tensor& images);
//   };
//   DOWNPOUR_MODEL("Net", Net);
//
// Built as a shared library with the LibTorch that Downpour was built with (`downpour_add_plugin` of the CMake
// package), this is what `spec.model.plugin: {path: /models/net.so, name: Net}` of a manifest names. The library is
// loaded by every worker, once, and stays loaded. One thread calls what is in it.
namespace downpour {

// A parameter that the network cannot take. Thrown by a constructor it becomes the error
// "spec.model.plugin.parameters.NAME: EXPECTATION".
class __attribute__((visibility("default"))) ParameterError : public std::invalid_argument {
 public:
  ParameterError(const std::string& name, const std::string& expectation)
      : std::invalid_argument(name + ": " + expectation) {}
};

// spec.model.plugin.parameters. Each getter returns what the manifest has under the name, or `otherwise`, and throws
// ParameterError where it has something of another type. What the constructor of the network asks for is what may be
// there: any other name is refused once it is done, so ask for all of them, whatever their values.
class Parameters {
 public:
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

  explicit Parameters(std::map<std::string, Value> values) : values_(std::move(values)) {}

  bool flag(const std::string& name, bool otherwise) const { return Get(name, otherwise, "true or false"); }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    return Get(name, otherwise, "an integer");
  }
  double number(const std::string& name, double otherwise) const { return Get(name, otherwise, "a number"); }
  std::string text(const std::string& name, const std::string& otherwise) const {
    return Get(name, otherwise, "a text");
  }
  std::vector<std::int64_t> integers(const std::string& name, const std::vector<std::int64_t>& otherwise) const {
    return Get(name, otherwise, "a list of integers");
  }
  std::vector<double> numbers(const std::string& name, const std::vector<double>& otherwise) const {
    return Get(name, otherwise, "a list of numbers");
  }

  const std::map<std::string, Value>& values() const { return values_; }
  // The names that were asked for, of this object or a copy of it.
  const std::set<std::string>& known() const { return *known_; }

 private:
  template <typename T>
  T Get(const std::string& name, const T& otherwise, const char* expected) const {
    known_->insert(name);
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    // An integer is a number.
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* value = std::get_if<std::int64_t>(&found->second)) return static_cast<double>(*value);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second)) {
        return T(list->begin(), list->end());
      }
    }
    throw ParameterError(name, std::string("expected ") + expected + ", got " + Text(found->second));
  }

  static std::string Text(const Value& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
    if (const auto* number = std::get_if<double>(&value)) return std::to_string(*number);
    if (const auto* text = std::get_if<std::string>(&value)) return '"' + *text + '"';
    return "a list";
  }

  std::map<std::string, Value> values_;
  std::shared_ptr<std::set<std::string>> known_ = std::make_shared<std::set<std::string>>();
};

// The extent of a dimension in which every sample has its own: the words of a text.
constexpr std::int64_t kRagged = -1;

// What the data set has of each sample, as tensors in which the samples come first.
struct Field {
  std::string name;                 // "image"
  torch::Dtype type;                // pixels are kFloat in [0, 1]; words and labels kLong
  std::vector<std::int64_t> shape;  // of one sample; only the first extent may be kRagged
  std::int64_t classes = 0;         // integers are in [0, classes); 0: no bound is known
};

struct SampleFields {
  Field input;   // of the network
  Field target;  // what a loss or a metric compares its output with
};

// What a loss or a metric measures in a batch. A mean over several batches is the sum of the sums by that of the
// counts; what is minimised is the mean over the batch.
struct Sum {
  // One value a sample, or of any other shape that has several. Implicit: a loss returns the tensor.
  Sum(const torch::Tensor& values) : sum(values.sum()), count(values.numel()) {
    if (values.dim() == 0) {
      throw std::invalid_argument("got one value for the batch, expected one a sample, or {sum, count} of them");
    }
  }
  Sum(torch::Tensor total, std::int64_t values) : sum(std::move(total)), count(values) {}

  torch::Tensor sum;  // one value
  std::int64_t count = 0;
};

// Registers MODULE, a class derived from torch::nn::Module, as the network NAME. It is constructed as
// MODULE(const downpour::Parameters&, const downpour::SampleFields&), MODULE(const downpour::Parameters&) or MODULE(),
// whichever of these it has first. What it draws for its initial parameters comes from LibTorch's default generator,
// which is seeded, as every worker must make the same ones.
//
// It has forward(input) or, for texts, forward(words, lengths): words kLong [N, L], zero behind the end of a text,
// lengths kLong [N] on the CPU. It returns [N, ...]. In training mode it may draw from LibTorch's default generator and
// change its registered buffers in place; the same update may be computed more than once, so nothing else may change.
#define DOWNPOUR_MODEL(NAME, ...) DOWNPOUR_PLUGIN_REGISTER(::downpour::plugin::AddModel<__VA_ARGS__>(NAME))

// Registers a function of (const torch::Tensor& output, const torch::Tensor& target) that returns what makes a Sum, as
// the loss or the metric NAME. One of Downpour's own with that name is hidden by it. Any network may be trained with a
// loss of a plug-in.
#define DOWNPOUR_LOSS(NAME, ...) DOWNPOUR_PLUGIN_REGISTER(::downpour::plugin::AddLoss(NAME, __VA_ARGS__))
#define DOWNPOUR_METRIC(NAME, ...) DOWNPOUR_PLUGIN_REGISTER(::downpour::plugin::AddMetric(NAME, __VA_ARGS__))

// What Downpour and a plug-in agree on; nothing that a plug-in has to know.
namespace plugin {

constexpr std::uint64_t kMagic = 0x6e6f6f7072756f44;
// Another one whenever anything that both sides see has another layout or meaning.
constexpr std::uint32_t kAbiVersion = 1;

struct Network {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& input, const torch::Tensor& lengths)> forward;
};

template <typename Function>
struct Named {
  std::string name;
  Function function;
};
using Make = std::function<Network(const Parameters&, const SampleFields&)>;
using Measure = std::function<Sum(const torch::Tensor& output, const torch::Tensor& target)>;

struct Registry {
  std::vector<Named<Make>> models;
  std::vector<Named<Measure>> losses;
  std::vector<Named<Measure>> metrics;
};

// Its layout up to torch_version is the same in every version: nothing else is read before these are compared.
struct Contract {
  std::uint64_t magic;
  std::uint32_t abi_version;
  std::uint32_t cxx11_abi;
  const char* torch_version;
  const Registry* registry;
};

// Hidden, so that the variables inside are this library's alone: of an inline function that others can see, there is
// one for all libraries of the process.
__attribute__((visibility("hidden"))) inline Registry& ThisRegistry() {
  static Registry registry;
  return registry;
}
__attribute__((visibility("hidden"))) inline const Contract& ThisContract() {
  static const Contract contract = {kMagic, kAbiVersion, _GLIBCXX_USE_CXX11_ABI, TORCH_VERSION, &ThisRegistry()};
  return contract;
}

}  // namespace plugin
}  // namespace downpour

// The one symbol of a plug-in that Downpour looks for.
extern "C" __attribute__((visibility("default"))) inline const downpour::plugin::Contract* downpour_plugin() {
  return &downpour::plugin::ThisContract();
}

namespace downpour::plugin {

template <typename Module, typename... Arguments>
using ForwardResult = decltype(std::declval<Module&>().forward(std::declval<const Arguments&>()...), std::true_type());
template <typename Module, typename = std::true_type>
struct TakesInput : std::false_type {};
template <typename Module>
struct TakesInput<Module, ForwardResult<Module, torch::Tensor>> : std::true_type {};
template <typename Module, typename = std::true_type>
struct TakesLengths : std::false_type {};
template <typename Module>
struct TakesLengths<Module, ForwardResult<Module, torch::Tensor, torch::Tensor>> : std::true_type {};

template <typename Module>
std::shared_ptr<Module> Construct(const Parameters& parameters, const SampleFields& fields) {
  if constexpr (std::is_constructible_v<Module, const Parameters&, const SampleFields&>) {
    return std::make_shared<Module>(parameters, fields);
  } else if constexpr (std::is_constructible_v<Module, const Parameters&>) {
    return std::make_shared<Module>(parameters);
  } else {
    static_assert(std::is_default_constructible_v<Module>,
                  "a network has a constructor of (const downpour::Parameters&, const downpour::SampleFields&), of the "
                  "first of them or of nothing");
    return std::make_shared<Module>();
  }
}

template <typename Module>
Network MakeNetwork(const Parameters& parameters, const SampleFields& fields) {
  const std::shared_ptr<Module> module = Construct<Module>(parameters, fields);
  return {module, [module](const torch::Tensor& input, const torch::Tensor& lengths) -> torch::Tensor {
            if constexpr (TakesInput<Module>::value && TakesLengths<Module>::value) {
              return lengths.defined() ? module->forward(input, lengths) : module->forward(input);
            } else if constexpr (TakesLengths<Module>::value) {
              return module->forward(input, lengths);
            } else {
              return module->forward(input);
            }
          }};
}

using Symbol = const Contract* (*)();

// Hidden for the same reason.
template <typename Module>
__attribute__((visibility("hidden"))) Symbol AddModel(const char* name) {
  static_assert(std::is_base_of_v<torch::nn::Module, Module>,
                "a network is derived from torch::nn::Module; of a holder made by TORCH_MODULE, it is the Impl class");
  static_assert(TakesInput<Module>::value || TakesLengths<Module>::value,
                "a network has a public forward(input) or forward(words, lengths) that takes tensors");
  ThisRegistry().models.push_back({name, MakeNetwork<Module>});
  return downpour_plugin;
}
__attribute__((visibility("hidden"))) inline Symbol AddLoss(const char* name, Measure loss) {
  ThisRegistry().losses.push_back({name, std::move(loss)});
  return downpour_plugin;
}
__attribute__((visibility("hidden"))) inline Symbol AddMetric(const char* name, Measure metric) {
  ThisRegistry().metrics.push_back({name, std::move(metric)});
  return downpour_plugin;
}

}  // namespace downpour::plugin

#define DOWNPOUR_PLUGIN_JOIN_EXPANDED(A, B) A##B
#define DOWNPOUR_PLUGIN_JOIN(A, B) DOWNPOUR_PLUGIN_JOIN_EXPANDED(A, B)
// Keeps a reference to the symbol, so that it is in the library.
#define DOWNPOUR_PLUGIN_REGISTER(...)                                                                               \
  __attribute__((used)) static const ::downpour::plugin::Symbol DOWNPOUR_PLUGIN_JOIN(downpour_plugin_registration_, \
                                                                                     __COUNTER__) = __VA_ARGS__

#endif  // DOWNPOUR_PLUGIN_H_
