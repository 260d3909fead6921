# What every target of the project shares: warnings, sanitizers, hidden symbols, ccache, the layering check.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/archive)

set(TIDEWIRE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_program(FLATC flatc REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)

# Header-only parts are used through their headers alone: several of Debian's static archives are not
# position-independent and can't go into the shared library.
add_library(tidewire_options INTERFACE)
target_include_directories(tidewire_options INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(tidewire_options INTERFACE
  ASIO_STANDALONE ASIO_NO_DEPRECATED _GNU_SOURCE)
# -Wmaybe-uninitialized of g++ 12 takes the unused alternatives of a moved std::variant for uninitialised members.
target_compile_options(tidewire_options INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers -Wno-maybe-uninitialized)
target_link_libraries(tidewire_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(TIDEWIRE_SANITIZE)
  # Half the compile time of -O2 -g; stack traces keep their lines.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  target_compile_options(tidewire_options INTERFACE
    -fsanitize=${TIDEWIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tidewire_options INTERFACE -fsanitize=${TIDEWIRE_SANITIZE})
  if(TIDEWIRE_SANITIZE MATCHES thread)
    # Asio's fences are not understood by the sanitizer (-Wtsan); it uses them beside locks that are.
    target_compile_options(tidewire_options INTERFACE -include ${PROJECT_SOURCE_DIR}/cmake/tsan_compat.h -Wno-tsan)
  endif()
endif()

# The build stops when a lower layer includes a higher one.
add_custom_target(check_layers
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check_layers.py ${PROJECT_SOURCE_DIR}/src
  COMMENT "Checking that no layer includes a higher one")

add_custom_target(sanitized_tests)

# tidewire_library(name SOURCES files... DEPS targets...)
function(tidewire_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC tidewire_options ${ARG_DEPS})
  add_dependencies(${name} check_layers)
endfunction()

# tidewire_test(name SOURCES files... DEPS targets... LABELS unit|sim|conformance|integration|fault)
# One ctest entry for each program; it writes a JUnit file that scripts/test.sh adds up.
function(tidewire_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE tidewire_options ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Optimising what only checks doubles the build time; the simulator's schedules are the exception.
  if(NOT "sim" IN_LIST ARG_LABELS)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  add_test(NAME ${name}
    COMMAND ${name} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
  # What the sanitizers run: `cmake --build … --target sanitized_tests` builds these and no more.
  if(ARG_LABELS MATCHES "^(unit|sim|conformance)$")
    add_dependencies(sanitized_tests ${name})
  endif()
endfunction()
