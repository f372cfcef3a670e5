# Read by find_package(tidemark): gives the target tidemark::tidemark.
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(yaml-cpp)
find_dependency(TBB)
find_dependency(Threads)
find_dependency(ZLIB)
include(${CMAKE_CURRENT_LIST_DIR}/tidemark-targets.cmake)
