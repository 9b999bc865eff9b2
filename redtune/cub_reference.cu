// CUB's reductions behind a C function, to be measured beside redtune's kernels.
//
// Compiled with -DELEMENT=float -DACC=float -DRESULT=float (types of elements, running value and result), -DROWS=0 or 1
// (one result, or one for each row) and one of
//   -DNAMED=Max            a reduction that has a name in CUB, of elements as they are
//   -DINDEX=ArgMax         one that gives an index
//   -DOP=... -DLIFT=... -DINIT=... -DFINISH=...   any other: how values meet, what becomes of an element x, where the
//                          running value begins, what becomes of the last one, a, of n elements
#include <cub/cub.cuh>
#include <cuda/functional>
#include <cuda/std/functional>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

#ifdef CCCL_VERSION
extern "C" int cub_version() { return CCCL_VERSION; }
#else
extern "C" int cub_version() { return CUB_VERSION / 100000 * 1000000 + CUB_VERSION / 100 % 1000 * 1000 + CUB_VERSION % 100; }
#endif

struct RowBegin {
    long long n;
    __host__ __device__ long long operator()(long long row) const { return row * n; }
};

#ifdef OP
struct Lift {
    __host__ __device__ ACC operator()(ELEMENT x) const { return (ACC)(LIFT); }
};
#ifdef FINISH
struct Finish {
    long long n;
    __host__ __device__ RESULT operator()(ACC a) const { return (RESULT)(FINISH); }
};
#endif
#endif

extern "C" int cub_reduce(
    void *scratch, size_t *scratch_bytes, const void *data, void *out, long long results, long long n, void *on) {
    const ELEMENT *in = (const ELEMENT *)data;
    cudaStream_t stream = (cudaStream_t)on;
#ifdef FINISH
    auto to = thrust::make_transform_output_iterator((RESULT *)out, Finish{n});
#else
    RESULT *to = (RESULT *)out;
#endif
#if ROWS
    auto begin = thrust::make_transform_iterator(thrust::make_counting_iterator(0ll), RowBegin{n});
#if defined(INDEX)
    auto pairs = (cub::KeyValuePair<int, ELEMENT> *)out;
    return (int)cub::DeviceSegmentedReduce::INDEX(scratch, *scratch_bytes, in, pairs, results, begin, begin + 1, stream);
#elif defined(NAMED)
#if CCCL_VERSION >= 3001000
    return (int)cub::DeviceSegmentedReduce::NAMED(scratch, *scratch_bytes, in, to, results, (int)n, stream);
#else
    return (int)cub::DeviceSegmentedReduce::NAMED(scratch, *scratch_bytes, in, to, results, begin, begin + 1, stream);
#endif
#else
#ifdef PLAIN
    auto lifted = in;
#else
    auto lifted = thrust::make_transform_iterator(in, Lift{});
#endif
#if CCCL_VERSION >= 3001000
    return (int)cub::DeviceSegmentedReduce::Reduce(
        scratch, *scratch_bytes, lifted, to, results, (int)n, OP{}, (ACC)(INIT), stream);
#else
    return (int)cub::DeviceSegmentedReduce::Reduce(
        scratch, *scratch_bytes, lifted, to, results, begin, begin + 1, OP{}, (ACC)(INIT), stream);
#endif
#endif
#else
#if defined(INDEX)
    return (int)cub::DeviceReduce::INDEX(
        scratch, *scratch_bytes, in, (ELEMENT *)((char *)out + 8), (long long *)out, n, stream);
#elif defined(NAMED)
    return (int)cub::DeviceReduce::NAMED(scratch, *scratch_bytes, in, to, n, stream);
#elif defined(PLAIN)
    return (int)cub::DeviceReduce::Reduce(scratch, *scratch_bytes, in, to, n, OP{}, (ACC)(INIT), stream);
#else
    return (int)cub::DeviceReduce::TransformReduce(
        scratch, *scratch_bytes, in, to, n, OP{}, Lift{}, (ACC)(INIT), stream);
#endif
#endif
}
