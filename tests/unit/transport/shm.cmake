tidewire_test(shm_test
  SOURCES
    shm_death_test.cpp
    shm_guard_test.cpp
    shm_hostile_test.cpp
    shm_transfer_test.cpp
  DEPS
    tidewire_shm)

# For tuning by hand; no test.
add_executable(shm_probe EXCLUDE_FROM_ALL shm_probe.cpp)
target_link_libraries(shm_probe PRIVATE tidewire_shm)
set_target_properties(shm_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
