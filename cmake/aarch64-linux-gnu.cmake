# Cross build for arm64 with Debian's g++-aarch64-linux-gnu. ARM64_ROOT is a folder with an arm64 Python and its headers in
# usr/ (tests/builds/arm64_python.sh lays one); CMake asks that Python, under emulation, what its modules look like.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARM64_ROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${ARM64_ROOT}")
# Last, so that the compiler's own headers of the C library come first.
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${ARM64_ROOT}/usr/include")
set(Python_EXECUTABLE "${ARM64_ROOT}/usr/bin/python3")
file(GLOB Python_INCLUDE_DIR "${ARM64_ROOT}/usr/include/python3.*")
