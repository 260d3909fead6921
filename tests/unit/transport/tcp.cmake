tidewire_test(tcp_logic_test SOURCES tcp_lane_ledger_test.cpp tcp_pure_test.cpp tcp_staged_test.cpp tcp_wire_test.cpp DEPS tidewire_tcp)
tidewire_test(tcp_transfer_test SOURCES tcp_transfer_test.cpp DEPS tidewire_tcp)
tidewire_test(tcp_lane_test SOURCES tcp_ending_test.cpp tcp_hostile_test.cpp tcp_revoke_test.cpp tcp_stall_test.cpp DEPS tidewire_tcp)
