// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the driver's libcuda.so.1: addresses 0xD000'0000'0000 to 0xD001'0000'0000 are device memory, the 256
// bytes at 0xD002'0000'0000 are managed memory.
extern "C" __attribute__((visibility("default"))) int cuPointerGetAttribute(void* data, int attribute,
                                                                            unsigned long long pointer) {
  const bool device = pointer >= 0xD00000000000 && pointer < 0xD00100000000;
  const bool managed = pointer >= 0xD00200000000 && pointer < 0xD00200000100;
  if (!device && !managed) return 1;  // CUDA_ERROR_INVALID_VALUE, as for plain host memory
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(data) = device ? 2 : 1;
      return 0;
    case 8:
      *static_cast<unsigned*>(data) = managed ? 1 : 0;
      return 0;
    case 9:
      *static_cast<int*>(data) = 3;
      return 0;
    default:
      return 1;
  }
}
