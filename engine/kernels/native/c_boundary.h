// What every function of the C interface does at its border.
#pragma once
#include <cstring>
#include <exception>

#define PELLUCID_EXPORT __attribute__((visibility("default")))

namespace pellucid {

// Runs body; 0, or 1 with what the exception says in message[size].
template <typename Body>
int guarded(char* message, int size, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    if (size > 0) {
      std::strncpy(message, error.what(), size_t(size) - 1);
      message[size - 1] = '\0';
    }
    return 1;
  }
}

}  // namespace pellucid
