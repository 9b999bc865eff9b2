// the larger of two: 12 chains in the registers of every thread.

#define BLOCK 64  // threads per block
#define CHAINS 12  // of each thread
#define TURNS 8  // steps of each chain between two jumps back

typedef long index_t;
typedef float real_t;

// The next value of a chain: `b` is that of its neighbour, so that no step can be foreseen.
static inline real_t next(real_t a, real_t b) {
    return ((a > b) | (a != a)) ? a : b;
}

__attribute__((reqd_work_group_size(BLOCK, 1, 1)))
__kernel void redtune_arithmetic(__global real_t *out, index_t rounds)
{
    const index_t self = (index_t)get_group_id(0) * BLOCK + (int)get_local_id(0);
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
