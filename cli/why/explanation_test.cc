#include "cli/why/explanation.h"

#include "gtest/gtest.h"
