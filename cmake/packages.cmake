# Everything here comes from Debian packages (see the Makefile); optional parts are found when present.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
