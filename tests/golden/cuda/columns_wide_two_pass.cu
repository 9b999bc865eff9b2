// sum of float32: the sum.
// An array of outer x n x inner elements with any strides in; float32 out, accumulated in float32.
// Made by: redtune show --source --op sum --dtype float32 --shape 2x16 --axis 0 --backend cuda --arch sm_90 --fix block=128 --fix vector=4 --fix team=8 --fix split=4 --fix exchange=lds --fix combine=two_pass

constexpr int BLOCK = 128;  // threads per block
constexpr int VECTOR = 4;  // elements per load, at most 16 bytes
constexpr int ITEMS = 4;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread and tile
constexpr int TEAM = 8;  // threads that share a result
constexpr int SECOND_BLOCK = 256;  // threads of the second pass
constexpr int TEAMS = 16;  // teams of a block, each with VECTOR results of its own
constexpr int SECOND_TEAM = 4;  // threads of the second pass that share a result
constexpr int SECOND_TEAMS = 64;  // teams of a block of the second pass
constexpr int AT_ONCE = 64;  // results that a block takes at once
constexpr int TILE = 32;  // elements a team folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange lds: how the lanes of a block meet
// tree sequential: addressing of the tree in shared memory
// combine two_pass: how the blocks meet
// second_launch after: when the second pass is started: after the first has ended, or before that, to wait for it
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef float real_t;  // what the kernel accumulates in
typedef float element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef float result_part_t;
typedef result_part_t result_t;

typedef uint4 raw_t;  // as wide as one load
static __device__ __forceinline__ raw_t load_raw(const element_t *p) {
    return *(const raw_t *)p;
}

// One load: 4 elements.
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

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.total = 0;
    return s;
}

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

// The first state: what is added to nothing loses nothing.
static __device__ __forceinline__ Running begun(State b) {
    const State s = merge(identity(), b);
    Running all = fresh();
    all.total = s.total;
    return all;
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

// The threads of each team of 8 meet: the state returned to the first one covers them all.
static __device__ __forceinline__ State meet_block(State state, State *slots) {
    const int thread = (int)threadIdx.x;
    const int member = thread / TEAMS;
    slots[thread] = state;
    __syncthreads();
    for (int s = 8 / 2; s > 0; s /= 2) {
        if (member < s)
            slots[thread] = merge(slots[thread], slots[thread + s * TEAMS]);
        __syncthreads();
    }
    return slots[thread];
}

// The threads of each team of 4 meet: the state returned to the first one covers them all.
static __device__ __forceinline__ State meet_second(State state, State *slots) {
    const int thread = (int)threadIdx.x;
    const int member = thread % 4;
    slots[thread] = state;
    __syncthreads();
    for (int s = 4 / 2; s > 0; s /= 2) {
        if (member < s)
            slots[thread] = merge(slots[thread], slots[thread + s]);
        __syncthreads();
    }
    return slots[thread];
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_sum_float32_columns(
    const element_t *__restrict__ data, index_t data_first, index_t data_outer, index_t data_n, index_t data_inner,
    index_t n, index_t outer, index_t inner, index_t parts, State *partials, result_t *out, index_t out_outer,
    index_t out_inner)
{
    __shared__ State slots[128];
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;

    // Groups of AT_ONCE results, one after the other. Threads without a result of their own fold nothing, and stay: every
    // thread of a block comes to every barrier.
    const int which = thread % TEAMS;  // neighbouring threads read neighbouring columns
    const int member = thread / TEAMS;
    const index_t results = outer * inner;
    const index_t part = block % parts;
    const index_t groups = (results + AT_ONCE - 1) / AT_ONCE;
    for (index_t group = block / parts; group < groups; group += blocks / parts) {
        const index_t first = group * AT_ONCE + (index_t)which * VECTOR;  // of this thread's results
        const bool has_any = first < results;

        // 1. The columns of this thread. One aligned load has an element of each, where they are neighbours in memory.
        index_t row = has_any ? first / inner : 0;
        index_t column = has_any ? first % inner : 0;
        const index_t n_here = has_any ? n : 0;
        const element_t *in = data + data_first + row * data_outer + column * data_inner;
        const bool is_level = inner % VECTOR == 0 && data_n % VECTOR == 0 && data_outer % VECTOR == 0;
        const bool is_whole = is_level && data_inner == 1 && (address_t)(data + data_first) % sizeof(raw_t) == 0;
        index_t beside[VECTOR];  // where the others begin, from the first one
        index_t r = row, c = column;
        #pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            beside[v] = (r - row) * data_outer + (c - column) * data_inner;
            if (first + v + 1 < results && ++c == inner) {
                c = 0;
                r++;
            }
        }
        const index_t tiles = n_here / TILE;

        // 2. Every thread takes tiles of its columns, and folds each column's elements into a state of its own.
        Running states[VECTOR];
        #pragma unroll
        for (int v = 0; v < VECTOR; v++)
            states[v] = fresh();
        for (index_t tile = part; tile < tiles; tile += parts) {
            const index_t at = tile * TILE + member;
            Pack pack[ITEMS];
            #pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                if (is_whole)
                    pack[k].raw = load_raw(in + (at + k * TEAM) * data_n);
                else {
                    #pragma unroll
                    for (int v = 0; v < VECTOR; v++)
                        pack[k].item[v] = in[(at + k * TEAM) * data_n + beside[v]];
                }
            }
            #pragma unroll
            for (int v = 0; v < VECTOR; v++) {
                Running running = states[v];
                State chain[ACCUMULATORS];
                #pragma unroll
                for (int k = 0; k < ITEMS; k++) {
                    const State one = lift(widen(pack[k].item[v]));
                    if (k < ACCUMULATORS)
                        chain[k] = one;
                    else
                        chain[k % ACCUMULATORS] = merge(chain[k % ACCUMULATORS], one);
                }
                #pragma unroll
                for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
                    #pragma unroll
                    for (int e = 0; e < c; e++)
                        chain[e] = merge(chain[e], chain[e + c]);
                }
                running = gather(running, chain[0]);
                states[v] = running;
            }
        }
        for (index_t i = tiles * TILE + (index_t)part * TEAM + member; i < n_here; i += parts * TEAM) {
            Pack pack[1];
            if (is_whole)
                pack[0].raw = load_raw(in + i * data_n);
            else {
                #pragma unroll
                for (int v = 0; v < VECTOR; v++)
                    pack[0].item[v] = in[i * data_n + beside[v]];
            }
            #pragma unroll
            for (int v = 0; v < VECTOR; v++)
                states[v] = gather(states[v], lift(widen(pack[0].item[v])));
        }

        #pragma unroll
        for (int v = 0; v < VECTOR; v++, column++) {
            if (column == inner) {
                column = 0;
                row++;
            }
            const index_t result = first + v;
            const bool is_there = result < results;
            State state = settled(states[v]);

            // 3. The threads of each team meet: its first thread holds their state.
            state = meet_block(state, slots);

            // 4. The blocks meet.
            if (member == 0 && is_there) {
                if (parts == 1)
                    out[row * out_outer + column * out_inner] = finish(state);
                else
                    partials[result * parts + part] = state;
            }

            __syncthreads();  // shared memory is free for the next group
        }
    }
}

// The second pass: blocks fold what the redtune_sum_float32_columns launch left, in index order.
extern "C" __global__ void __launch_bounds__(SECOND_BLOCK) redtune_sum_float32_columns_second(
    const State *partials, index_t parts, index_t outer, index_t inner, result_t *out, index_t out_outer,
    index_t out_inner)
{
    __shared__ State slots[256];
    const int thread = (int)threadIdx.x;
    const int which = thread / SECOND_TEAM;
    const int member = thread % SECOND_TEAM;
    const index_t results = outer * inner;
    const index_t groups = (results + SECOND_TEAMS - 1) / SECOND_TEAMS;
    for (index_t group = (index_t)blockIdx.x; group < groups; group += (index_t)gridDim.x) {
        const index_t result = group * SECOND_TEAMS + which;
        const bool is_there = result < results;
        index_t i = is_there ? member : parts;
        Running all = i < parts ? begun(partials[result * parts + i]) : fresh();
        for (i += SECOND_TEAM; i < parts; i += SECOND_TEAM)
            all = gather(all, partials[result * parts + i]);
        State state = settled(all);
        state = meet_second(state, slots);
        if (member == 0 && is_there)
            out[result / inner * out_outer + result % inner * out_inner] = finish(state);

        __syncthreads();  // shared memory is free for the next group
    }
}
