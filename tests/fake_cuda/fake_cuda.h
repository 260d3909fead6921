// SPDX-License-Identifier: Apache-2.0
//
// What the stand-in for libcuda.so.1 offers beside NVIDIA's interface. Its device memory is protected pages that the
// host may not touch, its copies run on threads of their streams at a set rate, every call that needs a context checks
// for one. Environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_RATE (bytes a second each stream copies; 0 = at once),
// CUDA_VISIBLE_DEVICES as for the real driver.
#pragma once

#include <cstdint>

extern "C" {
// kind: "device", "virtual", "pooled", "managed". 0 when there is none left.
unsigned long long fake_cuda_allocate(int device, uint64_t bytes, const char* kind);
void fake_cuda_free(unsigned long long address);
void fake_cuda_set_rate(uint64_t bytes_per_second);
// The call of `function` after `skip` more of them, and every later one, fails with `error`; 0 ends that.
void fake_cuda_fail(const char* function, int error, int skip);
// What cuDeviceGetAttribute answers from now on.
void fake_cuda_set_attribute(int device_attribute, int value);
uint64_t fake_cuda_copies();  // started so far
}
