# What `cmake --install` puts where: the program, the library, its headers, and what find_package(tidemark) reads.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)

install(TARGETS tidemark-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tidemark EXPORT tidemark-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tidemark DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tidemark-targets NAMESPACE tidemark:: DESTINATION ${package_dir})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/tidemark-config.cmake ${PROJECT_BINARY_DIR}/tidemark-config-version.cmake
  DESTINATION ${package_dir})
