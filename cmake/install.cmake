# What `make install` installs: the binary, the static libraries, the headers, and two ways to find them: a CMake
# package (find_package(zeno), target zeno::zeno) and a file for pkg-config.
include(CMakePackageConfigHelpers)
set(package lib/cmake/zeno)

get_property(layers GLOBAL PROPERTY ZENO_LAYERS)
install(TARGETS zeno_cli RUNTIME DESTINATION bin)
install(TARGETS ${layers} zeno_library zeno_flags zeno_cuda_libraries EXPORT zeno-targets ARCHIVE DESTINATION lib)
# Headers of the backends are not for users: what they declare is reached through the folders around them.
install(DIRECTORY zeno DESTINATION include FILES_MATCHING PATTERN "*.h"
        PATTERN cpu EXCLUDE PATTERN cuda EXCLUDE PATTERN assets EXCLUDE)

set_target_properties(zeno_flags PROPERTIES EXPORT_NAME flags)
set_target_properties(zeno_cuda_libraries PROPERTIES EXPORT_NAME cuda_libraries)
install(EXPORT zeno-targets NAMESPACE zeno:: DESTINATION ${package})
configure_file(cmake/zeno-config.cmake.in zeno-config.cmake @ONLY)
write_basic_package_version_file(zeno-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/zeno-config.cmake ${PROJECT_BINARY_DIR}/zeno-config-version.cmake
              cmake/packages.cmake DESTINATION ${package})

# Static libraries are given from the top layer down; those that have no file of their own for pkg-config, by path.
list(REVERSE layers)
list(TRANSFORM layers PREPEND -l)
list(JOIN layers " " pc_layers)
set(pc_packages fmt nlohmann_json libhwy libpcre2-8 libxxhash zlib libzstd snappy)
if(URING_FOUND)
  list(APPEND pc_packages liburing)
endif()
list(JOIN pc_packages " " pc_packages)
if(MPI_CXX_FOUND)
  list(APPEND pc_libraries ${MPI_CXX_LIBRARIES})
endif()
if(ZENO_CUDA)
  list(APPEND pc_libraries ${CUDA_cudart_static_LIBRARY} ${CUDA_cublasLt_LIBRARY} ${CUDNN_LIBRARY} ${NCCL_LIBRARY}
                           -ldl -lrt)
endif()
list(JOIN pc_libraries " " pc_libraries)
configure_file(cmake/zeno.pc.in zeno.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/zeno.pc DESTINATION lib/pkgconfig)
