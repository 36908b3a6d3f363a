#include "native_contract.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "contract_support.h"
#include "zeno/comm/cost.h"

namespace zeno::comm::contract {
namespace native {
namespace {

constexpr std::array kMemories{Memory::plain, Memory::shared, Memory::mixed};
constexpr std::array<int64_t, 5> kCounts{0, 1, 7, 1000, 4099};

double rounding(DType dtype) {  // of one operation, relative
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// MPI sums fp32 only.
std::vector<DType> dtypes_of(const Site& site) {
  if (site.on_cuda()) return {DType::f32, DType::bf16, DType::f16};
  return {DType::f32};
}

// `more` was there before, in fp32.
void expect_sum(float got, int ranks, int64_t index, int salt, DType dtype, DType out, const char* what,
                float more = 0) {
  double sum = more, size = std::abs(more);
  for (int r = 0; r < ranks; ++r) {
    const double v = rounded(value(r, index, salt), dtype);
    sum += v;
    size += std::abs(v);
  }
  const double tolerance = (ranks + 1) * rounding(dtype) * size + rounding(out) * size + 1e-7;
  expect(std::abs(double(got) - sum) <= tolerance, "{}: element {} is {}, expected {} within {}", what, index,
         got, sum, tolerance);
}

void scatter_once(Site& site, Communicator& comm, Memory memory, DType dtype, DType out, int64_t count,
                  bool accumulate) {
  const int n = site.size(), rank = site.rank();
  Stream stream = site.stream("reduce");
  Bytes send = filled(site, memory, n * count, dtype, 2, size_of(dtype));
  Bytes recv(site, memory, size_t(count) * size_of(out), size_of(out));
  for (int64_t i = 0; i < count; ++i) put(recv.host(), out, i, 0.125f);
  recv.upload();
  const Part part{send.data(), recv.data(), count};
  comm.reduce_scatter(stream, {&part, 1}, dtype, out, accumulate, "blocks.1");
  settle(stream, comm);
  recv.download();
  send.download();
  for (int64_t i = 0; i < count; ++i) {
    expect_sum(get(recv.host(), out, i), n, rank * count + i, 2, dtype, out, "reduce_scatter",
               accumulate ? 0.125f : 0);
  }
  for (int64_t i = 0; i < n * count; ++i) {  // what is sent is only read
    expect_equal(get(send.host(), dtype, i), rounded(value(rank, i, 2), dtype), "reduce_scatter, send", i);
  }
}

void reduce_scatters(Site& site) {
  const auto comm = site.communicator("reduce");
  for (const Memory memory : kMemories) {
    for (const DType dtype : dtypes_of(site)) {
      for (const int64_t count : kCounts) {
        for (const bool accumulate : {false, true}) {
          scatter_once(site, *comm, memory, dtype, DType::f32, count, accumulate);
          scatter_once(site, *comm, memory, dtype, DType::bf16, count, accumulate);
        }
      }
    }
  }
}

void reduce_scatters_in_place(Site& site) {
  const auto comm = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 40'003;
  Stream stream = site.stream("reduce");
  Bytes send = filled(site, Memory::mixed, n * count, DType::f32, 3);
  const Part part{send.data(), send.data() + size_t(rank * count) * 4, count};
  comm->reduce_scatter(stream, {&part, 1}, DType::f32, DType::f32, false, "blocks.1");
  settle(stream, *comm);
  send.download();
  for (int64_t i = 0; i < n * count; ++i) {
    const float got = get(send.host(), DType::f32, i);
    if (i / count == rank) {
      expect_sum(got, n, i, 3, DType::f32, DType::f32, "reduce_scatter in place");
    } else {
      expect_equal(got, value(rank, i, 3), "reduce_scatter in place, the rest", i);
    }
  }
}

// Copies of a parameter stay the same everywhere: so must their gradients be.
void expect_same_everywhere(Site& site, Bytes& sum, size_t bytes) {
  const std::string mine(reinterpret_cast<const char*>(sum.host()), bytes);
  const std::string first = site.world().exchange(mine).front();
  expect(first == mine, "all_reduce: rank {} has other bits than rank 0", site.rank());
}

void all_reduces(Site& site) {
  const auto comm = site.communicator("reduce");
  for (const Memory memory : kMemories) {
    for (const DType dtype : dtypes_of(site)) {
      for (const int64_t count : kCounts) {
        for (const bool in_place : {false, true}) {
          Stream stream = site.stream("reduce");
          Bytes send = filled(site, memory, count, dtype, 4);
          Bytes recv(site, memory, size_t(count) * size_of(dtype), 2 * size_of(dtype));
          Bytes& to = in_place ? send : recv;
          const Part part{send.data(), to.data(), count};
          comm->all_reduce(stream, {&part, 1}, dtype, "norm");
          settle(stream, *comm);
          to.download();
          for (int64_t i = 0; i < count; ++i) {
            expect_sum(get(to.host(), dtype, i), site.size(), i, 4, dtype, dtype, "all_reduce");
          }
          expect_same_everywhere(site, to, size_t(count) * size_of(dtype));
        }
      }
    }
  }
}

// More than staging holds, in several parts of which some are empty; added to what is there.
void many_parts(Site& site) {
  const auto comm = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  std::vector<Bytes> sends, recvs;
  std::vector<Part> parts;
  for (int p = 0; p < 70; ++p) {
    const int64_t count = p % 3 == 0 ? 0 : p == 40 ? 300'007 : p;
    sends.push_back(filled_periodic(site, Memory::mixed, n * count, DType::f32, p));
    recvs.push_back(filled_periodic(site, Memory::mixed, count, DType::f32, p + 1));
    parts.push_back({sends.back().data(), recvs.back().data(), count});
  }
  Stream stream = site.stream("reduce", 2);
  comm->reduce_scatter(stream, parts, DType::f32, DType::f32, true, "blocks.0");
  settle(stream, *comm);
  for (size_t p = 0; p < parts.size(); ++p) {
    recvs[p].download();
    for (int64_t i = 0; i < parts[p].count; i += 1 + parts[p].count / 1000) {
      expect_sum(get(recvs[p].host(), DType::f32, i), n, (rank * parts[p].count + i) % kPeriod, int(p),
                 DType::f32, DType::f32, "many parts", value(rank, i % kPeriod, int(p) + 1));
    }
  }
}

// Sums beside gathers, each on a stream and a communicator of its own.
void works_beside_gathers(Site& site) {
  const auto gathers = site.communicator("gather"), sums = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 5000;
  Stream a = site.stream("a"), b = site.stream("b");
  Bytes send = filled(site, Memory::mixed, n * count, DType::f32, 8);
  Bytes all(site, Memory::mixed, size_t(n * count) * 4), sum(site, Memory::mixed, size_t(count) * 4);
  const Part gather{send.data(), all.data(), count}, reduce{send.data(), sum.data(), count};
  for (int round = 0; round < 20; ++round) {
    const bool gathers_first = site.on_cuda() ? round % 2 == 0 : rank % 2 == 0;
    if (gathers_first) gathers->all_gather(a, {&gather, 1}, DType::f32, "g");
    sums->reduce_scatter(b, {&reduce, 1}, DType::f32, DType::f32, false, "r");
    if (!gathers_first) gathers->all_gather(a, {&gather, 1}, DType::f32, "g");
  }
  settle(a, *gathers);
  settle(b, *sums);
  all.download();
  sum.download();
  for (int64_t i = 0; i < count; ++i) {
    expect_equal(get(all.host(), DType::f32, (n - 1) * count + i), value(n - 1, i, 8), "gather", i);
    expect_sum(get(sum.host(), DType::f32, i), n, rank * count + i, 8, DType::f32, DType::f32, "reduce");
  }
}

// Two groups side by side whose ranks alternate.
void within_groups(Site& site) {
  if (site.size() < 3) return;
  std::vector<int> ranks;
  for (int r = site.rank() % 2; r < site.size(); r += 2) ranks.push_back(r);
  const auto comm = site.world().communicator("half", site.device(), ranks, Reduction::native);
  const int64_t count = 1000;
  Stream stream = site.stream("half");
  Bytes send = filled(site, Memory::mixed, count, DType::f32, 5), sum(site, Memory::mixed, size_t(count) * 4);
  const Part part{send.data(), sum.data(), count};
  comm->all_reduce(stream, {&part, 1}, DType::f32, "norm");
  settle(stream, *comm);
  sum.download();
  for (int64_t i = 0; i < count; ++i) {
    double want = 0, size = 0;
    for (const int r : ranks) {
      want += double(value(r, i, 5));
      size += std::abs(double(value(r, i, 5)));
    }
    const double got = get(sum.host(), DType::f32, i);
    expect(std::abs(got - want) <= double(ranks.size()) * 0x1p-24 * size,
           "sum of a half: element {} is {}, "
           "expected {}",
           i, got, want);
  }
}

// The counts are those of the tree, whatever NCCL and MPI make of them.
void counts_traffic(Site& site) {
  const auto native = site.communicator("native");
  Site as_tree(site.world(), site.device());
  const auto tree = as_tree.communicator("tree");
  const int n = site.size();
  const int64_t count = 333;
  for (Communicator* comm : {native.get(), tree.get()}) {
    Stream stream = site.stream("traffic");
    Bytes a = filled(site, Memory::shared, n * count, DType::f32, 1),
          b(site, Memory::shared, size_t(count) * 4);
    const Part part{a.data(), b.data(), count};
    comm->reduce_scatter(stream, {&part, 1}, DType::f32, DType::f32, false, "u");
    comm->all_reduce(stream, {&part, 1}, DType::f32, "u");
    settle(stream, *comm);
  }
  const Traffic got = native->traffic(), want = tree->traffic();
  expect(got.calls == 2 && got.reduced == want.reduced, "reduced {} bytes in {} calls, expected {} in 2",
         got.reduced, got.calls, want.reduced);
  expect(got.between_hosts == want.between_hosts, "{} bytes between hosts, expected {}", got.between_hosts,
         want.between_hosts);
}

// A sum that MPI cannot take is refused at once, and the communicator still works.
void refuses_other_dtypes(Site& site) {
  const auto comm = site.communicator("wrong");
  if (site.on_cuda() || site.world().local_size() == site.size()) return;
  Stream stream = site.stream("wrong");
  Bytes a(site, Memory::shared, 64), b(site, Memory::shared, 64);
  const Part part{a.data(), b.data(), 1};
  std::string message;
  try {
    comm->all_reduce(stream, {&part, 1}, DType::bf16, "u");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage) message = error.what();
  }
  expect(message.find("on 'wrong', a native sum: got bf16, expected fp32") != std::string::npos, "got '{}'",
         message);
  comm->all_reduce(stream, {&part, 1}, DType::f32, "u");
  settle(stream, *comm);
}

// All ranks must mean the same.
void refuses_a_mix(Site& site) {
  if (site.size() == 1) return;
  std::vector<int> ranks;
  for (int r = 0; r < site.size(); ++r) ranks.push_back(r);
  std::string message;
  try {
    site.world().communicator("mixed", site.device(), ranks,
                              site.rank() == 0 ? Reduction::tree : Reduction::native);
  } catch (const Error& error) {
    message = error.what();
  }
  expect(
      message.find("the ranks disagree on a new communicator: rank 0 has 'mixed (c") != std::string::npos &&
          message.find("native sums)'") != std::string::npos,
      "got '{}'", message);
}

}  // namespace
}  // namespace native

std::span<const Case> native_cases() {
  static constexpr std::array kCases{
      Case{"reduce_scatters", native::reduce_scatters},
      Case{"reduce_scatters_in_place", native::reduce_scatters_in_place},
      Case{"all_reduces", native::all_reduces},
      Case{"many_parts", native::many_parts},
      Case{"works_beside_gathers", native::works_beside_gathers},
      Case{"within_groups", native::within_groups},
      Case{"counts_traffic", native::counts_traffic},
      Case{"refuses_other_dtypes", native::refuses_other_dtypes},
      Case{"refuses_a_mix", native::refuses_a_mix},
  };
  return kCases;
}

}  // namespace zeno::comm::contract
