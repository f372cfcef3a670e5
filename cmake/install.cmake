# What `cmake --install` puts where: the program, the library, its headers, and what find_package(tidemark) reads.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)

install(TARGETS tidemark-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The program writes its own completions, so they know every option.
set(completions)
foreach(shell_and_place bash:bash-completion/completions/tidemark zsh:zsh/site-functions/_tidemark
    fish:fish/vendor_completions.d/tidemark.fish)
  string(REPLACE ":" ";" parts ${shell_and_place})
  list(GET parts 0 shell)
  list(GET parts 1 place)
  set(file ${PROJECT_BINARY_DIR}/completions/${place})
  cmake_path(GET file PARENT_PATH folder)
  add_custom_command(OUTPUT ${file} DEPENDS tidemark-cli VERBATIM
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND tidemark-cli completion ${shell} > ${file})
  list(APPEND completions ${file})
endforeach()
add_custom_target(completions ALL DEPENDS ${completions})
install(DIRECTORY ${PROJECT_BINARY_DIR}/completions/ DESTINATION ${CMAKE_INSTALL_DATADIR})

install(TARGETS tidemark EXPORT tidemark-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tidemark DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tidemark-targets NAMESPACE tidemark:: DESTINATION ${package_dir})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/tidemark-config.cmake ${PROJECT_BINARY_DIR}/tidemark-config-version.cmake
  DESTINATION ${package_dir})
