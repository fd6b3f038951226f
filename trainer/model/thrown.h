#ifndef DOWNPOUR_TRAINER_MODEL_THROWN_H_
#define DOWNPOUR_TRAINER_MODEL_THROWN_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::model {

// For people, in a handler: what LibTorch, or code of the user's own in it, threw.
inline std::string WhatWasThrown() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "what is no std::exception";
  }
}

// kResourceExhausted with the sizes that LibTorch tells, of one line: what follows them is advice on its allocator.
inline absl::Status OutOfMemory(const std::string& where, const c10::OutOfMemoryError& error) {
  std::string what = error.what_without_backtrace();
  what = what.substr(0, what.find('\n'));
  if (const auto end = what.find(" is free."); end != std::string::npos) what.resize(end + sizeof(" is free.") - 1);
  return absl::ResourceExhaustedError(
      absl::StrCat(where, ": ", what, " A smaller training.batchSize needs less, and so does dataset.onDevice: Never"));
}

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_THROWN_H_
