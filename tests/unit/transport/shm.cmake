tidewire_test(shm_test
  SOURCES
    shm_death_test.cpp
    shm_guard_test.cpp
    shm_hostile_test.cpp
    shm_transfer_test.cpp
  DEPS
    tidewire_shm)
