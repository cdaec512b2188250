// The kernels through pybind11. Arrays must be contiguous and of the exact type; nothing is copied.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "kernel_library.h"

namespace py = pybind11;
using namespace pellucid;

namespace {

template <typename T>
struct Argument : PlainArgument<T> {};
template <typename T>
struct Argument<const T*> {
  static constexpr bool may_convert = false;
  using type = py::array_t<T, py::array::c_style>;
  static const T* pass(const type& array) { return array.data(); }
};
template <typename T>
struct Argument<T*> {
  static constexpr bool may_convert = false;
  using type = py::array_t<T, py::array::c_style>;
  static T* pass(const type& array) { return const_cast<type&>(array).mutable_data(); }
};
template <>
struct Argument<const char*> {
  static constexpr bool may_convert = true;
  using type = std::string;
  static const char* pass(const std::string& text) { return text.c_str(); }
};

using Release = py::call_guard<py::gil_scoped_release>;
// An array of another type or layout is refused; without this it would be copied, and an output lost with the copy.
template <typename T>
auto arg() {
  return py::arg().noconvert(!Argument<T>::may_convert);
}

// All functions of the library by name.
py::dict open_library(const std::string& path) {
  const KernelLibrary library(path);
  py::dict functions;
  const auto empty = [call = library.empty_call] { return call(); };
  functions["empty_call"] = py::cpp_function(empty);
  functions["empty_call_released"] = py::cpp_function(empty, Release());
  const auto pointers = [call = library.take_arguments](std::uintptr_t x, std::uintptr_t weight, int32_t width,
                                                        float epsilon, std::uintptr_t out) {
    return call(reinterpret_cast<const float*>(x), reinterpret_cast<const float*>(weight), width, epsilon,
                reinterpret_cast<float*>(out));
  };
  functions["take_pointers"] = py::cpp_function(pointers);
  functions["take_pointers_released"] = py::cpp_function(pointers, Release());
  using In = Argument<const float*>;
  using Out = Argument<float*>;
  const auto arrays = [call = library.take_arguments](const In::type& x, const In::type& weight, int32_t width,
                                                      float epsilon, const Out::type& out) {
    return call(In::pass(x), In::pass(weight), width, epsilon, Out::pass(out));
  };
  const auto define_arrays = [&]<typename... T>(const char* name, Types<T...>, const auto&... extra) {
    functions[name] = py::cpp_function(arrays, arg<T>()..., extra...);
  };
  using Each = Types<const float*, const float*, int32_t, float, float*>;
  define_arrays("take_arrays", Each());
  define_arrays("take_arrays_released", Each(), Release());
#define PELLUCID_DEFINE(name)                                                \
  define_kernel<Argument>(                                                   \
      [&]<typename... T>(const auto& callable, Types<T...>) {                \
        functions[#name] = py::cpp_function(callable, arg<T>()..., Release()); \
      },                                                                     \
      library.name);
  PELLUCID_KERNEL_FUNCTIONS(PELLUCID_DEFINE)
#undef PELLUCID_DEFINE
  return functions;
}

}  // namespace

PYBIND11_MODULE(pellucid_pybind11, module) { module.def("open_library", open_library); }
