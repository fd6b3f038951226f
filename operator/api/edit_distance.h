#ifndef DOWNPOUR_OPERATOR_API_EDIT_DISTANCE_H_
#define DOWNPOUR_OPERATOR_API_EDIT_DISTANCE_H_

#include <cstddef>
#include <string_view>

namespace downpour::api {

// How many bytes must be inserted, removed or replaced to make one text of the other (Levenshtein 1966). Takes time in
// proportion to the product of the lengths.
std::size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_EDIT_DISTANCE_H_
