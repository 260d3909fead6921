# The TCP lane's fuzzer: with clang a libFuzzer program, with any compiler a test over seeded inputs.
tidewire_test(tcp_replay_test SOURCES tcp_fuzz.cpp tcp_replay_test.cpp DEPS tidewire_tcp LABELS unit)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_executable(tcp_fuzz tcp_fuzz.cpp)
  target_link_libraries(tcp_fuzz PRIVATE tidewire_tcp)
  target_compile_options(tcp_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_options(tcp_fuzz PRIVATE -fsanitize=fuzzer)
endif()
