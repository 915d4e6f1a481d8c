// Python bindings. Shapes and ranges are checked here, once, so that no kernel can read or write out of bounds.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "kernels.h"
#include "sample.h"

namespace nb = nanobind;
using namespace nb::literals;

void bind_dequant(nb::module_& m);

namespace samebits {
namespace {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

void require(bool ok, const char* what) {
  if (!ok) throw nb::value_error(what);
}

struct Context {
  const KernelTable* table = nullptr;
  ThreadPool pool;
  Buffer scratch;

  Context(int threads, const std::string& isa) : pool(threads) {
    const TableList list = available_tables();
    for (int i = 0; i < list.count; ++i)
      if (isa == list.tables[i]->isa) table = list.tables[i];
    require(table != nullptr, "isa: not available on this machine");
  }
};

// Held for the length of an operation: one at a time, without the GIL, with the contract's rounding.
class Operation {
 public:
  explicit Operation(Context& context) : lock_(context.pool.operation_mutex(), std::defer_lock) {
    if (context.pool.lost_to_fork())
      throw std::runtime_error("a samebits Context does not survive fork(): create it in the child process");
    lock_.lock();
  }

 private:
  nb::gil_scoped_release release_;
  std::unique_lock<std::mutex> lock_;
  FloatEnvironment environment_;
};

Profile profile_of(const std::string& name) {
  if (name == "fp32") return Profile::kFp32;
  if (name == "bf16") return Profile::kBf16;
  require(name == "int8", "profile: expected fp32, bf16 or int8");
  return Profile::kInt8;
}

const char* profile_name(Profile p) { return p == Profile::kFp32 ? "fp32" : p == Profile::kBf16 ? "bf16" : "int8"; }

void set_rows(PackedMatrix& w, Context& context, int64_t row0, In<float, 2> rows) {
  require(int64_t(rows.shape(1)) == w.cols, "rows: wrong number of columns");
  require(row0 >= 0 && row0 + int64_t(rows.shape(0)) <= w.rows, "row0: rows out of range");
  Operation operation(context);
  context.table->pack_weights(w, row0, int64_t(rows.shape(0)), rows.data(), context.pool);
}

void linear(Context& context, In<float, 2> x, const PackedMatrix& w, Out<float, 2> out, bool residual) {
  require(int64_t(x.shape(1)) == w.cols, "x: its columns must equal the matrix's columns");
  require(out.shape(0) == x.shape(0) && int64_t(out.shape(1)) == w.rows, "out: shape must be (rows of x, rows of w)");
  Operation operation(context);
  context.table->linear({x.data(), int64_t(x.shape(0)), &w, out.data(), residual}, context.pool, context.scratch);
}

void embedding(Context& context, In<int32_t, 1> ids, const PackedMatrix& w, Out<float, 2> out) {
  require(out.shape(0) == ids.shape(0) && int64_t(out.shape(1)) == w.cols, "out: shape must be (ids, columns of w)");
  for (size_t i = 0; i < ids.shape(0); ++i)
    require(ids.data()[i] >= 0 && ids.data()[i] < w.rows, "ids: out of the vocabulary");
  Operation operation(context);
  for (size_t i = 0; i < ids.shape(0); ++i) unpack_row(w, ids.data()[i], out.data() + int64_t(i) * w.cols);
}

void rmsnorm(Context& context, In<float, 2> x, In<float, 1> weight, float eps, Out<float, 2> out) {
  require(weight.shape(0) == x.shape(1), "weight: one value per column of x");
  require(out.shape(0) == x.shape(0) && out.shape(1) == x.shape(1), "out: shape must be that of x");
  Operation operation(context);
  context.table->rmsnorm({x.data(), weight.data(), eps, int64_t(x.shape(0)), int64_t(x.shape(1)), out.data()},
                         context.pool);
}

void silu_mul(Context& context, In<float, 2> gate_up, Out<float, 2> out) {
  require(gate_up.shape(0) == out.shape(0) && gate_up.shape(1) == 2 * out.shape(1), "out: half the columns of gate_up");
  Operation operation(context);
  context.table->silu_mul({gate_up.data(), int64_t(out.shape(0)), int64_t(out.shape(1)), out.data()}, context.pool);
}

int64_t heads_of(size_t columns, const KvCache& cache) {
  const int64_t heads = int64_t(columns) / cache.head_dim;
  require(heads > 0 && heads * cache.head_dim == int64_t(columns) && heads % cache.kv_heads == 0,
          "q: columns must be heads x head_dim, with heads a multiple of the cache's kv heads");
  return heads;
}

void rope_store(Context& context, In<float, 2> qkv, In<int32_t, 1> positions, In<int64_t, 1> slots, In<float, 2> cos,
                In<float, 2> sin, const KvCache& cache, int64_t layer, Out<float, 2> q_out) {
  const size_t rows = qkv.shape(0);
  const int64_t heads = heads_of(q_out.shape(1), cache);
  require(int64_t(qkv.shape(1)) == (heads + 2 * cache.kv_heads) * cache.head_dim, "qkv: columns do not fit the cache");
  require(positions.shape(0) == rows && slots.shape(0) == rows && q_out.shape(0) == rows, "rows: lengths differ");
  require(cos.shape(0) == sin.shape(0) && int64_t(cos.shape(1)) == cache.head_dim / 2 && cos.shape(1) == sin.shape(1),
          "cos, sin: shape must be (positions, head_dim / 2)");
  require(layer >= 0 && layer < cache.layers, "layer: out of range");
  for (size_t i = 0; i < rows; ++i) {
    require(positions.data()[i] >= 0 && size_t(positions.data()[i]) < cos.shape(0), "positions: beyond the tables");
    require(slots.data()[i] >= 0 && slots.data()[i] < cache.pages * cache.page_size, "slots: outside the cache");
  }
  Operation operation(context);
  context.table->rope_store({qkv.data(), int64_t(rows), heads, positions.data(), slots.data(), cos.data(), sin.data(),
                             &cache, layer, q_out.data()},
                            context.pool);
}

void attention(Context& context, In<float, 2> q, const KvCache& cache, int64_t layer, In<int32_t, 1> positions,
               In<int32_t, 1> seq_starts, In<int32_t, 2> block_tables, Out<float, 2> out) {
  const int64_t rows = int64_t(q.shape(0)), sequences = int64_t(block_tables.shape(0));
  const int64_t width = int64_t(block_tables.shape(1));
  const int64_t heads = heads_of(q.shape(1), cache);
  require(out.shape(0) == q.shape(0) && out.shape(1) == q.shape(1), "out: shape must be that of q");
  require(int64_t(positions.shape(0)) == rows, "positions: one per row");
  require(int64_t(seq_starts.shape(0)) == sequences + 1, "seq_starts: one more than sequences");
  require(layer >= 0 && layer < cache.layers, "layer: out of range");
  const int32_t *starts = seq_starts.data(), *position = positions.data();
  require(starts[0] == 0 && starts[sequences] == rows, "seq_starts: must run from 0 to the number of rows");
  for (int64_t s = 0; s < sequences; ++s) {
    require(starts[s] <= starts[s + 1], "seq_starts: must not decrease");
    if (starts[s] == starts[s + 1]) continue;
    require(position[starts[s]] >= 0, "positions: negative");
    for (int64_t t = starts[s] + 1; t < starts[s + 1]; ++t)
      require(position[t] > position[t - 1], "positions: must ascend within a sequence");
    const int64_t pages = position[starts[s + 1] - 1] / cache.page_size + 1;
    require(pages <= width, "block_tables: fewer pages than positions need");
    for (int64_t i = 0; i < pages; ++i) {
      const int32_t page = block_tables.data()[s * width + i];
      require(page >= 0 && page < cache.pages, "block_tables: page outside the cache");
    }
  }
  Operation operation(context);
  context.table->attention({q.data(), rows, heads, &cache, layer, position, starts, block_tables.data(), sequences,
                            width, out.data()},
                           context.pool, context.scratch);
}

void log_softmax(Context& context, In<float, 2> logits, Out<float, 2> out) {
  require(out.shape(0) == logits.shape(0) && out.shape(1) == logits.shape(1), "out: shape must be that of logits");
  Operation operation(context);
  context.table->log_softmax({logits.data(), int64_t(logits.shape(0)), int64_t(logits.shape(1)), out.data()},
                             context.pool);
}

void log_softmax_at(Context& context, In<float, 2> logits, In<int32_t, 2> columns, Out<float, 2> out) {
  const size_t rows = logits.shape(0), wanted = columns.shape(1);
  require(columns.shape(0) == rows && out.shape(0) == rows && out.shape(1) == wanted,
          "columns, out: one row for each row of logits, of equal length");
  for (size_t i = 0; i < rows * wanted; ++i)
    require(columns.data()[i] >= 0 && size_t(columns.data()[i]) < logits.shape(1), "columns: outside the vocabulary");
  Operation operation(context);
  context.table->log_softmax({logits.data(), int64_t(rows), int64_t(logits.shape(1)), out.data(), columns.data(),
                              int64_t(wanted)},
                             context.pool);
}

void exclude_ids(In<float, 1> logits, In<bool, 1> allowed, Out<float, 1> out) {
  require(allowed.shape(0) == logits.shape(0) && out.shape(0) == logits.shape(0), "allowed, out: one for each logit");
  exclude(logits.data(), allowed.data(), int64_t(logits.shape(0)), out.data());
}

void argmax_rows(Context& context, In<float, 2> logits, Out<int32_t, 1> out) {
  require(out.shape(0) == logits.shape(0) && logits.shape(1) > 0, "out: one value per row of logits");
  const int64_t vocab = int64_t(logits.shape(1));
  Operation operation(context);
  context.pool.run(int64_t(logits.shape(0)),
                   [&](int64_t r) { out.data()[r] = int32_t(argmax(logits.data() + r * vocab, vocab)); });
}

void topk_rows(Context& context, In<float, 2> logits, Out<int32_t, 2> ids, Out<float, 2> values) {
  const int64_t vocab = int64_t(logits.shape(1)), k = int64_t(ids.shape(1));
  require(ids.shape(0) == logits.shape(0) && values.shape(0) == ids.shape(0) && values.shape(1) == ids.shape(1),
          "ids, values: shape must be (rows of logits, k)");
  require(k >= 0 && k <= vocab, "k: more than the vocabulary");
  Operation operation(context);
  context.pool.run(int64_t(logits.shape(0)), [&](int64_t r) {
    topk(logits.data() + r * vocab, vocab, k, ids.data() + r * k, values.data() + r * k);
  });
}

void sample_rows(Context& context, In<float, 2> logits, In<float, 1> temperature, In<int64_t, 1> top_k,
                 In<double, 1> top_p, In<double, 1> min_p, In<int64_t, 1> seed, In<uint32_t, 1> token_index,
                 In<uint32_t, 1> choice, Out<int32_t, 1> out) {
  const size_t rows = logits.shape(0);
  require(logits.shape(1) > 0, "logits: no vocabulary");
  for (const size_t n : {temperature.shape(0), top_k.shape(0), top_p.shape(0), min_p.shape(0), seed.shape(0),
                         token_index.shape(0), choice.shape(0), out.shape(0)})
    require(n == rows, "sample: one parameter and one id per row of logits");
  std::vector<Draw> draws;
  for (size_t r = 0; r < rows; ++r) {
    draws.push_back({temperature.data()[r], top_k.data()[r], top_p.data()[r], min_p.data()[r], seed.data()[r],
                     token_index.data()[r], choice.data()[r]});
    const Draw& d = draws.back();
    require(d.temperature >= 0 && d.temperature < __builtin_inff() && d.top_k >= 0 && d.top_p > 0 && d.top_p <= 1 &&
                d.min_p >= 0 && d.min_p <= 1,
            "sample: parameter out of range");
  }
  Operation operation(context);
  sample({logits.data(), int64_t(rows), int64_t(logits.shape(1)), draws.data(), out.data()}, *context.table,
         context.pool, context.scratch);
}

}  // namespace
}  // namespace samebits

NB_MODULE(_core, m) {
  using namespace samebits;
  nb::set_leak_warnings(false);
  nb::class_<Context>(m, "Context")
      .def(nb::init<int, const std::string&>(), "threads"_a, "isa"_a)
      .def_prop_ro("threads", [](const Context& c) { return c.pool.threads(); })
      .def_prop_ro("isa", [](const Context& c) { return c.table->isa; });
  nb::class_<PackedMatrix>(m, "PackedMatrix")
      .def("__init__",
           [](PackedMatrix* self, const std::string& profile, int64_t rows, int64_t cols) {
             require(rows > 0 && cols > 0, "rows, cols: must be positive");
             new (self) PackedMatrix(profile_of(profile), rows, cols);
           },
           "profile"_a, "rows"_a, "cols"_a)
      .def("set_rows", &set_rows, "context"_a, "row0"_a, "rows"_a)
      .def_prop_ro("profile", [](const PackedMatrix& w) { return profile_name(w.profile); })
      .def_ro("rows", &PackedMatrix::rows)
      .def_ro("cols", &PackedMatrix::cols)
      .def_prop_ro("nbytes", [](const PackedMatrix& w) { return w.data.size() + w.scales.size(); });
  nb::class_<KvCache>(m, "KvCache")
      .def("__init__",
           [](KvCache* self, const std::string& profile, int64_t layers, int64_t pages, int64_t page_size,
              int64_t kv_heads, int64_t head_dim) {
             require(layers > 0 && pages > 0 && kv_heads > 0, "layers, pages, kv_heads: must be positive");
             require(page_size > 0 && page_size <= kKeyBlock && (page_size & (page_size - 1)) == 0,
                     "page_size: must be a power of two from 1 to 256");
             require(head_dim > 0 && head_dim <= 1024 && head_dim % 2 == 0, "head_dim: must be even, at most 1024");
             new (self) KvCache(profile_of(profile) != Profile::kFp32, layers, pages, page_size, kv_heads, head_dim);
           },
           "profile"_a, "layers"_a, "pages"_a, "page_size"_a, "kv_heads"_a, "head_dim"_a)
      .def_ro("pages", &KvCache::pages)
      .def_ro("page_size", &KvCache::page_size)
      .def_prop_ro("nbytes", [](const KvCache& c) { return c.keys.size() + c.values.size(); });
  m.def("isas", [] {
    const TableList list = available_tables();
    std::vector<std::string> names;
    for (int i = 0; i < list.count; ++i) names.emplace_back(list.tables[i]->isa);
    return names;
  });
  m.def("dispatch", [] {
    const TableList list = available_tables();
    nb::dict table;
    for (int i = 0; i < list.count; ++i) {
      nb::dict row;
      row["bf16"] = list.tables[i]->linear_bf16;
      row["int8"] = list.tables[i]->linear_int8;
      table[list.tables[i]->isa] = row;
    }
    return table;
  }, nb::sig("def dispatch() -> dict[str, dict[str, str]]"));
  m.def("linear", &linear, "context"_a, "x"_a, "w"_a, "out"_a, "residual"_a = false);
  m.def(
      "round_bf16",
      [](In<float, 2> x, Out<float, 2> out) {
        require(x.shape(0) == out.shape(0) && x.shape(1) == out.shape(1), "out: shape must be that of x");
        nb::gil_scoped_release release;
        round_bf16(x.data(), int64_t(x.shape(0) * x.shape(1)), out.data());
      },
      "x"_a, "out"_a);
  m.def("embedding", &embedding, "context"_a, "ids"_a, "w"_a, "out"_a);
  m.def("rmsnorm", &rmsnorm, "context"_a, "x"_a, "weight"_a, "eps"_a, "out"_a);
  m.def("silu_mul", &silu_mul, "context"_a, "gate_up"_a, "out"_a);
  m.def("rope_store", &rope_store, "context"_a, "qkv"_a, "positions"_a, "slots"_a, "cos"_a, "sin"_a, "cache"_a,
        "layer"_a, "q_out"_a);
  m.def("attention", &attention, "context"_a, "q"_a, "cache"_a, "layer"_a, "positions"_a, "seq_starts"_a,
        "block_tables"_a, "out"_a);
  m.def("log_softmax", &log_softmax, "context"_a, "logits"_a, "out"_a);
  m.def("log_softmax_at", &log_softmax_at, "context"_a, "logits"_a, "columns"_a, "out"_a);
  m.def("exclude", &exclude_ids, "logits"_a, "allowed"_a, "out"_a);
  m.def("argmax", &argmax_rows, "context"_a, "logits"_a, "out"_a);
  m.def("topk", &topk_rows, "context"_a, "logits"_a, "ids"_a, "values"_a);
  m.def("sample", &sample_rows, "context"_a, "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a,
        "token_index"_a, "choice"_a, "out"_a);
  m.def("philox", &philox, "seed"_a, "token_index"_a, "choice"_a);
  bind_dequant(m);
}
