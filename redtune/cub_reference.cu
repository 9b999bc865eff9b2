// CUB's device-wide reduction behind a C function, to be measured beside redtune's kernels.
// Compiled with -DELEMENT=float -DRESULT=float -DCALL=Sum.
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" int cub_reduce(void *scratch, size_t *scratch_bytes, const void *data, void *out, long long n, void *stream) {
    return (int)cub::DeviceReduce::CALL(
        scratch, *scratch_bytes, (const ELEMENT *)data, (RESULT *)out, n, (cudaStream_t)stream);
}
