# For folders that compute little and hold much JSON, which takes GCC far longer to optimise under AddressSanitizer and
# UndefinedBehaviorSanitizer than to compile: the targets that come after this in the folder, and below it.
if(DOWNPOUR_SANITIZE STREQUAL "address,undefined")
  add_compile_options(-O0)
endif()
