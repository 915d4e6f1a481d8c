// Body of linear.h for one instruction set.

// ---- conversion of rows to the profile's units, and int8 quantisation ----------------------------------------------

SB_INLINE uint32_t word_of(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }

// Pairs of bf16 from n floats; a missing second element is +0. Sixteen pairs at a time, `stride` words apart.
inline void bf16_row(const float* x, int64_t n, uint32_t* out, int64_t stride = kLanes) {
  constexpr int64_t step = 2 * kLanes;
  int64_t k = 0;
  for (; k + step <= n; k += step, out += stride)
    store_u(out, pair_neighbours(bf16_bits(load(x + k)), bf16_bits(load(x + k + kLanes))));
  if (k == n) return;
  float rest[step] = {};
  uint32_t pairs[kLanes];
  __builtin_memcpy(rest, x + k, size_t(n - k) * 4);
  store_u(pairs, pair_neighbours(bf16_bits(load(rest)), bf16_bits(load(rest + kLanes))));
  __builtin_memcpy(out, pairs, size_t(ceil_div(n - k, 2)) * 4);
}

struct Int8Row { float scale, inverse; };

// The largest magnitude's pattern in one block of kInt8Block floats; patterns of finite floats order like integers.
inline uint32_t largest_magnitude(const float* x) {
  uint32_t lanes[kLanes] = {};  // one maximum a lane, so that the compiler may use vectors
  for (int k = 0; k < kInt8Block; k += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const uint32_t magnitude = word_of(x[k + j]) & 0x7fffffffu;
      lanes[j] = magnitude > lanes[j] ? magnitude : lanes[j];
    }
  uint32_t most = 0;
  for (uint32_t lane : lanes) most = lane > most ? lane : most;
  return most;
}

// The scale of values whose largest magnitude has this pattern; a NaN scale marks a non-finite value.
inline Int8Row int8_scale(uint32_t most) {
  if (most >= 0x7f800000u) return {__builtin_nanf(""), 0.0f};  // inverse 0: all values 0
  float a;
  __builtin_memcpy(&a, &most, 4);
  if (a < 0x1p-100f) return {0.0f, 0.0f};
  return {a / 127.0f, 127.0f / a};
}

// Int8 values of one block of kInt8Block floats, four a word. Returns their sum.
inline int32_t int8_block(const float* x, Int8Row row, uint32_t* out) {
  if (row.inverse == 0.0f) {
    __builtin_memset(out, 0, kInt8Block);
    return 0;
  }
  int8_t bytes[kInt8Block];  // local, so that the compiler knows that it overlaps nothing
  int32_t sum = 0;
  for (int k = 0; k < kInt8Block; ++k) {
    // Adding 1.5·2²³ rounds to the nearest integer, ties to even, and leaves it in the low bits.
    int q = int(word_of(x[k] * row.inverse + 0x1.8p+23f)) - 0x4b400000;
    q = q > 127 ? 127 : q;
    q = q < -127 ? -127 : q;
    bytes[k] = int8_t(q);
    sum += q;
  }
  __builtin_memcpy(out, bytes, kInt8Block);
  return sum;
}

// Block `index` of a row of n floats: the floats themselves, or a copy in `padded` with zeros behind the end.
inline const float* int8_source(const float* x, int64_t n, int64_t index, float (&padded)[kInt8Block]) {
  const int64_t begin = index * kInt8Block;
  if (begin + kInt8Block <= n) return x + begin;
  __builtin_memset(padded, 0, sizeof padded);
  __builtin_memcpy(padded, x + begin, size_t(n - begin) * 4);
  return padded;
}

// ---- packing of weights ---------------------------------------------------------------------------------------------

inline void pack_weight_row(PackedMatrix& w, int64_t row, const float* source, uint32_t* units) {
  const int64_t lane = row % kLanes, count = w.units();
  uint32_t* panel = w.panel(row / kLanes);
  if (w.profile == Profile::kFp32) {
    for (int64_t k = 0; k < count; ++k) panel[k * kLanes + lane] = word_of(source[k]);
    return;
  }
  if (w.profile == Profile::kBf16) {
    bf16_row(source, w.cols, units);
  } else {
    const int64_t blocks = ceil_div(w.cols, kInt8Block);
    float padded[kInt8Block];
    uint32_t most = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const uint32_t magnitude = largest_magnitude(int8_source(source, w.cols, block, padded));
      most = magnitude > most ? magnitude : most;
    }
    const Int8Row quantised = int8_scale(most);
    for (int64_t block = 0; block < blocks; ++block)
      int8_block(int8_source(source, w.cols, block, padded), quantised, units + block * kInt8Block / 4);
    for (int64_t k = 0; k < count; ++k) units[k] ^= 0x80808080u;  // 128 added to each: unsigned bytes
    w.scales.as<float>()[row] = quantised.scale;
  }
  for (int64_t k = 0; k < count; ++k) panel[k * kLanes + lane] = units[k];
}

inline void pack_weights(PackedMatrix& w, int64_t row0, int64_t rows, const float* source, ThreadPool& pool) {
  const int64_t first = row0 / kLanes, last = ceil_div(row0 + rows, kLanes);
  pool.run(last - first, [&](int64_t item) {
    uint32_t* units = static_cast<uint32_t*>(__builtin_malloc(size_t(w.units() + kInt8Block) * 4));
    for (int64_t row = (first + item) * kLanes; row < (first + item + 1) * kLanes; ++row)
      if (row >= row0 && row < row0 + rows) pack_weight_row(w, row, source + (row - row0) * w.cols, units);
    __builtin_free(units);
  });
}

// ---- the product ----------------------------------------------------------------------------------------------------

// Each product says how a block starts, how one unit is added, and how a finished block joins the blocks before it.
// `Int8Block` is what a row brings for one block (int8 only).
struct Int8Block { float scale; int32_t start; };

struct FloatProduct {
  using Sum = F32;
  static constexpr int kRows = kTileRows;
  static SB_INLINE Sum start(const Int8Block*) { return zero(); }
  static SB_INLINE F32 join(bool first, F32 total, Sum block, const Int8Block*) {
    return first ? block : add(total, block);
  }
};
struct Fp32Product : FloatProduct {
  static constexpr int64_t kBlockUnits = kKBlock;
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) {
    float value;
    __builtin_memcpy(&value, &x, 4);
    return fma(set1(value), load(reinterpret_cast<const float*>(w)), acc);
  }
};
struct Bf16Product : FloatProduct {
  static constexpr int64_t kBlockUnits = kKBlock / 2;
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot2(acc, set1_u(x), load_u(w)); }
};
struct Int8Product {
  using Sum = U32;
  // Blocks are short, so sums and totals both live in registers, side by side.
  static constexpr int kRows = kTileRows * 3 / 5;
  static constexpr int64_t kBlockUnits = kInt8Block / 4;
  // Weights are stored with 128 added; starting at -128 times the sum of the inputs takes it out again.
  static SB_INLINE Sum start(const Int8Block* b) { return set1_u(uint32_t(b->start)); }
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot4(acc, load_u(w), set1_u(x)); }
  static SB_INLINE F32 join(bool first, F32 total, Sum block, const Int8Block* b) {
    return first ? mul(to_float(block), set1(b->scale)) : fma(to_float(block), set1(b->scale), total);
  }
};

// One tile: R rows by V panels. Inputs lie in groups of sixteen units: unit k of row r at x[(k / 16 · R + r) · 16 + k % 16], so
// that rows are converted with vector stores, and the rows of one unit are a constant distance apart. The blocks of the rows of a
// tile lie side by side. `ahead` words further on lies what the next tile will read of the weights; it is fetched meanwhile.
template <class P, int R, int V>
SB_INLINE void product_tile(const uint32_t* x, const Int8Block* blocks, const uint32_t* w, int64_t panel_stride,
                            int64_t units, int64_t ahead, F32 (&total)[R][V]) {
  for (int64_t begin = 0; begin < units; begin += P::kBlockUnits, blocks += R) {
    const int64_t end = begin + P::kBlockUnits < units ? begin + P::kBlockUnits : units;
    typename P::Sum acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[r][v] = P::start(blocks + r);
    for (int64_t k = begin; k < end; k += kLanes) {
      const uint32_t* group = x + k * R;
      const int64_t count = end - k < kLanes ? end - k : kLanes;
      for (int64_t j = 0; j < count; ++j) {
        if constexpr (R > 1)  // a single row computes less than it reads, and has no time for more
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) __builtin_prefetch(w + v * panel_stride + (k + j) * kLanes + ahead, 0, 2);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v)
            acc[r][v] = P::step(acc[r][v], group[r * kLanes + j], w + v * panel_stride + (k + j) * kLanes);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) total[r][v] = P::join(begin == 0, total[r][v], acc[r][v], blocks + r);
  }
}

// What the tiles of one call share.
struct LinearJob {
  const LinearArgs* args;
  const uint32_t* x;        // units, tile after tile, laid out as product_tile says
  int64_t x_stride;         // words of a row: its units, rounded up to whole groups
  const Int8Block* blocks;  // int8: of each row and block, in the order of x
  int64_t block_count;
  int64_t tiles;
  // Rows are spread evenly: the first `m % tiles` tiles have one more.
  int64_t tile_begin(int64_t t) const {
    const int64_t base = args->m / tiles, extra = args->m % tiles;
    return t * base + (t < extra ? t : extra);
  }
};

template <class P, int R, int V>
void linear_tile(const LinearJob& job, int64_t row0, int64_t panel0, int64_t ahead) {
  const PackedMatrix& w = *job.args->w;
  F32 total[R][V];
  product_tile<P, R, V>(job.x + row0 * job.x_stride, job.blocks + row0 * job.block_count, w.panel(panel0),
                        w.units() * kLanes, w.units(), ahead * w.units() * kLanes, total);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      const int64_t n = (panel0 + v) * kLanes, count = w.rows - n < kLanes ? w.rows - n : kLanes;
      F32 y = total[r][v];
      if constexpr (__is_same(P, Int8Product)) y = mul(y, load(w.scales.as<float>() + n));
      float* out = job.args->out + (row0 + r) * w.rows + n;
      if (count == kLanes) {
        store(out, job.args->residual ? add(load(out), y) : y);
      } else {
        if (job.args->residual) y = add(load_partial(out, count, 0.0f), y);
        store_partial(out, y, count);
      }
    }
  }
}

constexpr int kSharePanels = 8;  // panels of a share: their weights stay in cache while all tiles pass

// Few rows leave registers free: more panels at once hide the latency of the chains.
template <class P, int R>
constexpr int tile_vectors() {
  constexpr int room = P::kRows * kTileVectors / R;
  return room >= kSharePanels ? kSharePanels : room >= 4 ? 4 : room >= 2 ? 2 : 1;
}

// A run of panels; `limit` is where the share that it belongs to ends.
struct PanelRun { int64_t begin, end, limit; };

// The panels that are left when V do not fit are taken by halves; for a single row, whose chains are too few for that, at once.
template <class P, int R, int V = tile_vectors<P, R>()>
void linear_panels(const LinearJob& job, int64_t row0, PanelRun run) {
  for (; run.begin + V <= run.end; run.begin += V)
    linear_tile<P, R, V>(job, row0, run.begin, run.begin + 2 * V <= run.limit ? V : 0);
  if constexpr (V > 1)
    if (run.begin < run.end) linear_panels<P, R, (R > 1 ? V / 2 : V - 1)>(job, row0, run);
}

template <class P, int R>
void linear_rows(const LinearJob& job, int64_t rows, int64_t row0, PanelRun run) {
  if (rows == R) return linear_panels<P, R>(job, row0, run);
  if constexpr (R > 1) linear_rows<P, R - 1>(job, rows, row0, run);
}

// Converts the rows of one tile.
inline void convert_tile(const LinearArgs& args, int64_t row0, int64_t rows, uint32_t* out, Int8Block* blocks) {
  const PackedMatrix& w = *args.w;
  const int64_t stride = rows * kLanes;  // from one group of a row to its next
  for (int64_t r = 0; r < rows; ++r, out += kLanes) {
    const float* source = args.x + (row0 + r) * w.cols;
    switch (w.profile) {
      case Profile::kFp32:
        for (int64_t k = 0; k < w.cols; k += kLanes)
          __builtin_memcpy(out + k / kLanes * stride, source + k, size_t(w.cols - k < kLanes ? w.cols - k : kLanes) * 4);
        break;
      case Profile::kBf16:
        bf16_row(source, w.cols, out, stride);
        break;
      case Profile::kInt8:
        for (int64_t b = 0; b < ceil_div(w.cols, kInt8Block); ++b) {
          float padded[kInt8Block];
          uint32_t words[kInt8Block / 4];
          const float* block = int8_source(source, w.cols, b, padded);
          const Int8Row quantised = int8_scale(largest_magnitude(block));
          blocks[b * rows + r] = {quantised.scale, -128 * int8_block(block, quantised, words)};
          for (int64_t g = 0; g < kInt8Block / 4 / kLanes; ++g)
            __builtin_memcpy(out + (b * kInt8Block / 4 / kLanes + g) * stride, words + g * kLanes, kLanes * 4);
        }
    }
  }
}

template <class P>
void linear_product(const LinearArgs& args, ThreadPool& pool, Buffer& scratch) {
  const PackedMatrix& w = *args.w;
  const int64_t block_count = w.profile == Profile::kInt8 ? ceil_div(w.cols, kInt8Block) : 0;
  const int64_t whole = w.profile == Profile::kInt8 ? kInt8Block / 4 : kLanes;  // units that are always converted together
  const int64_t x_stride = ceil_div(w.units(), whole) * whole;
  LinearJob job{&args, nullptr, x_stride, nullptr, block_count, ceil_div(args.m, P::kRows)};
  const int64_t words = args.m * x_stride;
  scratch.grow(size_t(words) * 4 + size_t(args.m * block_count) * sizeof(Int8Block));
  uint32_t* x = scratch.as<uint32_t>();
  Int8Block* blocks = reinterpret_cast<Int8Block*>(x + words);
  auto convert = [&](int64_t tile) {
    const int64_t begin = job.tile_begin(tile), rows = job.tile_begin(tile + 1) - begin;
    convert_tile(args, begin, rows, x + begin * x_stride, blocks + begin * block_count);
  };
  if (job.tiles == 1) convert(0);
  else pool.run(job.tiles, convert);
  job.x = x;
  job.blocks = blocks;
  // Shares of panels of one size, as many for each thread, and parts of the tiles, so that a slow core does not hold up the rest.
  const int64_t threads = pool.threads(), panels = w.panels();
  const int64_t even = ceil_div(ceil_div(panels, kSharePanels), threads) * threads, shares = even < panels ? even : panels;
  const int64_t wanted = ceil_div(8 * threads, shares), parts = wanted < job.tiles ? wanted : job.tiles;
  // With a few tiles, all of them pass before the next panels, whose weights arrive meanwhile. The inputs of more tiles do not
  // stay in cache for that.
  const int64_t together = job.tiles > 1 && job.tiles <= 4 ? kTileVectors : kSharePanels;
  pool.run(shares * parts, [&](int64_t item) {
    const int64_t begin = item / parts * panels / shares, end = (item / parts + 1) * panels / shares;
    const int64_t part = item % parts, tile_end = (part + 1) * job.tiles / parts;
    for (int64_t panel = begin; panel < end; panel += together) {
      const PanelRun run{panel, panel + together < end ? panel + together : end, end};
      for (int64_t tile = part * job.tiles / parts; tile < tile_end; ++tile) {
        const int64_t row0 = job.tile_begin(tile);
        linear_rows<P, P::kRows>(job, job.tile_begin(tile + 1) - row0, row0, run);
      }
    }
  });
}

inline void linear(const LinearArgs& args, ThreadPool& pool, Buffer& scratch) {
  switch (args.w->profile) {
    case Profile::kFp32: return linear_product<Fp32Product>(args, pool, scratch);
    case Profile::kBf16: return linear_product<Bf16Product>(args, pool, scratch);
    case Profile::kInt8: return linear_product<Int8Product>(args, pool, scratch);
  }
}
