// argmax of int16: the index of the largest value; the first NaN wins, of equals the lowest index.
// An array of any length and alignment in; int64 out, accumulated in int32.
// Made by: redtune show --source --op argmax --dtype int16 --backend cuda --arch sm_90 --fix vector=8 --fix items=2

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 8;  // elements per load, at most 16 bytes
constexpr int ITEMS = 2;  // independent loads in flight per thread before the fold
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 4096;  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine last_block: how the blocks meet
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef int real_t;  // what the kernel accumulates in
typedef short element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef long long result_part_t;
typedef result_part_t result_t;

typedef uint4 raw_t;  // as wide as one load
static __device__ __forceinline__ raw_t load_raw(const element_t *p) {
    return *(const raw_t *)p;
}

// One load: 8 elements.
typedef union {
    raw_t raw;
    element_t item[VECTOR];
    unsigned int word[sizeof(raw_t) / sizeof(unsigned int)];
} Pack;

static __device__ __forceinline__ value_t widen(element_t x) {
    return (value_t)x;
}

// What is known of some elements.
typedef struct {
    int value;
    long long index;
} State;

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.value = (-2147483647 - 1);
    s.index = 9223372036854775807LL;
    return s;
}

// The state of one element at index i.
static __device__ __forceinline__ State lift(value_t x, index_t i) {
    State s;
    s.value = x;
    s.index = (long long)(i);
    return s;
}

// The state of two sets of elements together.
static __device__ __forceinline__ State merge(State a, State b) {
    State s;
    const bool wins = ((a.value > b.value) == (b.value > a.value)) ? (a.index < b.index) : (a.value > b.value);
    s.value = wins ? a.value : b.value;
    s.index = wins ? a.index : b.index;
    return s;
}

// The first sweep over a tile: what elements have in common.
static __device__ __forceinline__ value_t in_common(value_t a, value_t b) {
    return a > b ? a : b;
}

// Whether a tile with `t` in common adds anything to a state.
static __device__ __forceinline__ bool counts(State a, value_t t) {
    return ((t > a.value) > (a.value > t)) | (a.index == 9223372036854775807LL);
}

// The result of a state.
static __device__ __forceinline__ result_t finish(State a) {
    return (result_part_t)a.index;
}

// The state of the lane `offset` further on.
static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.value = __shfl_down_sync(0xffffffffu, s.value, offset);
    s.index = __shfl_down_sync(0xffffffffu, s.index, offset);
    return s;
}

// Counts one more block and says how many came before, with release and acquire towards all blocks.
static __device__ __forceinline__ unsigned int count_up(unsigned int *counter) {
    unsigned int before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

// The threads of a block of 256 meet: the state returned to the first one covers them all.
static __device__ __forceinline__ State meet_block(State state, State *slots) {
    const int thread = (int)threadIdx.x;
    state = merge(state, shuffle_down(state, 16));
    state = merge(state, shuffle_down(state, 8));
    state = merge(state, shuffle_down(state, 4));
    state = merge(state, shuffle_down(state, 2));
    state = merge(state, shuffle_down(state, 1));
    const int lane = thread % LANES;
    if (lane == 0)
        slots[thread / WAVE] = state;
    __syncthreads();
    // The first lanes fold what the 8 tails left.
    if (thread < LANES) {
        state = identity();
        if (lane < 8)
            state = slots[lane];
        state = merge(state, shuffle_down(state, 4));
        state = merge(state, shuffle_down(state, 2));
        state = merge(state, shuffle_down(state, 1));
    }
    return state;
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_argmax_int16(
    const element_t *__restrict__ data, index_t data_first, index_t n, State *partials, unsigned int *counter,
    result_t *out)
{
    __shared__ State slots[8];
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;
    __shared__ int is_last;

    // 1. The share of this block. Loads of VECTOR elements need an aligned address, so the elements before the first one
    //    and those after the last whole tile are folded one by one.
    const element_t *in = data + data_first;
    index_t head = (index_t)((0 - (address_t)in) % sizeof(raw_t) / sizeof(element_t));
    if (head > n)
        head = n;
    const index_t tiles = (n - head) / TILE;

    // 2. Every thread goes over the elements of a tile twice, and merges the tile into its state.
    State state = identity();
    for (index_t tile = block; tile < tiles; tile += blocks) {
        const index_t at = head + tile * TILE + (index_t)thread * VECTOR;
        Pack pack[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++)
            pack[k].raw = load_raw(in + at + k * (BLOCK * VECTOR));
        unsigned int packed[1] = {0x80008000u};
        #pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            #pragma unroll
            for (int w = 0; w < (int)(sizeof(raw_t) / sizeof(unsigned int)); w++) {
                const unsigned int word = pack[k].word[w];
                packed[0] = __vmaxs2(packed[0], word);
            }
        }
        value_t a = (short)(packed[0] & 0xffffu);
        a = in_common(a, (short)(packed[0] >> 16));
        const value_t t = a;
        if (counts(state, t)) {
            int where = 0;  // the first of the elements in question
            #pragma unroll
            for (int e = ITEMS * VECTOR - 1; e >= 0; e--) {
                const int k = e / VECTOR, j = e % VECTOR;
                const value_t x = widen(pack[k].item[j]);
                if (x == t)
                    where = e;
            }
            const int k = where / VECTOR, j = where % VECTOR;
            const index_t i = at + (k * (BLOCK * VECTOR) + j);
            State whole;
            whole.value = t;
            whole.index = i;
            state = whole;
        }
    }
    for (index_t i = (index_t)block * BLOCK + thread; i < head; i += blocks * BLOCK)
        state = merge(state, lift(widen(in[i]), i));
    for (index_t i = head + tiles * TILE + (index_t)block * BLOCK + thread; i < n; i += blocks * BLOCK)
        state = merge(state, lift(widen(in[i]), i));

    // 3. The threads of the block meet: thread 0 holds the block's state.
    state = meet_block(state, slots);

    // 4. The blocks meet.
    if (blocks == 1) {
        if (thread == 0)
            out[0] = finish(state);
    } else {
        if (thread == 0) {
            partials[block] = state;
            // Release before the count makes this block's state visible, acquire after it shows the others'.
            is_last = count_up(counter) == (unsigned int)(blocks - 1);
        }
        __syncthreads();
        if (is_last) {
            state = identity();
            for (index_t i = thread; i < blocks; i += BLOCK)
                state = merge(state, partials[i]);
            state = meet_block(state, slots);
            if (thread == 0)
                out[0] = finish(state);
            if (thread == 0)
                counter[0] = 0;  // ready for the next launch
        }
    }
}
