// What every instruction-set file shares. Those files are compiled with instructions that the machine may lack, so
// nothing of them may leak out: everything lives in an unnamed namespace and no inline function of the standard
// library is called (the linker would keep one copy for the whole program; tests/repo checks the symbols).
#pragma once
#include "kernels.h"

#define SB_INLINE inline __attribute__((always_inline))
