# The control plane's fuzzer: with clang a libFuzzer program (run it on tests/fuzz/control_corpus), with any compiler a test that replays the
# corpus.
tidewire_test(control_replay_test
  SOURCES control_fuzz.cpp control_replay_test.cpp
  DEPS tidewire_control tidewire_metadata
  LABELS unit)
target_compile_definitions(control_replay_test PRIVATE CONTROL_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/control_corpus")

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_executable(control_fuzz control_fuzz.cpp)
  target_link_libraries(control_fuzz PRIVATE tidewire_control tidewire_metadata)
  target_compile_options(control_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_options(control_fuzz PRIVATE -fsanitize=fuzzer)
endif()
