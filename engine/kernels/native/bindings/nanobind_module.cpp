// The kernels through nanobind. Arrays must be contiguous, of the exact type and on the CPU; nothing is copied.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "kernel_library.h"

namespace nb = nanobind;
using namespace pellucid;

namespace {

template <typename T>
struct Argument : PlainArgument<T> {};
template <typename T>
struct Argument<T*> {
  static constexpr bool may_convert = false;
  using type = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
  static T* pass(const type& array) { return array.data(); }
};
template <>
struct Argument<const char*> {
  static constexpr bool may_convert = true;
  using type = std::string;
  static const char* pass(const std::string& text) { return text.c_str(); }
};

using Release = nb::call_guard<nb::gil_scoped_release>;
// An array of another type or layout is refused; without this it would be copied, and an output lost with the copy.
template <typename T>
auto arg() {
  if constexpr (Argument<T>::may_convert) {
    return nb::arg();
  } else {
    return nb::arg().noconvert();
  }
}

// All functions of the library by name.
nb::dict open_library(const std::string& path) {
  const KernelLibrary library(path);
  nb::dict functions;
  const auto empty = [call = library.empty_call] { return call(); };
  functions["empty_call"] = nb::cpp_function(empty);
  functions["empty_call_released"] = nb::cpp_function(empty, Release());
  const auto pointers = [call = library.take_arguments](std::uintptr_t x, std::uintptr_t weight, int32_t width,
                                                        float epsilon, std::uintptr_t out) {
    return call(reinterpret_cast<const float*>(x), reinterpret_cast<const float*>(weight), width, epsilon,
                reinterpret_cast<float*>(out));
  };
  functions["take_pointers"] = nb::cpp_function(pointers);
  functions["take_pointers_released"] = nb::cpp_function(pointers, Release());
  using In = Argument<const float*>;
  using Out = Argument<float*>;
  const auto arrays = [call = library.take_arguments](const In::type& x, const In::type& weight, int32_t width,
                                                      float epsilon, const Out::type& out) {
    return call(In::pass(x), In::pass(weight), width, epsilon, Out::pass(out));
  };
  const auto define_arrays = [&]<typename... T>(const char* name, Types<T...>, const auto&... extra) {
    functions[name] = nb::cpp_function(arrays, arg<T>()..., extra...);
  };
  using Each = Types<const float*, const float*, int32_t, float, float*>;
  define_arrays("take_arrays", Each());
  define_arrays("take_arrays_released", Each(), Release());
#define PELLUCID_DEFINE(name)                                                \
  define_kernel<Argument>(                                                   \
      [&]<typename... T>(const auto& callable, Types<T...>) {                \
        functions[#name] = nb::cpp_function(callable, arg<T>()..., Release()); \
      },                                                                     \
      library.name);
  PELLUCID_KERNEL_FUNCTIONS(PELLUCID_DEFINE)
#undef PELLUCID_DEFINE
  return functions;
}

}  // namespace

NB_MODULE(pellucid_nanobind, module) { module.def("open_library", open_library); }
