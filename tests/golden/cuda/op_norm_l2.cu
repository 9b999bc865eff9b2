// norm_l2 of float32: the Euclidean norm; no square overflows or underflows.
// An array of any length and alignment in; float32 out, accumulated in float32.
// Made by: redtune show --source --op norm_l2 --dtype float32 --backend cuda --arch sm_90

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 1;  // elements per load, at most 16 bytes
constexpr int ITEMS = 4;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread and tile
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 1024;  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine last_block: how the blocks meet
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef float real_t;  // what the kernel accumulates in
typedef float element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef float result_part_t;
typedef result_part_t result_t;

typedef unsigned int raw_t;  // as wide as one load
static __device__ __forceinline__ raw_t load_raw(const element_t *p) {
    return *(const raw_t *)p;
}

// One load: 1 element.
typedef union {
    raw_t raw;
    element_t item[VECTOR];
} Pack;

static __device__ __forceinline__ value_t widen(element_t x) {
    return (value_t)x;
}

// One instruction, and NaN wins.
static __device__ __forceinline__ float max_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// What is known of some elements.
typedef struct {
    float tiny;
    float ordinary;
    float huge;
} State;

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.tiny = 0;
    s.ordinary = 0;
    s.huge = 0;
    return s;
}

// The state of one element.
static __device__ __forceinline__ State lift(value_t x) {
    State s;
    s.tiny = (fabs(x) < 0x1p-50f) ? ((x * 0x1p90f) * (x * 0x1p90f)) : 0;
    s.ordinary = ((fabs(x) > 0x1p43f) | (fabs(x) < 0x1p-50f)) ? 0 : (x * x);
    s.huge = (fabs(x) > 0x1p43f) ? ((x * 0x1p-85f) * (x * 0x1p-85f)) : 0;
    return s;
}

// a + b, and in `lost` what rounding takes from it, what was lost before included.
static __device__ __forceinline__ real_t add(real_t a, real_t b, real_t lost_before, real_t *lost) {
    const real_t sum = a + b;
    const real_t b_taken = sum - a;
    real_t rest = ((a - (sum - b_taken)) + (b - b_taken)) + lost_before;
    rest = rest == rest ? rest : 0;  // an infinite sum has lost nothing
    const real_t total = sum + rest;
    *lost = rest - (total - sum);
    return total;
}

// The state of two sets of elements together.
static __device__ __forceinline__ State merge(State a, State b) {
    State s;
    s.tiny = a.tiny + b.tiny;
    s.ordinary = a.ordinary + b.ordinary;
    s.huge = a.huge + b.huge;
    return s;
}

// What a thread has folded so far, and what its sums have lost to rounding.
typedef struct {
    float tiny;
    float ordinary;
    float huge;
    float tiny_lost;
    float ordinary_lost;
    float huge_lost;
} Running;

// Nothing folded so far.
static __device__ __forceinline__ Running fresh(void) {
    Running s;
    s.tiny = 0;
    s.ordinary = 0;
    s.huge = 0;
    s.tiny_lost = 0;
    s.ordinary_lost = 0;
    s.huge_lost = 0;
    return s;
}

// The first state: what is added to nothing loses nothing.
static __device__ __forceinline__ Running begun(State b) {
    const State s = merge(identity(), b);
    Running all = fresh();
    all.tiny = s.tiny;
    all.ordinary = s.ordinary;
    all.huge = s.huge;
    return all;
}

// One state more.
static __device__ __forceinline__ Running gather(Running a, State b) {
    Running s;
    s.tiny = add(a.tiny, b.tiny, a.tiny_lost, &s.tiny_lost);
    s.ordinary = add(a.ordinary, b.ordinary, a.ordinary_lost, &s.ordinary_lost);
    s.huge = add(a.huge, b.huge, a.huge_lost, &s.huge_lost);
    return s;
}

// The state to hand on: what is left of the losses by now is less than half a unit in the last place.
static __device__ __forceinline__ State settled(Running a) {
    State s;
    s.tiny = a.tiny;
    s.ordinary = a.ordinary;
    s.huge = a.huge;
    return s;
}

// The first sweep over a tile: what elements have in common.
static __device__ __forceinline__ value_t in_common(value_t a, value_t b) {
    return max_nan(a, b);
}

// The result of a state.
static __device__ __forceinline__ result_t finish(State a) {
    return (result_part_t)(sqrt((a.huge > 0) ? (a.huge + ((a.ordinary * 0x1p-85f) * 0x1p-85f)) : ((a.ordinary == 0) ? a.tiny : (a.ordinary + ((a.tiny / 0x1p90f) / 0x1p90f)))) * ((a.huge > 0) ? (1 / 0x1p-85f) : ((a.ordinary == 0) ? (1 / 0x1p90f) : 1)));
}

// The state of the lane `offset` further on.
static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.tiny = __shfl_down_sync(0xffffffffu, s.tiny, offset);
    s.ordinary = __shfl_down_sync(0xffffffffu, s.ordinary, offset);
    s.huge = __shfl_down_sync(0xffffffffu, s.huge, offset);
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

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_norm_l2_float32(
    const element_t *__restrict__ data, index_t data_first, index_t n, State *partials, unsigned int *counter,
    result_t *out)
{
    __shared__ State slots[8];
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;
    __shared__ int is_last;

    // 1. The share of this block.
    const element_t *in = data + data_first;
    const index_t head = 0;
    const index_t tiles = (n - head) / TILE;

    // 2. Every thread goes over the elements of a tile twice, and merges the tile into its state.
    Running running = fresh();
    for (index_t tile = block; tile < tiles; tile += blocks) {
        const index_t at = head + tile * TILE + (index_t)thread * VECTOR;
        Pack pack[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++)
            pack[k].raw = load_raw(in + at + k * (BLOCK * VECTOR));
        value_t common[ACCUMULATORS];  // what they have in common, in independent chains
        #pragma unroll
        for (int e = 0; e < ITEMS * VECTOR; e++) {
            const int k = e / VECTOR, j = e % VECTOR;
            const value_t x = widen(pack[k].item[j]);
            const value_t one = fabs(x);
            common[e % ACCUMULATORS] = e < ACCUMULATORS ? one : in_common(common[e % ACCUMULATORS], one);
        }
        #pragma unroll
        for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
            #pragma unroll
            for (int e = 0; e < c; e++)
                common[e] = in_common(common[e], common[e + c]);
        }
        const value_t a = common[0];
        const value_t t = a;
        {
            value_t sum[ACCUMULATORS];  // what each adds, now that this is known
            #pragma unroll
            for (int e = 0; e < ITEMS * VECTOR; e++) {
                const int k = e / VECTOR, j = e % VECTOR;
                const value_t x = widen(pack[k].item[j]);
                const value_t one = (x * ((t > 0x1p43f) ? 0x1p-85f : ((t < 0x1p-50f) ? 0x1p90f : 1))) * (x * ((t > 0x1p43f) ? 0x1p-85f : ((t < 0x1p-50f) ? 0x1p90f : 1)));
                sum[e % ACCUMULATORS] = e < ACCUMULATORS ? one : sum[e % ACCUMULATORS] + one;
            }
            #pragma unroll
            for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
                #pragma unroll
                for (int e = 0; e < c; e++)
                    sum[e] = sum[e] + sum[e + c];
            }
            const value_t s = sum[0];
            State whole;
            whole.tiny = (t < 0x1p-50f) ? s : 0;
            whole.ordinary = ((t > 0x1p43f) | (t < 0x1p-50f)) ? 0 : s;
            whole.huge = (t > 0x1p43f) ? s : 0;
            running = gather(running, whole);
        }
    }
    for (index_t i = head + tiles * TILE + (index_t)block * BLOCK + thread; i < n; i += blocks * BLOCK)
        running = gather(running, lift(widen(in[i])));
    State state = settled(running);

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
            index_t i = thread;
            Running all = i < blocks ? begun(partials[i]) : fresh();
            for (i += BLOCK; i < blocks; i += BLOCK)
                all = gather(all, partials[i]);
            state = settled(all);
            state = meet_block(state, slots);
            if (thread == 0)
                out[0] = finish(state);
            if (thread == 0)
                counter[0] = 0;  // ready for the next launch
        }
    }
}
