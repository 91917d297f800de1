# find_package(duet): the libraries, and what they need when a program is linked.
include(CMakeFindDependencyMacro)
find_dependency(OpenMP COMPONENTS CXX)
find_dependency(dnnl)
find_dependency(fmt)
find_dependency(hwy)
include(${CMAKE_CURRENT_LIST_DIR}/duetTargets.cmake)
