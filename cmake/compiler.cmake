# Warnings are errors; one set of flags for all targets. No -march: one binary serves every CPU, SIMD is chosen at
# run time. -ffp-contract=off: a fused multiply-add only where the code says so, so that bits do not depend on the
# optimizer's mood. -fno-math-errno: lets loops with sqrt vectorise.
add_library(zeno_flags INTERFACE)
target_include_directories(zeno_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" $<INSTALL_INTERFACE:include>)
target_compile_features(zeno_flags INTERFACE cxx_std_20)
set(host_flags -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -Wno-missing-field-initializers -fno-math-errno -ffp-contract=off)
if(ZENO_UNITY)
  list(APPEND host_flags -Wno-subobject-linkage)  # g++ takes the files of one for headers
endif()
# How Zeno itself is compiled is no concern of a program that uses an installed one.
target_compile_options(zeno_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${host_flags}>>"
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-fmad=false;-Xcompiler=-Wall,-Wextra;-Werror=all-warnings>>")
# Highway compiles each kernel once per target: AVX-512, AVX2 and a portable one. The SSE generations in between
# (bits 11 and 12 of its target mask) would cost build time for CPUs older than 2013.
target_compile_definitions(zeno_flags INTERFACE $<BUILD_INTERFACE:HWY_DISABLED_TARGETS=0x1800>)
if(ZENO_SANITIZE OR ZENO_FUZZ)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")  # instrumented kernels take minutes each at -O3
endif()
if(ZENO_SANITIZE)
  # g++ 12 with sanitizers takes parts of std::regex for uninitialized.
  target_compile_options(zeno_flags INTERFACE -fsanitize=${ZENO_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  target_link_options(zeno_flags INTERFACE -fsanitize=${ZENO_SANITIZE})
endif()
if(ZENO_FUZZ)
  target_compile_options(zeno_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined)
  target_link_options(zeno_flags INTERFACE -fsanitize=address,undefined)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
