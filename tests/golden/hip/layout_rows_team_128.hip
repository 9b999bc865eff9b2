// sum of float32: the sum.
// An array of rows in, each of n neighbouring elements; float32 out, accumulated in float32.
// Made by: redtune show --source --op sum --dtype float32 --shape 2x2 --axis 1 --backend hip --arch gfx942 --fix team=128 --fix combine=two_pass

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 1;  // elements per load, at most 16 bytes
constexpr int ITEMS = 4;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread and tile
constexpr int TEAM = 128;  // threads that share a result
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int TEAMS = 2;  // teams of a block, each with a result of its own
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 512;  // elements a team folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
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

// What is known of some elements.
typedef struct {
    float total;
} State;

// The state of one element.
static __device__ __forceinline__ State lift(value_t x) {
    State s;
    s.total = x;
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
    s.total = a.total + b.total;
    return s;
}

// What a thread has folded so far, and what its sums have lost to rounding.
typedef struct {
    float total;
    float total_lost;
} Running;

// Nothing folded so far.
static __device__ __forceinline__ Running fresh(void) {
    Running s;
    s.total = 0;
    s.total_lost = 0;
    return s;
}

// One state more.
static __device__ __forceinline__ Running gather(Running a, State b) {
    Running s;
    s.total = add(a.total, b.total, a.total_lost, &s.total_lost);
    return s;
}

// The state to hand on: what is left of the losses by now is less than half a unit in the last place.
static __device__ __forceinline__ State settled(Running a) {
    State s;
    s.total = a.total;
    return s;
}

// The result of a state.
static __device__ __forceinline__ result_t finish(State a) {
    return (result_part_t)a.total;
}

// The state of the lane `offset` further on.
static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.total = __shfl_down(s.total, offset, LANES);
    return s;
}

// The threads of each team of 128 meet: the state returned to the first one covers them all.
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
    // The first thread folds what the 4 tails left, in pairs: sooner than lanes can hand it on.
    if (thread % 128 == 0) {
        State part[4];
        #pragma unroll
        for (int i = 0; i < 4; i++)
            part[i] = slots[thread / 128 * 4 + i];
        #pragma unroll
        for (int i = 0; i < 2; i++)
            part[i] = merge(part[i], part[i + 2]);
        #pragma unroll
        for (int i = 0; i < 1; i++)
            part[i] = merge(part[i], part[i + 1]);
        state = part[0];
    }
    return state;
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_sum_float32_rows(
    const element_t *__restrict__ data, index_t data_first, index_t data_outer, index_t n, index_t outer,
    result_t *out, index_t out_outer)
{
    __shared__ State slots[8];
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;

    // Groups of TEAMS results, one after the other. Threads without a result of their own fold nothing, and stay: every
    // thread of a block comes to every barrier.
    const int which = thread / TEAM;
    const int member = thread % TEAM;
    const index_t results = outer;
    const index_t part = 0, parts = 1;  // no two blocks share a result
    const index_t groups = (results + TEAMS - 1) / TEAMS;
    for (index_t group = block / parts; group < groups; group += blocks / parts) {
        const index_t result = group * TEAMS + which;
        const bool is_there = result < results;

        // 1. The share of this team.
        const index_t row = is_there ? result : 0;
        const index_t n_here = is_there ? n : 0;
        const element_t *in = data + data_first + row * data_outer;
        const index_t head = 0;
        const index_t tiles = (n_here - head) / TILE;

        // 2. Every thread folds the elements of a tile into independent chains, and the tile into its state.
        Running running = fresh();
        for (index_t tile = part; tile < tiles; tile += parts) {
            const index_t at = head + tile * TILE + (index_t)member * VECTOR;
            Pack pack[ITEMS];
            #pragma unroll
            for (int k = 0; k < ITEMS; k++)
                pack[k].raw = load_raw(in + at + k * (TEAM * VECTOR));
            State chain[ACCUMULATORS];
            #pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                #pragma unroll
                for (int j = 0; j < VECTOR; j++) {
                    const int e = k * VECTOR + j;
                    const State one = lift(widen(pack[k].item[j]));
                    if (e < ACCUMULATORS)
                        chain[e] = one;
                    else
                        chain[e % ACCUMULATORS] = merge(chain[e % ACCUMULATORS], one);
                }
            }
            #pragma unroll
            for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
                #pragma unroll
                for (int e = 0; e < c; e++)
                    chain[e] = merge(chain[e], chain[e + c]);
            }
            running = gather(running, chain[0]);
        }
        for (index_t i = head + tiles * TILE + (index_t)part * TEAM + member; i < n_here; i += parts * TEAM)
            running = gather(running, lift(widen(in[i])));
        State state = settled(running);

        // 3. The threads of each team meet: its first thread holds their state.
        state = meet_block(state, slots);

        // 4. Every team has a result.
        if (member == 0 && is_there)
            out[result * out_outer] = finish(state);
        __syncthreads();  // shared memory is free for the next group
    }
}
