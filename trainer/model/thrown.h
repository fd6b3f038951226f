#ifndef DOWNPOUR_TRAINER_MODEL_THROWN_H_
#define DOWNPOUR_TRAINER_MODEL_THROWN_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string>

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

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_THROWN_H_
