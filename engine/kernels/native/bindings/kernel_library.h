// What both binding modules share: the functions of kernel_api.h taken out of the very library that the executor loads,
// and each of them as a function on array arguments. A binding says by `Argument<T>` what it takes for a C argument T.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "../kernel_api.h"

namespace pellucid {

// The library stays loaded as long as the process lives, as with ctypes.
struct KernelLibrary {
  decltype(&pellucid_empty_call) empty_call = nullptr;
  decltype(&pellucid_take_arguments) take_arguments = nullptr;
#define PELLUCID_MEMBER(name) decltype(&pellucid_##name) name = nullptr;
  PELLUCID_KERNEL_FUNCTIONS(PELLUCID_MEMBER)
#undef PELLUCID_MEMBER

  explicit KernelLibrary(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
#define PELLUCID_LOAD(name) load(handle, "pellucid_" #name, name);
    PELLUCID_LOAD(empty_call)
    PELLUCID_LOAD(take_arguments)
    PELLUCID_KERNEL_FUNCTIONS(PELLUCID_LOAD)
#undef PELLUCID_LOAD
  }

 private:
  template <typename Function>
  static void load(void* handle, const char* name, Function& function) {
    void* found = dlsym(handle, name);
    if (!found) throw std::runtime_error(std::string("the library has no ") + name);
    function = reinterpret_cast<Function>(found);
  }
};

// The C types of a function's arguments.
template <typename... T>
struct Types {};

// A function of the C interface without its last two arguments, which carry the message of a failure: it throws instead.
template <template <typename> class Argument, typename Define, typename... All, std::size_t... I>
void define_checked(Define define, int32_t (*function)(All...), std::index_sequence<I...>) {
  using Each = std::tuple<All...>;
  const auto checked = [function](const typename Argument<std::tuple_element_t<I, Each>>::type&... arguments) {
    char message[300];
    if (function(Argument<std::tuple_element_t<I, Each>>::pass(arguments)..., message, int32_t(sizeof message))) {
      throw std::invalid_argument(message);
    }
  };
  define(checked, Types<std::tuple_element_t<I, Each>...>());
}

// Calls define(callable, Types of its arguments).
template <template <typename> class Argument, typename Define, typename... All>
void define_kernel(Define define, int32_t (*function)(All...)) {
  define_checked<Argument>(define, function, std::make_index_sequence<sizeof...(All) - 2>());
}

// Numbers and names: a Python number may be rounded to the C type.
template <typename T>
struct PlainArgument {
  using type = T;
  static constexpr bool may_convert = true;
  static T pass(T value) { return value; }
};

}  // namespace pellucid
