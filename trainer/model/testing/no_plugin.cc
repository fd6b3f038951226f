// A shared library, and that is all.
extern "C" __attribute__((visibility("default"))) int some_function() { return 7; }
