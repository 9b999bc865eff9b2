// the larger of two: 12 chains in the registers of every thread.

constexpr int BLOCK = 256;  // threads per block
constexpr int CHAINS = 12;  // of each thread
constexpr int TURNS = 8;  // steps of each chain between two jumps back

typedef long long index_t;
typedef float real_t;

// One instruction, and NaN wins.
static __device__ __forceinline__ float max_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// The next value of a chain: `b` is that of its neighbour, so that no step can be foreseen.
static __device__ __forceinline__ real_t next(real_t a, real_t b) {
    return max_nan(a, b);
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_arithmetic(real_t *out, index_t rounds)
{
    const index_t self = (index_t)blockIdx.x * BLOCK + (int)threadIdx.x;
    real_t chain[CHAINS];
    #pragma unroll
    for (int k = 0; k < CHAINS; k++)
        chain[k] = (real_t)((self + k) % CHAINS);
    for (index_t round = 0; round < rounds; round++) {
        #pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            #pragma unroll
            for (int k = 0; k < CHAINS; k++)
                chain[k] = next(chain[k], chain[(k + 1) % CHAINS]);
        }
    }
    real_t last = chain[0];
    #pragma unroll
    for (int k = 1; k < CHAINS; k++)
        last += chain[k];
    out[self] = last;  // so that no chain can be left out
}
