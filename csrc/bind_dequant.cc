#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <string>
#include <string_view>

#include "dequant.h"
#include "thread_pool.h"

namespace nb = nanobind;

namespace samebits {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void dequantize_array(std::string_view type_name, const Bytes& src, const Floats& out) {
  WeightType type;
  if (!weight_type(type_name, &type)) {
    throw nb::value_error(("type_name: no weight type " + std::string(type_name)).c_str());
  }
  bool fits;
  {
    nb::gil_scoped_release release;
    FloatEnvironment environment;
    fits = dequantize(type, src.data(), src.size(), out.data(), out.size());
  }
  if (!fits) {
    throw nb::value_error(("src: " + std::to_string(src.size()) + " bytes of " + std::string(type_name) +
                           " are not " + std::to_string(out.size()) + " elements")
                              .c_str());
  }
}

}  // namespace
}  // namespace samebits

void bind_dequant(nb::module_& m) {
  m.def("dequantize", &samebits::dequantize_array, nb::arg("type_name"), nb::arg("src"), nb::arg("out").noconvert(),
        "Writes the weights in src (uint8, whole blocks of type_name) to out (float32); see csrc/dequant.h.\n\n"
        "Raises ValueError where the sizes do not agree or the type is unknown.");
}
