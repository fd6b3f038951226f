#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// Two classes of texts: one output, whatever the target says, because the loss takes one.
// Parameters, of 10,000 words: embedding 1,280,000; LSTM 2 * 4 * (64*128 + 64*64 + 2*64) = 99,328, with the two biases
// of LibTorch (Keras has one: 512 fewer); dense 8,256 and 65: 1,387,649.
Json Layers(const Sizes& sizes, const data::SampleFields& /*fields*/) {
  return Json::array({Layer("embedding", {{"name", "embedding"}, {"size", sizes.at("embedding")}}),
                      Layer("lstm", {{"name", "lstm"}, {"units", sizes.at("units")}, {"bidirectional", true}}),
                      Layer("dense", {{"name", "fc1"}, {"units", sizes.at("hidden")}}), Layer("relu"),
                      Layer("dense", {{"name", "fc2"}, {"units", 1}})});
}

}  // namespace

ZooNetwork BiLstm() {
  return {"BiLSTM",
          {{"embedding", 128, 1, 4096, "values of a word's vector"},
           {"units", 64, 1, 4096, "units of the LSTM in each direction"},
           {"hidden", 64, 1, 65536, "units of the hidden dense layer"}},
          "BinaryCrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
