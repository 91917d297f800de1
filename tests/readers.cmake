# Readers of files that others may have written, compiled with little else: their tests under a
# sanitizer (target reader_tests) and their fuzz targets (target fuzz) must not build every kernel.
# What is missing when they are linked is added here.
file(GLOB reader_sources CONFIGURE_DEPENDS runtime/*.cpp train/config*.cpp train/checkpoint*.cpp
     train/lab/*.cpp)
list(FILTER reader_sources EXCLUDE REGEX "lab/experiment\\.cpp$")
foreach(name autograd/gradient_sum autograd/node autograd/op_watch models/config runtime/cpu/cgroup runtime/cpu/host_source
        runtime/cpu/instruction_set runtime/cpu/memory_limits runtime/cpu/memory_ops_cpu runtime/cpu/openmp
        runtime/cpu/parallel runtime/cuda_off/device_source runtime/cuda_off/status train/command_line
        train/data train/device_choice train/foreign_weights train/html train/json_text train/manifest
        train/metrics train/mqar_tokenizer train/optimizer train/optimizer_cpu train/run_directory train/run_record
        train/text train/text_file train/tokenizer train/train_state train/typing)
  list(APPEND reader_sources ${name}.cpp)
endforeach()
add_library(duet_readers STATIC EXCLUDE_FROM_ALL ${reader_sources})
target_include_directories(duet_readers PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_features(duet_readers PUBLIC cxx_std_20)
target_compile_definitions(duet_readers PRIVATE DUET_VERSION="${PROJECT_VERSION}")
target_compile_options(duet_readers PRIVATE -O1)
target_link_libraries(duet_readers PUBLIC OpenMP::OpenMP_CXX DNNL::dnnl hwy::hwy fmt::fmt
                      ${CMAKE_DL_LIBS}
                      PRIVATE duet_options)

add_executable(reader_tests EXCLUDE_FROM_ALL tests/runtime/file_system_test.cpp
  tests/runtime/memory_trace_test.cpp tests/runtime/safetensors_test.cpp tests/train/checkpoint_damage_test.cpp
  tests/train/checkpoint_test.cpp tests/train/command_line_test.cpp tests/train/config_test.cpp
  tests/train/foreign_files_test.cpp tests/train/lab_report_test.cpp tests/train/tokenizer_test.cpp)
target_link_libraries(reader_tests PRIVATE duet_readers duet_options GTest::gtest_main)
target_compile_definitions(reader_tests PRIVATE DUET_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(reader_tests PRIVATE -O0)
if(DUET_SANITIZE)
  gtest_discover_tests(reader_tests NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES LABELS readers)
endif()

if(DUET_FUZZ)
  add_custom_target(fuzz)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
  foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${name} PRIVATE duet_readers duet_options)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz ${name})
  endforeach()
endif()
