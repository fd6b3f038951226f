#ifndef DOWNPOUR_OPERATOR_API_DOCUMENT_CHOICE_H_
#define DOWNPOUR_OPERATOR_API_DOCUMENT_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "operator/api/document.h"

namespace downpour::api {

struct ChosenDocument {
  Document document;               // not readable: there is none, or too many, and its errors say so
  std::vector<std::string> notes;  // what was left
};

// The TrainingJob in a text that may have several documents, taken apart as kubectl does: JSON values one behind the
// other, or YAML between lines that begin with "---". Empty documents do not count, and the items of a List are
// documents of their own. A document that stands alone is taken whatever it is; of several, the TrainingJob. Never
// throws. Refuses more than kMaxManifestBytes.
ChosenDocument ChooseDocument(std::string_view text);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_DOCUMENT_CHOICE_H_
