#ifndef DOWNPOUR_OPERATOR_API_YAML_READER_H_
#define DOWNPOUR_OPERATOR_API_YAML_READER_H_

#include <cstddef>
#include <string_view>

#include "operator/api/document.h"

namespace downpour::api {

// What comes behind the document that was read.
enum class YamlRest { kNothing, kMore };

// Reads the first document of the text, as kubectl's reader does (libyaml, of which that one is a translation): aliases
// and merge keys are replaced by what they stand for, scalars are those of yaml_scalar.h. The document is null where
// the text holds none. Never throws. What is wrong is in document.errors; document.readable is false if the text is no
// document at all. Positions begin at document.next_position, lines in messages at `first_line`.
//
// Refused are what is deeper than kMaxManifestDepth, numbers that are not finite, keys that are no scalars, and aliases
// that stand for more than kMaxManifestBytes or, as kubectl counts it, for nearly all of the document.
YamlRest ReadYaml(std::string_view text, std::size_t first_line, Document& document);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_YAML_READER_H_
