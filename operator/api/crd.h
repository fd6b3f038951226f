#ifndef DOWNPOUR_OPERATOR_API_CRD_H_
#define DOWNPOUR_OPERATOR_API_CRD_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/fields.h"

// The CustomResourceDefinition of TrainingJob, written from the same description of the fields that manifests are read
// with: types, bounds, names, defaults, and what is not supported yet. What fields.h cannot say is in tables in crd.cc:
// the documentation, patterns of texts, relations between fields, and what may change while a job runs.
namespace downpour::api {

inline constexpr char kGroup[] = "training.downpour.dev";
inline constexpr char kPlural[] = "trainingjobs";

// As checked in under charts/downpour/crds and deploy/crd.yaml. The same text each time.
std::string CustomResourceDefinitionYaml();
// The same as JSON.
std::string CustomResourceDefinitionJson();

// Rows of the tables that no field uses, and fields that a table leaves out. Empty if all is well.
std::vector<std::string> CustomResourceDefinitionProblems();

// A text check as the API server does it: at most `max_length` characters (0: any number), which the regular expression
// (RE2) matches as a whole, and one more condition in CEL if there is one.
struct TextPattern {
  schema::TextCheck check;
  std::size_t max_length;
  std::string_view pattern;
  std::string_view refused;  // a text that the check refuses for what the pattern says
  std::string_view condition = {};
};
std::span<const TextPattern> TextPatterns();

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_CRD_H_
