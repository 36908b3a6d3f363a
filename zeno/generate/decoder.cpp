#include "zeno/generate/decoder.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/math.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/matmul.h"
#include "zeno/model/layers.h"

namespace zeno::generate {
namespace {

constexpr size_t kAlignment = 256;
// A long prompt goes through the layers in parts of this many tokens: activations stay small.
constexpr int64_t kPart = 256;
// Elements that are read and converted at a time.
constexpr int64_t kPiece = 1 << 20;

size_t aligned(size_t bytes) { return round_up(bytes, kAlignment); }

// Cuts aligned tensors from a buffer, one after the other.
struct Cutter {
  std::byte* at;
  Tensor take(DType dtype, int64_t rows, int64_t cols) {
    const Tensor tensor(at, dtype, rows, cols);
    at += aligned(tensor.bytes());
    return tensor;
  }
};

size_t memory_limit(Device device) {
  const size_t free = available_memory(device);
  if (device.kind == Device::Kind::cpu) return free;
  constexpr size_t kReserve = size_t(128) << 20;  // for memory that is not counted
  return free + library_memory(device.kind).context - std::min(free, kReserve);
}

}  // namespace

Decoder::Decoder(const model::ModelConfig& config, const model::ParameterValues& values,
                 const DecoderOptions& options)
    : dtype_(options.dtype.value_or(config.dtype)),
      device_(options.device),
      ledger_(std::make_unique<Ledger>()) {
  const int64_t context = options.context > 0 ? options.context : config.max_positions;
  require(context <= config.max_positions, ErrorKind::usage,
          "[generate] context: got {} tokens, expected at most {}, the positions of this model", context,
          config.max_positions);
  cache_ = {.sequences = options.sequences, .capacity = context};
  rows_ = std::max(options.sequences, std::min(kPart, context));
  threads_ = options.threads > 0 ? options.threads : available_cores();
  if (device_.kind != Device::Kind::cpu) threads_ = 1;
  model_ = model::build_layers(config, context);
  const std::vector<nn::Parameter> table = model::parameter_table(model_);
  book(table, options);
  require_fit(options);
  allocate(table);
  Workers loaders(options.threads > 0 ? options.threads : available_cores());
  for (const nn::Parameter& parameter : table) load(parameter, values, loaders);
}

Decoder::~Decoder() = default;

nn::BatchShape Decoder::shape(int64_t batch, int64_t seq) const {
  return {.batch = batch, .seq = seq, .device = device_.kind};
}

void Decoder::book(const std::vector<nn::Parameter>& table, const DecoderOptions& options) {
  size_t weights = 0;
  for (const nn::Parameter& parameter : table)
    weights += aligned(size_t(parameter.count()) * size_of(dtype_));
  workspace_bytes_ = model_.loss->logits_workspace(options.sequences, dtype_);
  for (const auto& layer : model_.layers) {
    cache_bytes_ += aligned(layer->cache_bytes(cache_, dtype_));
    for (const nn::BatchShape& s :
         {shape(1, std::min(kPart, cache_.capacity)), shape(options.sequences, 1)}) {
      workspace_bytes_ = std::max(workspace_bytes_, layer->sizes(s, dtype_, nn::Recompute::full).workspace);
    }
  }
  const size_t row = size_t(model_.hidden) * size_of(dtype_);
  const auto device = Tier::device;
  ledger_->book(device, Purpose::parameters, weights);
  ledger_->book(device, Purpose::activations, cache_bytes_ + 2 * aligned(size_t(rows_) * row));
  ledger_->book(
      device, Purpose::workspace,
      aligned(workspace_bytes_) + size_t(threads_) * kernel_scratch_bytes(device_.kind) + model_.table_bytes);
  ledger_->book(device, Purpose::inputs, 3 * aligned(size_t(rows_) * sizeof(int32_t)));
  ledger_->book(device, Purpose::logits, size_t(options.sequences * model_.vocab) * sizeof(float));
  if (device_.kind == Device::Kind::cpu) return;
  // Inputs and logits cross over through host memory, and so do weights.
  const size_t crossing =
      std::max({size_t(kPiece) * size_of(dtype_), 3 * aligned(size_t(rows_) * sizeof(int32_t)),
                size_t(options.sequences * model_.vocab) * sizeof(float)});
  ledger_->book(Tier::host, Purpose::staging, crossing);
  const LibraryMemory libraries = library_memory(device_.kind);
  ledger_->book(device, Purpose::libraries, libraries.context + libraries.later);
}

void Decoder::require_fit(const DecoderOptions& options) const {
  const size_t needed = ledger_->booked(Tier::device), limit = memory_limit(device_);
  require(needed <= limit, ErrorKind::memory,
          "[generate] memory of {}: needs {} ({} of weights in {}, {} of keys and values for {} x {} "
          "tokens), but only {} are free; {}",
          describe(device_), format_bytes(needed),
          format_bytes(ledger_->booked(Tier::device, Purpose::parameters)), name_of(dtype_),
          format_bytes(cache_bytes_), options.sequences, cache_.capacity, format_bytes(limit),
          size_of(dtype_) > 2 ? "use --dtype bf16" : "use a smaller --context or fewer prompts at a time");
}

void Decoder::allocate(const std::vector<nn::Parameter>& table) {
  const Allocator own = allocator_of(device_);
  const auto take = [&](Purpose purpose, size_t bytes) {
    return Buffer(*ledger_, Tier::device, purpose, bytes, own);
  };
  weights_ = take(Purpose::parameters, ledger_->booked(Tier::device, Purpose::parameters));
  caches_ = take(Purpose::activations, cache_bytes_);
  activations_ =
      take(Purpose::activations, ledger_->booked(Tier::device, Purpose::activations) - cache_bytes_);
  workspace_ = take(Purpose::workspace, aligned(workspace_bytes_));
  scratch_ = take(Purpose::workspace, size_t(threads_) * kernel_scratch_bytes(device_.kind));
  inputs_ = take(Purpose::inputs, ledger_->booked(Tier::device, Purpose::inputs));
  logits_ = take(Purpose::logits, ledger_->booked(Tier::device, Purpose::logits));
  if (const size_t bytes = ledger_->booked(Tier::host, Purpose::staging); bytes > 0) {
    staging_ = Buffer(*ledger_, Tier::host, Purpose::staging, bytes,
                      [this](size_t size) { return allocate_pinned(device_, size); });
  }
  Cutter weights{weights_.data()}, caches{caches_.data()};
  for (const nn::Parameter& parameter : table)
    parameters_[parameter.name] = weights.take(dtype_, parameter.rows, parameter.cols);
  const auto views = [&](const std::vector<nn::Parameter>& list) {
    std::vector<Tensor> all;
    for (const nn::Parameter& parameter : list) all.push_back(parameters_.at(parameter.name));
    return all;
  };
  for (const auto& layer : model_.layers) {
    layer_parameters_.push_back(views(layer->parameters()));
    layer_caches_.push_back(caches.take(DType::u8, 1, int64_t(layer->cache_bytes(cache_, dtype_))));
    if (layer_caches_.back().cols == 0) layer_caches_.back() = Tensor{};
  }
  layer_parameters_.push_back(views(model_.loss->parameters()));
  stream_.emplace(StreamOptions{.device = device_,
                                .name = "generate",
                                .threads = threads_,
                                .scratch = scratch_.data(),
                                .scratch_bytes = kernel_scratch_bytes(device_.kind)});
}

void Decoder::load(const nn::Parameter& parameter, const model::ParameterValues& values, Workers& workers) {
  const bool direct = device_.kind == Device::Kind::cpu;
  const Tensor& to = parameters_.at(parameter.name);
  const int64_t batch = direct ? parameter.count() : kPiece;
  const int64_t grain = std::min(kPiece, std::max<int64_t>(1 << 16, batch / workers.threads()));
  for (int64_t begin = 0; begin < parameter.count(); begin += batch) {
    const int64_t count = std::min(batch, parameter.count() - begin);
    std::byte* const place = to.data + size_t(begin) * size_of(dtype_);
    workers.for_ranges(count, grain, [&](int64_t from, int64_t end, int) {
      std::vector<float> read(size_t(end - from));
      values(parameter, begin + from, begin + end, read.data());
      dispatch_float(dtype_, [&]<class T>() {
        T* out = reinterpret_cast<T*>(direct ? place : staging_.data()) + from;
        std::ranges::transform(read, out, [](float value) { return T(value); });
      });
    });
    if (direct) continue;
    copy_async(*stream_, place, staging_.data(), size_t(count) * size_of(dtype_));
    stream_->synchronize();
  }
}

void Decoder::put_inputs(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                         std::span<const int32_t> sequences) {
  const bool direct = device_.kind == Device::Kind::cpu;
  std::byte* const base = direct ? inputs_.data() : staging_.data();
  const size_t step = aligned(size_t(rows_) * sizeof(int32_t));
  std::ranges::copy(tokens, reinterpret_cast<int32_t*>(base));
  std::ranges::copy(positions, reinterpret_cast<int32_t*>(base + step));
  std::ranges::copy(sequences, reinterpret_cast<int32_t*>(base + 2 * step));
  if (!direct) copy_async(*stream_, inputs_.data(), base, 3 * step);
}

Tensor Decoder::run(int64_t batch, int64_t seq) {
  const size_t step = aligned(size_t(rows_) * sizeof(int32_t));
  const int64_t rows = batch * seq;
  const auto input = [&](size_t index, int64_t count) {
    return Tensor(inputs_.data() + index * step, DType::i32, 1, count);
  };
  nn::Batch tokens{.shape = shape(batch, seq)};
  tokens.tokens = input(0, rows);
  tokens.positions = input(1, rows);
  tokens.slots = input(2, batch);
  tokens.cache = cache_;
  Cutter cutter{activations_.data()};
  Tensor x = cutter.take(dtype_, rows_, model_.hidden).slice(0, rows);
  Tensor y = cutter.take(dtype_, rows_, model_.hidden).slice(0, rows);
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const nn::ForwardArgs args{
        .stream = *stream_,
        .batch = tokens,
        .params = layer_parameters_[i],
        .x = i == 0 ? Tensor{} : x,
        .y = y,
        .saved = {},
        .workspace = Tensor(workspace_.data(), DType::u8, 1, int64_t(workspace_bytes_)),
        .cache = layer_caches_[i]};
    model_.layers[i]->forward(args, nn::Recompute::full);
    std::swap(x, y);
  }
  return x;
}

std::span<float> Decoder::logits_of(Tensor rows) {
  const Tensor logits(logits_.data(), DType::f32, rows.rows, model_.vocab);
  model_.loss->logits({.stream = *stream_,
                       .params = layer_parameters_.back(),
                       .x = rows,
                       .logits = logits,
                       .workspace = Tensor(workspace_.data(), DType::u8, 1, int64_t(workspace_bytes_))});
  std::byte* host = logits_.data();
  if (device_.kind != Device::Kind::cpu) {
    host = staging_.data();
    copy_async(*stream_, host, logits_.data(), logits.bytes());
  }
  stream_->synchronize();
  return {reinterpret_cast<float*>(host), size_t(logits.count())};
}

std::span<float> Decoder::feed(int32_t sequence, int64_t position, std::span<const int32_t> tokens) {
  ensure(!tokens.empty() && position >= 0 && position + int64_t(tokens.size()) <= cache_.capacity,
         "[generate] feed: got {} tokens at {}, expected 1 to {} in total", tokens.size(), position,
         cache_.capacity);
  Tensor out;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), size_t(std::min(kPart, rows_))));
    std::vector<int32_t> positions(part.size());
    for (int32_t& at : positions) at = int32_t(position++);
    put_inputs(part, positions, std::span(&sequence, 1));
    out = run(1, int64_t(part.size()));
    stream_->synchronize();  // before the inputs are written again
    tokens = tokens.subspan(part.size());
  }
  return logits_of(out.slice(out.rows - 1, 1));
}

std::span<float> Decoder::step(std::span<const Next> next) {
  ensure(!next.empty() && int64_t(next.size()) <= cache_.sequences,
         "[generate] step: got {} sequences, expected 1 to {}", next.size(), cache_.sequences);
  std::vector<int32_t> tokens, positions, sequences;
  for (const Next& n : next) {
    tokens.push_back(n.token);
    positions.push_back(n.position);
    sequences.push_back(n.sequence);
  }
  put_inputs(tokens, positions, sequences);
  return logits_of(run(int64_t(next.size()), 1));
}

}  // namespace zeno::generate
