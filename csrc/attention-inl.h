// Body of attention.h for one instruction set.

// Groups of sixteen keys, or of sixteen dims, beside R rows: as many as their accumulators leave registers for.
template <int R>
constexpr int groups_at_once() {
  constexpr int room = kAttentionTile / R;
  return room >= 4 ? 4 : room >= 2 ? 2 : 1;
}

// Where sixteen consecutive keys lie; pages shorter than sixteen are gathered into the same form.
struct KeyGroup {
  const char* keys;    // fp32: [head_dim][16] floats; bf16: [head_dim / 2][16] pairs
  const char* values;  // fp32: [16][padded] floats; bf16: [8][padded] pairs
};

// A unit of work: up to kAttentionRows (token, head) rows of one sequence and one kv head.
struct RowTile {
  int64_t sequence, kv_head;
  int64_t row0;   // index of the first row among the sequence's (token, head in group) rows of this kv head
  int rows;
};

struct BlockResult {  // of one row and one block: section 3.4 step 2 and 3
  float most, sum;
};

struct AttentionScratch {
  float scores[kAttentionRows * kKeyBlock];
  uint32_t weights[kKeyBlock * kAttentionRows];  // probabilities, rows interleaved; bf16: pairs of keys
  KeyGroup groups[kKeyBlock / kLanes];
  uint32_t clean[kLanes * 1024];  // one group of values; head_dim is at most 1024, checked by the binding
};

struct AttentionJob {
  const AttentionArgs* args;
  float scale;
  int64_t heads_per_group, units;  // units: values of a query row, in floats or pairs
  int64_t token(const RowTile& t, int r) const {
    return args->seq_starts[t.sequence] + (t.row0 + r) / heads_per_group;
  }
  int64_t head(const RowTile& t, int r) const {
    return t.kv_head * heads_per_group + (t.row0 + r) % heads_per_group;
  }
  int64_t key_count(const RowTile& t, int r) const { return int64_t(args->positions[token(t, r)]) + 1; }
};

// Copies sixteen keys from pages shorter than sixteen.
inline void gather_group(const AttentionJob& job, const RowTile& t, int64_t key0, int64_t key_end, char* keys,
                         char* values) {
  const KvCache& c = *job.args->cache;
  const int64_t size = c.page_size, width = c.padded_dim();
  const int32_t* table = job.args->block_tables + t.sequence * job.args->table_width;
  uint32_t* to_keys = reinterpret_cast<uint32_t*>(keys);
  uint32_t* to_values = reinterpret_cast<uint32_t*>(values);
  const int64_t words = c.bf16 ? kLanes / 2 * width : kLanes * width;
  __builtin_memset(keys, 0, size_t(job.units * kLanes) * 4);
  __builtin_memset(values, 0, size_t(words) * 4);
  for (int64_t key = key0; key < key0 + kLanes && key < key_end; key += size) {
    const int64_t page = table[key / size], lane = key - key0;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(c.key_page(job.args->layer, page, t.kv_head));
    for (int64_t u = 0; u < job.units; ++u)
      for (int64_t j = 0; j < size; ++j) to_keys[u * kLanes + lane + j] = from[u * size + j];
    const char* value = c.value_page(job.args->layer, page, t.kv_head);
    if (c.bf16 && size == 1) {
      const uint16_t* half = reinterpret_cast<const uint16_t*>(value);
      for (int64_t d = 0; d < width; ++d) to_values[lane / 2 * width + d] |= uint32_t(half[d]) << (lane % 2 ? 0 : 16);
    } else {
      __builtin_memcpy(to_values + (c.bf16 ? lane / 2 : lane) * width, value, size_t(c.value_bytes()));
    }
  }
}

inline void find_groups(const AttentionJob& job, const RowTile& t, int64_t block0, int64_t key_end, char* gathered,
                        AttentionScratch& s) {
  const KvCache& c = *job.args->cache;
  const int32_t* table = job.args->block_tables + t.sequence * job.args->table_width;
  const int64_t element = c.bf16 ? 2 : 4;
  const int64_t key_bytes = kLanes * c.head_dim * element, value_bytes = kLanes * c.padded_dim() * element;
  for (int64_t key = block0, g = 0; key < key_end; key += kLanes, ++g) {
    if (c.page_size < kLanes) {
      char* to = gathered + g * (key_bytes + value_bytes);
      gather_group(job, t, key, key_end, to, to + key_bytes);
      s.groups[g] = {to, to + key_bytes};
    } else {
      const int64_t page = table[key / c.page_size], group = key % c.page_size / kLanes;
      s.groups[g] = {c.key_page(job.args->layer, page, t.kv_head) + group * key_bytes,
                     c.value_page(job.args->layer, page, t.kv_head) + group * value_bytes};
    }
  }
}

template <bool kBf16>
SB_INLINE F32 chain(F32 acc, uint32_t x, const uint32_t* y) {
  return kBf16 ? Bf16Product::step(acc, x, y) : Fp32Product::step(acc, x, y);
}

// Scores of R rows with G groups of sixteen keys.
template <bool kBf16, int R, int G>
SB_INLINE void score_groups(const uint32_t* q, int64_t units, const KeyGroup* groups, float scale, float* scores) {
  F32 acc[R][G];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) acc[r][g] = zero();
  for (int64_t u = 0; u < units; ++u) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g)
        acc[r][g] = chain<kBf16>(acc[r][g], q[u * R + r], reinterpret_cast<const uint32_t*>(groups[g].keys) + u * kLanes);
  }
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) store(scores + r * kKeyBlock + g * kLanes, mul(acc[r][g], set1(scale)));
}

// Weighted values of R rows for G vectors of sixteen dims; weights of row r of a step are at [step · stride + r].
template <bool kBf16, int R, int G>
SB_INLINE void weigh_vectors(const uint32_t* weights, int64_t stride, const KeyGroup* groups, int64_t group_count,
                             int64_t width, int64_t dim0, float* const* out) {
  constexpr int steps = kBf16 ? kLanes / 2 : kLanes;
  F32 acc[R][G];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) acc[r][g] = zero();
  for (int64_t group = 0; group < group_count; ++group) {
    const uint32_t* values = reinterpret_cast<const uint32_t*>(groups[group].values) + dim0;
    for (int64_t j = 0; j < steps; ++j) {
      const uint32_t* weight = weights + (group * steps + j) * stride;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) acc[r][g] = chain<kBf16>(acc[r][g], weight[r], values + j * width + g * kLanes);
    }
  }
  // Adding +0 turns a sum that underflowed to -0 into +0, as the masked keys of a tile may or may not have done.
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) store(out[r] + dim0 + g * kLanes, add(acc[r][g], zero()));
}

template <bool kBf16, int R>
SB_INLINE void weigh_values(const uint32_t* weights, int64_t stride, const KeyGroup* groups, int64_t group_count,
                            int64_t width, float* const* out) {
  constexpr int G = groups_at_once<R>();
  int64_t d = 0;
  for (; d + G * kLanes <= width; d += G * kLanes)
    weigh_vectors<kBf16, R, G>(weights, stride, groups, group_count, width, d, out);
  for (; d < width; d += kLanes) weigh_vectors<kBf16, R, 1>(weights, stride, groups, group_count, width, d, out);
}

// Whether groups hold an infinity or a NaN: the weight 0 of a key that does not exist would turn it into a NaN.
template <bool kBf16>
inline bool any_not_finite(const KeyGroup* groups, int64_t count, int64_t width) {
  constexpr uint32_t high = 0x7f800000u, low = kBf16 ? 0x7f80u : 0xffffffffu;
  uint32_t bad = 0;
  for (int64_t g = 0; g < count; ++g) {
    const uint32_t* values = reinterpret_cast<const uint32_t*>(groups[g].values);
    for (int64_t i = 0; i < (kBf16 ? kLanes / 2 : kLanes) * width; ++i)
      bad |= uint32_t((values[i] & high) == high) | uint32_t(kBf16 && (values[i] & low) == low);
  }
  return bad != 0;
}

// The same for one row over the keys that exist for it, and not one more.
template <bool kBf16>
inline void weigh_existing(const uint32_t* weights, int64_t stride, const KeyGroup* groups, int64_t valid,
                           int64_t width, uint32_t* clean, float* out) {
  KeyGroup mine[kKeyBlock / kLanes];
  const int64_t count = ceil_div(valid, kLanes), in_last = valid - (count - 1) * kLanes;
  for (int64_t g = 0; g < count; ++g) mine[g] = groups[g];
  if (count > 0) {
    const uint32_t* last = reinterpret_cast<const uint32_t*>(groups[count - 1].values);
    for (int64_t key = 0; key < kLanes; ++key)
      for (int64_t d = 0; d < width; ++d) {
        if (!kBf16) clean[key * width + d] = key < in_last ? last[key * width + d] : 0;
        else if (key % 2 == 0) clean[key / 2 * width + d] = key < in_last ? last[key / 2 * width + d] & 0xffff0000u : 0;
        else if (key < in_last) clean[key / 2 * width + d] |= last[key / 2 * width + d] & 0xffffu;
      }
    mine[count - 1].values = reinterpret_cast<const char*>(clean);
  }
  weigh_values<kBf16, 1>(weights, stride, mine, count, width, &out);
}

// Softmax of one row within a block; keys from `valid` on do not exist. Writes the weights of row r of R.
template <bool kBf16>
SB_INLINE BlockResult softmax_row(float* scores, int64_t valid, int64_t group_count, int r, int R, uint32_t* weights) {
  for (int64_t j = valid; j < group_count * kLanes; ++j) scores[j] = -__builtin_inff();
  F32 m = set1(-__builtin_inff());
  for (int64_t g = 0; g < group_count; ++g) m = max(m, load(scores + g * kLanes));
  const float most = lane_max(m);
  F32 sums = zero();
  uint32_t bits[16];
  for (int64_t g = 0; g < group_count; ++g) {
    F32 p = exp16(sub(load(scores + g * kLanes), set1(most)));
    sums = add(sums, p);
    if (kBf16) {
      store_u(bits, bf16_bits(p));
      for (int j = 0; j < kLanes / 2; ++j)
        weights[(g * kLanes / 2 + j) * R + r] = bits[2 * j] << 16 | bits[2 * j + 1];
    } else {
      store(reinterpret_cast<float*>(bits), p);
      for (int j = 0; j < kLanes; ++j) weights[(g * kLanes + j) * R + r] = bits[j];
    }
  }
  return {most, lane_tree_sum(sums)};
}

// One block for R rows: results and o_b[r] (padded floats). Rows without keys in the block get most = -inf.
template <bool kBf16, int R>
void attend_block(const AttentionJob& job, const RowTile& t, const uint32_t* q, int64_t block, AttentionScratch& s,
                  char* gathered, BlockResult* results, float* const* out) {
  const KvCache& c = *job.args->cache;
  const int64_t block0 = block * kKeyBlock, most_keys = job.key_count(t, R - 1);  // rows are in token order
  const int64_t key_end = most_keys < block0 + kKeyBlock ? most_keys : block0 + kKeyBlock;
  const int64_t group_count = ceil_div(key_end - block0, kLanes);
  find_groups(job, t, block0, key_end, gathered, s);
  constexpr int G = groups_at_once<R>();
  int64_t g = 0;
  for (; g + G <= group_count; g += G)
    score_groups<kBf16, R, G>(q, job.units, s.groups + g, job.scale, s.scores + g * kLanes);
  for (; g < group_count; ++g)
    score_groups<kBf16, R, 1>(q, job.units, s.groups + g, job.scale, s.scores + g * kLanes);
  int64_t valid[R];
  for (int r = 0; r < R; ++r) {
    const int64_t keys = job.key_count(t, r) - block0;
    valid[r] = keys < 0 ? 0 : keys < kKeyBlock ? keys : kKeyBlock;
    results[r] = softmax_row<kBf16>(s.scores + r * kKeyBlock, valid[r], group_count, r, R, s.weights);
    if (valid[r] == 0) results[r].most = -__builtin_inff();
  }
  const int64_t width = c.padded_dim(), shared = valid[0] / kLanes;  // groups whose keys exist for all rows
  if (shared < group_count && any_not_finite<kBf16>(s.groups + shared, group_count - shared, width))
    for (int r = 0; r < R; ++r)
      weigh_existing<kBf16>(s.weights + r, R, s.groups, valid[r], width, s.clean, out[r]);
  else
    weigh_values<kBf16, R>(s.weights, R, s.groups, group_count, width, out);
}

template <bool kBf16, int R>
void attend_rows(int rows, const AttentionJob& job, const RowTile& t, const uint32_t* q, int64_t block,
                 AttentionScratch& s, char* gathered, BlockResult* results, float* const* out) {
  if (rows == R) return attend_block<kBf16, R>(job, t, q, block, s, gathered, results, out);
  if constexpr (R > 1) attend_rows<kBf16, R - 1>(rows, job, t, q, block, s, gathered, results, out);
}

SB_INLINE float exp_one(float x) {
  float a[16];
  store(a, exp16(set1(x)));
  return a[0];
}

// state ← state combined with the next block.
SB_INLINE void combine(BlockResult& state, float* o, const BlockResult& block, const float* o_block, int64_t width) {
  const float most = block.most > state.most ? block.most : state.most;
  const float alpha = exp_one(state.most - most), beta = exp_one(block.most - most);
  state = {most, __builtin_fmaf(state.sum, alpha, block.sum * beta)};
  for (int64_t d = 0; d < width; d += kLanes)
    store(o + d, fma(load(o + d), set1(alpha), mul(load(o_block + d), set1(beta))));
}

SB_INLINE void finish(const AttentionJob& job, const RowTile& t, int r, float sum, const float* o) {
  const int64_t dim = job.args->cache->head_dim;
  float* out = job.args->out + (job.token(t, r) * job.args->heads + job.head(t, r)) * dim;
  for (int64_t d = 0; d < dim; ++d) out[d] = o[d] / sum;
}

// The tile's queries in units, rows interleaved.
inline void load_queries(const AttentionJob& job, const RowTile& t, uint32_t* line, uint32_t* q) {
  const int64_t dim = job.args->cache->head_dim;
  for (int r = 0; r < t.rows; ++r) {
    const float* from = job.args->q + (job.token(t, r) * job.args->heads + job.head(t, r)) * dim;
    if (job.args->cache->bf16) bf16_row(from, dim, line);
    else __builtin_memcpy(line, from, size_t(dim) * 4);
    for (int64_t u = 0; u < job.units; ++u) q[u * t.rows + r] = line[u];
  }
}

SB_INLINE RowTile tile_of(const AttentionJob& job, int64_t sequence, int64_t kv_head, int64_t index) {
  const int64_t tokens = job.args->seq_starts[sequence + 1] - job.args->seq_starts[sequence];
  const int64_t rows = tokens * job.heads_per_group, row0 = index * kAttentionRows;
  return {sequence, kv_head, row0, int(rows - row0 < kAttentionRows ? rows - row0 : kAttentionRows)};
}

// Scratch of one item, carved from the pool's buffer.
struct ItemMemory {
  AttentionScratch* s;
  uint32_t *line, *q;
  float *o, *o_block;  // kAttentionRows rows of padded floats each
  char* gathered;
  static int64_t bytes(const KvCache& c) {
    const int64_t floats = c.head_dim * (1 + kAttentionRows) + 2 * kAttentionRows * c.padded_dim() + 2 * kLanes;
    const int64_t gathered = c.page_size < kLanes ? kKeyBlock * (c.head_dim + c.padded_dim()) * 4 : 0;
    return ceil_div(int64_t(sizeof(AttentionScratch)) + 64 + floats * 4 + gathered, 64) * 64 + 256;
  }
  ItemMemory(char* at, const KvCache& c) {
    s = reinterpret_cast<AttentionScratch*>(at);
    o = reinterpret_cast<float*>(at + ceil_div(int64_t(sizeof(AttentionScratch)), 64) * 64);
    o_block = o + kAttentionRows * c.padded_dim();
    gathered = reinterpret_cast<char*>(o_block + kAttentionRows * c.padded_dim());
    line = reinterpret_cast<uint32_t*>(gathered + (c.page_size < kLanes ? kKeyBlock * (c.head_dim + c.padded_dim()) * 4 : 0));
    q = line + c.head_dim + kLanes;
  }
};

template <bool kBf16>
void attend(const AttentionJob& job, const RowTile& t, int64_t block, const ItemMemory& m, BlockResult* results,
            float* const* out) {
  attend_rows<kBf16, kAttentionRows>(t.rows, job, t, m.q, block, *m.s, m.gathered, results, out);
}

// All blocks of one tile.
template <bool kBf16>
void attend_tile(const AttentionJob& job, const RowTile& t, char* memory) {
  const KvCache& c = *job.args->cache;
  const int64_t width = c.padded_dim();
  ItemMemory m(memory, c);
  load_queries(job, t, m.line, m.q);
  float *first[kAttentionRows], *next[kAttentionRows];
  for (int r = 0; r < kAttentionRows; ++r) {
    first[r] = m.o + r * width;
    next[r] = m.o_block + r * width;
  }
  BlockResult state[kAttentionRows], result[kAttentionRows];
  attend<kBf16>(job, t, 0, m, state, first);
  const int64_t blocks = ceil_div(job.key_count(t, t.rows - 1), kKeyBlock);
  for (int64_t block = 1; block < blocks; ++block) {
    attend<kBf16>(job, t, block, m, result, next);
    for (int r = 0; r < t.rows; ++r)
      if (job.key_count(t, r) > block * kKeyBlock) combine(state[r], first[r], result[r], next[r], width);
  }
  for (int r = 0; r < t.rows; ++r) finish(job, t, r, state[r].sum, first[r]);
}

struct TileIndex { int32_t sequence, kv_head, index, block; };

// Items from a shared counter; each thread keeps one piece of scratch memory.
template <class Item>
SB_INLINE void each_item(ThreadPool& pool, int64_t count, char* memory, int64_t memory_bytes, const Item& item) {
  int64_t next = 0;
  pool.run(pool.threads(), [&](int64_t slot) {
    for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < count;) item(i, memory + slot * memory_bytes);
  });
}

// One (tile, block) each, then a pass that combines: for few rows over long contexts.
template <bool kBf16>
void attend_by_block(const AttentionJob& job, const TileIndex* items, int64_t count, char* memory,
                     int64_t memory_bytes, float* partial, ThreadPool& pool) {
  const KvCache& c = *job.args->cache;
  const int64_t width = c.padded_dim(), stride = kAttentionRows * (width + 2);
  each_item(pool, count, memory, memory_bytes, [&](int64_t i, char* mine) {
    const RowTile t = tile_of(job, items[i].sequence, items[i].kv_head, items[i].index);
    ItemMemory m(mine, c);
    load_queries(job, t, m.line, m.q);
    float* out[kAttentionRows];
    for (int r = 0; r < kAttentionRows; ++r) out[r] = partial + i * stride + r * width;
    BlockResult results[kAttentionRows];
    attend<kBf16>(job, t, items[i].block, m, results, out);
    __builtin_memcpy(partial + i * stride + kAttentionRows * width, results, sizeof(results));
  });
  for (int64_t i = 0; i < count; ++i) {
    if (items[i].block != 0) continue;
    const RowTile t = tile_of(job, items[i].sequence, items[i].kv_head, items[i].index);
    for (int r = 0; r < t.rows; ++r) {
      const auto result = [&](int64_t item) {
        return reinterpret_cast<BlockResult*>(partial + item * stride + kAttentionRows * width)[r];
      };
      float* o = partial + i * stride + r * width;
      BlockResult state = result(i);
      for (int64_t block = 1; block * kKeyBlock < job.key_count(t, r); ++block)
        combine(state, o, result(i + block), partial + (i + block) * stride + r * width, width);
      finish(job, t, r, state.sum, o);
    }
  }
}

template <bool kBf16>
void attention_typed(const AttentionArgs& a, ThreadPool& pool, Buffer& scratch) {
  const KvCache& c = *a.cache;
  const AttentionJob job{&a, 1.0f / __builtin_sqrtf(float(c.head_dim)), a.heads / c.kv_heads,
                         kBf16 ? c.head_dim / 2 : c.head_dim};
  int64_t tiles = 0, blocks = 0;
  for (int64_t s = 0; s < a.sequences; ++s) {
    const int64_t tokens = a.seq_starts[s + 1] - a.seq_starts[s];
    if (tokens == 0) continue;
    const int64_t per_head = ceil_div(tokens * job.heads_per_group, kAttentionRows);
    tiles += per_head * c.kv_heads;
    blocks += per_head * c.kv_heads * ceil_div(int64_t(a.positions[a.seq_starts[s + 1] - 1]) + 1, kKeyBlock);
  }
  // Few tiles cannot keep the threads evenly busy: cut them by block, within 1024 partial results.
  const bool by_block = blocks > tiles && tiles < pool.threads() * 4 && blocks <= 1024;
  const int64_t items = by_block ? blocks : tiles;
  const int64_t memory_bytes = ItemMemory::bytes(c), index_bytes = ceil_div(items * int64_t(sizeof(TileIndex)), 64) * 64;
  const int64_t all_memory = pool.threads() * memory_bytes;
  scratch.grow(size_t(index_bytes + all_memory + (by_block ? items * kAttentionRows * (c.padded_dim() + 2) * 4 : 0)));
  TileIndex* index = scratch.as<TileIndex>();
  int64_t n = 0;
  for (int64_t s = 0; s < a.sequences; ++s) {
    const int64_t tokens = a.seq_starts[s + 1] - a.seq_starts[s];
    for (int64_t h = 0; h < c.kv_heads; ++h)
      for (int64_t i = 0; i * kAttentionRows < tokens * job.heads_per_group; ++i) {
        const RowTile t = tile_of(job, s, h, i);
        const int64_t count = by_block ? ceil_div(job.key_count(t, t.rows - 1), kKeyBlock) : 1;
        for (int64_t b = 0; b < count; ++b) index[n++] = {int32_t(s), int32_t(h), int32_t(i), int32_t(b)};
      }
  }
  char* memory = scratch.as<char>() + index_bytes;
  if (by_block) {
    float* partial = reinterpret_cast<float*>(memory + all_memory);
    return attend_by_block<kBf16>(job, index, n, memory, memory_bytes, partial, pool);
  }
  each_item(pool, n, memory, memory_bytes, [&](int64_t i, char* mine) {
    attend_tile<kBf16>(job, tile_of(job, index[i].sequence, index[i].kv_head, index[i].index), mine);
  });
}

inline void attention(const AttentionArgs& a, ThreadPool& pool, Buffer& scratch) {
  if (a.cache->bf16) attention_typed<true>(a, pool, scratch);
  else attention_typed<false>(a, pool, scratch);
}
