"""The table of ways to break a kernel, by what they break: how threads wait, where elements are, how threads and blocks
meet, what an operator means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.device.mutants import Host, Mutation, on

TREES = ("interleaved", "strided", "sequential", "unrolled", "last_wave")
LAST: dict[str, Any] = {"combine": "last_block"}
TWO: dict[str, Any] = {"combine": "two_pass"}
TEAM: dict[str, Any] = {"team": 16, "blocks_per_cu": 1}
PARTS: dict[str, Any] = {**TEAM, "split": 2, **LAST}

PLAIN = Host(knobs=LAST)  # shuffles, and the last block folds
WIDE = Host(knobs={"vector": 4, **TWO})
WIDE_TREE = Host(knobs={"vector": 4, "exchange": "lds", "tree": "sequential", **TWO})
CHUNK = Host(knobs={"walk": "chunk", **TWO})
TILE = Host(knobs={"walk": "tile", **TWO})
SECOND = Host(knobs=TWO)
CHAINS = Host(knobs={"items": 8, "accumulators": 4, **TWO})
THREE_TAILS = Host(knobs={"block": 96, **LAST})
MANY = Host(knobs={"walk": "tile", **LAST})  # more blocks than a block has threads
MANY_SECOND = Host(knobs={"walk": "tile", **TWO, "second_block": 64})
JOINED_TREE = Host(knobs={"wave": 64, "block": 256, "exchange": "lds", "tree": "unrolled", **TWO})
JOINED = Host(knobs={"wave": 64, "block": 256, **LAST})
HALVED = Host(knobs={"wave": 16, **LAST})
ATOMIC = Host(knobs={"combine": "atomic"})
SWAPPED = Host("max", "float32", knobs={"combine": "atomic"})
COLLECTOR = Host(knobs={"combine": "collector"})
TALLY = Host("sum", "int64", knobs={"combine": "tally"})
TALLY_ANY, TALLY_ALL = (Host(op, "int32", knobs={"combine": "tally"}) for op in ("any", "all"))
CLUSTER = Host(knobs={"combine": "cluster", "cluster": 4})
LIGHT = Host("bitwise_xor", "uint32", knobs=LAST)  # one thread folds what tails left
REDUX = Host("bitwise_xor", "uint32", knobs={"exchange": "redux", **LAST})
ROWS = Host(layout="rows", knobs={**TEAM, "split": 1})
ROW_PARTS = Host(layout="rows", knobs=PARTS)
ROW_QUARTERS = Host(layout="rows", knobs={**PARTS, "split": 4})
ROW_SECOND = Host(layout="rows", knobs={**PARTS, **TWO})
COLUMNS = Host(layout="columns", knobs={**TEAM, "split": 1, "exchange": "lds", "tree": "sequential"})
COLUMN_PARTS = Host(layout="columns", knobs={**PARTS, "exchange": "lds", "tree": "sequential"})
FLAT_TREES = tuple(Host(knobs={"exchange": "lds", "tree": tree, **TWO}) for tree in TREES)
# Enough parts for a second pass with more than one step.
OF_TEAMS: dict[str, Any] = {**PARTS, **TWO, "split": 8, "exchange": "lds"}
TEAM_TREES = tuple(Host(layout="rows", knobs={**OF_TEAMS, "tree": tree}) for tree in TREES[:3])
COLUMN_TREES = tuple(replace(host, layout="columns") for host in TEAM_TREES)
UNROLLED = FLAT_TREES[3]

WAITING = (
    Mutation(
        "a barrier removed",
        "{BARRIER}",
        ";",
        (*FLAT_TREES, PLAIN, JOINED, JOINED_TREE, REDUX, ROW_PARTS, COLUMN_PARTS, *TEAM_TREES, *COLUMN_TREES),
        is_each=True,
        is_race=True,
    ),
    Mutation(
        "a barrier in a branch",
        "{BARRIER}",
        r"if (thread < 32) \g<0>",
        (FLAT_TREES[0], FLAT_TREES[2], PLAIN),
        is_each=True,
        is_race=True,
    ),
    Mutation("lanes that do not wait", "{LANES_MEET}", ";", (UNROLLED,), is_race=True),
    Mutation(
        "half of a wide tail that does not wait", r"tail_barrier\(tail\);", ";", (JOINED,), only=("cuda",), is_race=True
    ),
    Mutation("a cluster that does not wait", r"cluster_barrier\(\);(?! )", ";", (CLUSTER,), is_race=True),
)

WALKING = (
    Mutation("a tail skipped", r"i = head \+ tiles \* TILE", "i = n + head + tiles * TILE", (WIDE, PLAIN)),
    Mutation("a tail skipped in rows", r"i = head \+ tiles \* TILE", "i = n_here + head + tiles * TILE", (ROWS,)),
    Mutation("a tail skipped in columns", r"i = tiles \* TILE", "i = n_here + tiles * TILE", (COLUMNS,)),
    Mutation("a head skipped", "i < head;", "i < head - 1;", (WIDE,)),
    Mutation(
        "a tail read twice", r"(i = head \+ tiles \* TILE .*\n)( *)(state = .*;)", r"\1\2{ \3 \3 }", (WIDE, PLAIN)
    ),
    Mutation(
        "the last tile read twice",
        r"i = head \+ tiles \* TILE",
        "i = head + (tiles > 0 ? tiles - 1 : 0) * TILE",
        (WIDE,),
    ),
    Mutation("the last element left out", r"i < n(_here)?;", r"i < n\1 - 1;", (WIDE, PLAIN, ROWS, COLUMNS)),
    Mutation("one element too many", r"i < n(_here)?;", r"i <= n\1;", (WIDE, PLAIN, ROWS, COLUMNS)),
    Mutation("the last tile left out", "tile < tiles;", "tile < tiles - 1;", (PLAIN, ROWS, COLUMNS)),
    Mutation("the last tile left out of one", r"if \(tile < tiles\)", "if (tile < tiles - 1)", (TILE,)),
    Mutation("a stride too long", r"tile \+= (blocks|parts)", r"tile += \1 + 1", (PLAIN, ROW_PARTS, COLUMN_PARTS)),
    Mutation("chunks that end a tile early", r"\+ \((\w+) < extra \? 1 : 0\)", "+ 0", (CHUNK,)),
    Mutation("chunks that begin a tile early", r"\((\w+) < extra \? \w+ : extra\)", "0", (CHUNK,)),
    Mutation(
        "loads that overlap",
        r"k \* \((BLOCK|TEAM) \* VECTOR\)\)",
        r"k * \1)",
        (WIDE, Host(layout="rows", knobs={**TEAM, "split": 1, "vector": 4})),
    ),
    Mutation(
        "the last item left out",
        r"for \(int k = 0; k < ITEMS; k\+\+\) \{{",
        "for (int k = 0; k < ITEMS - 1; k++) {",
        (CHAINS,),
    ),
    Mutation("chains that forget", r"= (merge|fold)\(chain\[e % ACCUMULATORS\], one\)", "= one", (CHAINS,)),
    Mutation("chains left out", r"c > 0; c /= 2", "c > 1; c /= 2", (CHAINS,)),
    Mutation("a wide load assumed aligned", r"% sizeof\(raw_t\)", "% 1", (WIDE_TREE, WIDE)),
    Mutation("a head longer than the data", r"if \(head > n\)\n *head = n;", ";", (WIDE,)),
    Mutation("a start forgotten", r"data \+ data_first", "data", (WIDE, ROWS, COLUMNS)),
    Mutation("rows without gaps", r"row \* data_outer", "row * n", (ROWS,)),
    Mutation("columns without gaps", r"c \* data_inner", "c", (COLUMNS,)),
    Mutation("planes without gaps", r"o \* data_outer", "o * n * inner", (COLUMNS,)),
    Mutation("elements of a column without gaps", r"\) \* data_n\]", ") * inner]", (COLUMNS,)),
    Mutation("results without gaps", r"out\[result \* out_outer\]", "out[result]", (ROWS,)),
    Mutation("results of columns without gaps", r"result % inner \* out_inner", "result % inner", (COLUMNS,)),
    Mutation("the last group left out", "group < groups;", "group < groups - 1;", (ROWS, COLUMNS)),
    Mutation("groups rounded down", r"results \+ TEAMS - 1", "results", (ROWS, COLUMNS)),
    Mutation("groups of a second pass rounded down", r"results \+ SECOND_TEAMS - 1", "results", (ROW_SECOND,)),
    Mutation(
        "teams of other threads in a second pass", r"thread / SECOND_TEAM", "thread % SECOND_TEAMS", (ROW_SECOND,)
    ),
    Mutation("a group too far apart", r"group \+= blocks / parts", "group += blocks / parts + 1", (ROWS, COLUMN_PARTS)),
    Mutation("teams that are not there and store", r"member == 0 && is_there", "member == 0", (ROWS, COLUMNS)),
    Mutation("teams of other threads", r"which = thread / TEAM", "which = thread % TEAMS", (ROWS,)),
    Mutation(
        "columns of other threads",
        r"member = thread / TEAMS;(\n *const index_t)",
        r"member = thread % TEAM;\1",
        (COLUMNS,),
    ),
    Mutation(
        "an index of 32 bits",
        "{INDEX}",
        "typedef int index_t;",
        (Host("max", "int8", shape=(1, 2**31 + 4099, 1), knobs=TWO),),
        only=("cuda",),
    ),
)

MEETING = (
    Mutation(
        "a shuffle left out",
        r"( *)state = merge\(state, shuffle_down\(state, \d+\)\);",
        r"\1;",
        (PLAIN, ROWS),
        is_each=True,
    ),
    Mutation("a shuffle of another distance", r"shuffle_down\(state, 8\)", "shuffle_down(state, 4)", (PLAIN, JOINED)),
    Mutation("a shuffle twice", r"(state = merge\(state, shuffle_down\(state, 1\)\);)", r"\1 \1", (PLAIN, HALVED)),
    Mutation("a mask of half a wave", "0xffffffffu", "0x0000ffffu", (PLAIN, REDUX), only=("cuda",), is_race=True),
    Mutation(
        "a shuffle of half the width",
        r"(__shfl_down_sync\(0xffffffffu, s\.\w+, offset)\)",
        r"\1, 16)",
        (PLAIN,),
        only=("cuda",),
    ),
    Mutation(
        "lanes past the tails that keep their state",
        r"state = identity\(\);\n( *)if \(lane",
        r"\1if (lane",
        (THREE_TAILS,),
    ),
    Mutation("the last tail left out", r"if \(lane < (\d+)\)", r"if (lane < \1 - 1)", (PLAIN, HALVED, REDUX)),
    Mutation("tails that leave their second lane", r"if \(lane == 0\)", "if (lane == 1)", (PLAIN, JOINED)),
    Mutation(
        "a tail in another's place",
        r"slots\[(thread / WAVE|get_sub_group_id\(\))\] = state",
        "slots[0] = state",
        (PLAIN, LIGHT),
        is_race=True,
    ),
    Mutation(
        "a tail that one thread leaves out",
        r"part\[i\] = merge\(part\[i\], part\[i \+ \d+\]\);",
        ";",
        (LIGHT,),
        is_each=True,
    ),
    Mutation("a tail that one thread folds twice", r"part\[i \+ 1\]", "part[i]", (LIGHT,)),
    Mutation("a wave of a tail left out", r"slots\[part \+ 1\]", "slots[part]", (JOINED,), only=("cuda",)),
    Mutation("the last step of a tree left out", "s > 0;", "s > 1;", (FLAT_TREES[2], COLUMNS)),
    Mutation("the first step of a tree left out", r"int s = (\d+) / 2;", r"int s = \1 / 4;", (FLAT_TREES[2], COLUMNS)),
    Mutation("a tree that ends early", r"s < (\d+); s \*= 2", r"s < \1 / 2; s *= 2", (FLAT_TREES[0], FLAT_TREES[1])),
    Mutation(
        "a tree of other neighbours",
        r"slots\[thread \+ s( \* TEAMS)?\]",
        r"slots[thread + s\1 - 1]",
        (FLAT_TREES[2], COLUMNS),
    ),
    Mutation("a step of the last tail left out", r"state = merge\(state, slots\[thread \+ 4\]\);", ";", (UNROLLED,)),
    Mutation("a slot never written", r"slots\[thread\] = state;\n", ";\n", (FLAT_TREES[0], FLAT_TREES[2])),
)

JOINING = (
    Mutation("a counter left as it is", r"counter\[(0|group)\] = 0;", ";", (PLAIN, ROW_PARTS, CLUSTER)),
    Mutation("a tally left as it is", r"\w+\(counter, \(tally_t\)0 - (low|all)\);", ";", (TALLY, TALLY_ANY)),
    Mutation("the second tally left as it is", r"\w+\(counter \+ 1, \(tally_t\)0 - high\);", ";", (TALLY,)),
    Mutation("high words left out", r" \+ \(high << WORD_BITS\)", "", (TALLY,)),
    Mutation("high words one place off", r"high << WORD_BITS", "high << WORD_BITS - 1", (TALLY,)),
    Mutation("a word with its sign", r"unsigned int word\)", "int word)", (TALLY,)),
    Mutation(
        "tallies that wait for one block less",
        r"COUNT_AT == \(tally_t\)blocks",
        "COUNT_AT == (tally_t)blocks - 1",
        (TALLY, TALLY_ANY, TALLY_ALL),
    ),
    Mutation("any where it was found once", r"all != 0", "all == 1", (TALLY_ANY,)),
    Mutation("all where it was found once", r"all == \(unsigned int\)blocks", "all != 0", (TALLY_ALL,)),
    Mutation(
        "a counter that waits for one block less",
        r"\((blocks|parts|clusters) - 1\)",
        r"(\1 - 2)",
        (PLAIN, ROW_QUARTERS, CLUSTER),
    ),
    Mutation(
        "a counter that waits for one block more",
        r"\((blocks|parts|clusters) - 1\)",
        r"(\1)",
        (PLAIN, ROW_PARTS, CLUSTER),
    ),
    Mutation(
        "a count before the state is there",
        r"( *)(partials\[block\] = state;)\n(.*\n)( *is_last = .*;)\n",
        r"\3\4\n\1\2\n",
        (PLAIN,),
        is_race=True,
    ),
    Mutation(
        "no release and no acquire",
        "memory_order_acq_rel",
        "memory_order_relaxed",
        (PLAIN,),
        only=("opencl",),
        is_race=True,
    ),
    Mutation(
        "no release and no acquire among blocks", "acq_rel", "relaxed", (PLAIN, CLUSTER), only=("cuda",), is_race=True
    ),
    Mutation(
        "partials at a longer stride",
        r"i \+= (BLOCK|TEAM|SECOND_BLOCK)\)\n( *)state = merge\(state, partials",
        r"i += \1 + 1)\n\2state = merge(state, partials",
        (MANY, MANY_SECOND),
    ),
    Mutation("the first partial over and over", r"partials\[(result \* parts \+ )?i\]", r"partials[\g<1>0]", (SECOND,)),
    Mutation("the last partial left out", r"i < (blocks|parts);", r"i < \1 - 1;", (PLAIN, ROW_SECOND, SECOND)),
    Mutation(
        "the last cell left out", r"i < blocks; i \+= BLOCK", "i < blocks - 1; i += BLOCK", (COLLECTOR,), only=("cuda",)
    ),
    Mutation("a collector that does not wait", r"!is_whole\)", "false)", (COLLECTOR,), only=("cuda",)),
    Mutation("cells that stay as they are", r"store_cell\(cells \+ c, empty\);", ";", (COLLECTOR,), only=("cuda",)),
    Mutation("a grid without a collector", r" - \(\(index_t\)gridDim\.x > 1\)", "", (COLLECTOR,), only=("cuda",)),
    Mutation(
        "partials of other results",
        r"partials\[result \* parts",
        "partials[result * (parts - 1)",
        (ROW_PARTS, ROW_SECOND),
    ),
    Mutation(
        "parts in one place",
        r"partials\[result \* parts \+ part\]",
        "partials[result * parts]",
        (ROW_PARTS, ROW_SECOND),
    ),
    Mutation("a result left as it was", r"out\[0\] = finish\(state\);", ";", (PLAIN, SECOND)),
    Mutation(
        "results of the last block left as they were",
        r"if \(member == 0 && is_there\)\n( *)out",
        r"if (member == 0 && is_there && result != 3)\n\1out",
        (ROW_PARTS, ROWS),
    ),
    Mutation(
        "the result of another thread",
        r"if \(thread == 0\)\n( *)out",
        r"if (thread == 1)\n\1out",
        (PLAIN, SECOND, Host(knobs={**LAST, "exchange": "lds", "tree": "sequential"})),
    ),
    Mutation("a last block that is not told", r"if \(is_last\)", "if (is_last && thread == 0)", (PLAIN,), is_race=True),
    Mutation("a result that is not reset", r"out\[0\] = finish\(identity\(\)\);", ";", (ATOMIC, SWAPPED)),
    Mutation("a state merged twice", r"( *)(merge_into\(out \+ 0, state\);)", r"\1{ \2 \2 }", (ATOMIC,)),
    Mutation(
        "a store for an atomic",
        r"merge_into\(out \+ 0, state\)",
        "out[0] = finish(state)",
        (ATOMIC, SWAPPED),
        is_race=True,
    ),
    Mutation(
        "one try at an exchange", r"if \(found == seen\.bits\)\n( *)return;", r"\1return;", (SWAPPED,), is_race=True
    ),
    Mutation("a block of the cluster left out", "i < CLUSTER;", "i < CLUSTER - 1;", (CLUSTER,)),
    Mutation("a block of the cluster in another's place", r"&ranks\[rank\]", "&ranks[0]", (CLUSTER,), is_race=True),
)


def meaning(name: str, function: str, pattern: str, put: str, *hosts: Host) -> Mutation:
    """An operator that means something else."""
    return Mutation(name, pattern, put, hosts, inside=function)


WORSE = r"\(\(a\.value > b\.value\) \| \(a\.value != a\.value\)\)"
BEFORE = r"a\.index < b\.index"
SUM16, SUM_BF16 = on("sum", "float16"), on("sum", "bfloat16")
MEANING = (
    meaning(
        "identity 0 for max",
        "identity",
        r"= -?[^;]+;",
        "= 0;",
        on("max", "float32"),
        on("max", "float64"),
        on("max", "int32"),
    ),
    meaning("identity 0 for min", "identity", r"= -?[^;]+;", "= 0;", on("min", "float32"), on("min", "uint8")),
    meaning("the lowest finite for max", "identity", r"= [^;]+;", "= -3.402823466e38f;", on("max", "float32")),
    meaning("identity 0 for prod", "identity", "= 1;", "= 0;", on("prod", "float64"), on("prod", "int32")),
    meaning("identity 0 for all", "identity", "= 1;", "= 0;", on("all", "int32"), on("all", "bool")),
    meaning("identity 0 for and", "identity", "= -1;", "= 0;", on("bitwise_and", "uint32")),
    meaning("identity 1 for sum", "identity", "= 0;", "= 1;", on("sum", "int32"), on("any", "uint8")),
    meaning("the number 0 for nothing in nanmax", "identity", r"= [^;]+;", "= 0;", on("nanmax", "float64")),
    meaning(
        "index -1 of nothing",
        "identity",
        r"index = [^;]+;",
        "index = -1;",
        on("argmax", "float64"),
        on("argmin", "int32"),
    ),
    meaning("NaN dropped", "merge", WORSE, "(a.value > b.value)", on("max", "float64"), on("norm_inf", "float64")),
    meaning(
        "NaN dropped by argmax",
        "merge",
        r"\| \([ab]\.value != [ab]\.value\)",
        "| false",
        on("argmax", "float64"),
        on("argmax", "float16"),
    ),
    meaning(
        "NaN kept by nanmax",
        "merge",
        r"\(b\.value == b\.value\) \? b\.value : a\.value",
        "b.value",
        on("nanmax", "float64"),
    ),
    meaning("NaN added by nansum", "lift", r"\(x == x\) \? x : 0", "x", on("nansum", "float64")),
    meaning(
        "ties to the last index", "merge", BEFORE, "a.index > b.index", on("argmax", "float64"), on("argmin", "int8")
    ),
    meaning("ties to either index", "merge", rf"\({BEFORE}\)", "true", on("argmax", "int32")),
    meaning("max for min", "merge", r"a\.value < b\.value", "a.value > b.value", on("min", "int32")),
    meaning(
        "half accumulated in half",
        "merge",
        r"s\.total = [^;]+;",
        "s.total = widen(narrow(a.total + b.total));",
        SUM16,
        SUM_BF16,
    ),
    meaning(
        "half cut and not rounded",
        "narrow",
        r"return \(result_part_t\)\(\(bits \+ [^;]+;",
        "return (result_part_t)(bits >> 16);",
        SUM_BF16,
    ),
    meaning(
        "bytes that wrap", "merge", r"s\.total = [^;]+;", "s.total = (a.total + b.total) & 255;", on("sum", "uint8")
    ),
    meaning(
        "64 bits compared as float",
        "merge",
        r"a\.value > b\.value",
        "(float)a.value > (float)b.value",
        on("max", "uint64"),
        on("max", "int64"),
    ),
    meaning("64 bits rounded to double", "lift", "s.value = x", "s.value = (value_t)(double)x", on("max", "uint64")),
    meaning(
        "double accumulated in float",
        "merge",
        r"s\.total = [^;]+;",
        "s.total = (float)(a.total + b.total);",
        on("sum", "float64"),
        on("mean", "float64"),
    ),
    meaning("all as bits", "lift", r"\(x != 0\)", "(x)", on("all", "int32")),
    meaning("any of positive ones", "lift", r"x != 0", "x > 0", on("any", "int32"), on("count_nonzero", "float64")),
    meaning(
        "a mean of one less", "finish", r"\(real_t\)n", "(real_t)(n - 1)", on("mean", "float64"), on("mean", "int32")
    ),
    meaning(
        "a variance without its middle",
        "merge",
        r"\(a\.squares \+ b\.squares\) \+ .*;",
        "a.squares + b.squares;",
        on("var", "float64"),
    ),
    meaning(
        "tiles that add no middle to a variance",
        "gather",
        r"b\.squares \+ .*, a\.squares_lost",
        "b.squares, a.squares_lost",
        on("var", "float64"),
    ),
    meaning("a variance of a sum", "merge", r"\) \* share\)", "))", on("var", "float64")),
    meaning("tiles that move a mean too far", "gather", r"\) \* share, a", "), a", on("var", "float64")),
    meaning("tiles that do not fade", "gather", r"rises \? fade : 1", "1", on("logsumexp", "float64")),
    meaning("tiles that forget", "gather", r"add\(a\.total, b\.total,", "add(0, b.total,", on("sum", "float64")),
    meaning("a first state that is lost", "begun", r"= s\.total", "= 0", on("sum", "float32")),
    meaning("a thread that hands on nothing", "settled", r"= a\.total", "= 0", on("sum", "float32")),
    meaning("ddof ignored", "finish", r"a\.seen - ddof", "a.seen - 1", on("var", "float64"), on("std", "float32")),
    meaning("logsumexp without rescaling", "merge", r"rises \? fade : 1", "1", on("logsumexp", "float64")),
    meaning("logsumexp of a sum alone", "finish", r"a\.top \+ log", "log", on("logsumexp", "float64")),
    meaning(
        "a norm that overflows",
        "lift",
        r"s\.huge = [^;]+;",
        "s.huge = 0;",
        on("norm_l2", "float64"),
        on("norm_l2", "float32"),
    ),
    meaning(
        "a norm that underflows",
        "lift",
        r"s\.tiny = [^;]+;",
        "s.tiny = 0;",
        on("norm_l2", "float64"),
        on("norm_l2", "float32"),
    ),
    meaning("a norm without its root", "finish", r"sqrtf?", "(real_t)", on("norm_l2", "float64")),
    meaning("a norm of signed values", "lift", r"fabsf?\(x\)", "x", on("norm_l1", "int32"), on("norm_inf", "int32")),
    meaning(
        "squares that wrap",
        "lift",
        r"\((?:ulong|unsigned long long)\)x \* \((?:ulong|unsigned long long)\)x",
        "(int)((unsigned int)x * (unsigned int)x)",
        on("sumsq", "int32"),
    ),
    meaning("a product of one input", "lift", r"\)y", ")x", on("dot", "int32")),
    meaning(
        "what was lost thrown away",
        "merge",
        r"add\(a\.total, b\.total, [^;]+;",
        "a.total + b.total;",
        on("sum", "float32", accumulate="compensated"),
    ),
    meaning(
        "what was lost added twice",
        "add",
        r"\+ lost_before;",
        "+ 2 * lost_before;",
        on("sum", "float32", accumulate="compensated"),
    ),
    Mutation("an index within its tile", r"at \+ \(k \* \(", "(k * (", (on("argmax", "int32"),)),
    Mutation(
        "an index within a column's tile",
        r"i = at \+ k \* TEAM;",
        "i = k * TEAM;",
        (Host("argmax", "int32", "columns", COLUMNS.knobs),),
    ),
)

TABLE: tuple[Mutation, ...] = (*WAITING, *WALKING, *MEETING, *JOINING, *MEANING)
