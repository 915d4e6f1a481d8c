#include <nanobind/nanobind.h>
void bind_dequant(nanobind::module_&) {}
