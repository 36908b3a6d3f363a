#include "communicator_contract.h"

#include <array>
#include <string>
#include <vector>

#include "contract_support.h"
#include "exchange_contract.h"
#include "group_contract.h"
#include "zeno/comm/cost.h"

namespace zeno::comm::contract {
namespace {

constexpr std::array kFloats{DType::f32, DType::bf16, DType::f16};
constexpr std::array kMemories{Memory::plain, Memory::shared, Memory::mixed};
constexpr std::array<int64_t, 5> kCounts{0, 1, 7, 1000, 4099};

void gathers(Site& site) {
  const auto comm = site.communicator("gather");
  const int n = site.size();
  for (const Memory memory : kMemories) {
    for (const DType dtype : kFloats) {
      for (const int64_t count : kCounts) {
        for (const bool in_place : {false, true}) {
          Stream stream = site.stream("gather");
          Bytes recv(site, memory, size_t(n * count) * size_of(dtype));
          Bytes send = filled(site, memory, count, dtype, 1, 2 * size_of(dtype));
          const std::byte* from = send.data();
          if (in_place) {
            const size_t place = size_t(site.rank() * count) * size_of(dtype);
            std::memcpy(recv.host() + place, send.host(), size_t(count) * size_of(dtype));
            recv.upload();
            from = recv.data() + place;
          }
          const Part part{from, recv.data(), count};
          comm->all_gather(stream, {&part, 1}, dtype, "blocks.0");
          settle(stream, *comm);
          recv.download();
          for (int64_t i = 0; i < n * count; ++i) {
            const float want = rounded(value(int(i / count), i % count, 1), dtype);
            expect_equal(get(recv.host(), dtype, i), want, "all_gather", i);
          }
        }
      }
    }
  }
}

void reduce_scatter_once(Site& site, Communicator& comm, Memory memory, DType dtype, DType out, int64_t count,
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
    float want = expected_sum(n, rank * count + i, 2, dtype);
    if (accumulate) want = 0.125f + want;
    expect_equal(get(recv.host(), out, i), rounded(want, out), "reduce_scatter", i);
  }
  for (int64_t i = 0; i < n * count; ++i) {  // what is sent is only read
    expect_equal(get(send.host(), dtype, i), rounded(value(rank, i, 2), dtype), "reduce_scatter, send", i);
  }
}

void reduce_scatters(Site& site) {
  const auto comm = site.communicator("reduce");
  for (const Memory memory : kMemories) {
    for (const DType dtype : kFloats) {
      for (const int64_t count : kCounts) {
        for (const DType out : kFloats) reduce_scatter_once(site, *comm, memory, dtype, out, count, false);
        reduce_scatter_once(site, *comm, memory, dtype, DType::f32, count, true);
      }
    }
  }
}

void reduce_scatters_in_place(Site& site) {
  const auto comm = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  for (const Memory memory : kMemories) {
    for (const DType dtype : kFloats) {
      const int64_t count = 1003;
      Stream stream = site.stream("reduce");
      Bytes send = filled(site, memory, n * count, dtype, 3);
      const Part part{send.data(), send.data() + size_t(rank * count) * size_of(dtype), count};
      comm->reduce_scatter(stream, {&part, 1}, dtype, dtype, false, "blocks.1");
      settle(stream, *comm);
      send.download();
      for (int64_t i = 0; i < n * count; ++i) {
        const float want = i / count == rank ? expected_sum(n, i, 3, dtype) : value(rank, i, 3);
        expect_equal(get(send.host(), dtype, i), rounded(want, dtype), "reduce_scatter in place", i);
      }
    }
  }
}

void all_reduces(Site& site) {
  const auto comm = site.communicator("reduce");
  for (const Memory memory : kMemories) {
    for (const DType dtype : kFloats) {
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
            const float want = rounded(expected_sum(site.size(), i, 4, dtype), dtype);
            expect_equal(get(to.host(), dtype, i), want, "all_reduce", i);
          }
        }
      }
    }
  }
}

void broadcasts(Site& site) {
  const auto comm = site.communicator("gather");
  for (const Memory memory : kMemories) {
    for (int root = 0; root < site.size(); ++root) {
      for (const int64_t count : kCounts) {
        for (const bool in_place : {false, true}) {
          Stream stream = site.stream("gather");
          const bool is_root = root == site.rank();
          Bytes send = filled(site, memory, count, DType::f16, 5);
          Bytes recv(site, memory, size_t(count) * 2);
          Bytes& to = in_place && is_root ? send : recv;
          const Part part{is_root ? send.data() : nullptr, to.data(), count};
          comm->broadcast(stream, {&part, 1}, DType::f16, root, "embedding");
          settle(stream, *comm);
          to.download();
          for (int64_t i = 0; i < count; ++i) {
            expect_equal(get(to.host(), DType::f16, i), rounded(value(root, i, 5), DType::f16), "broadcast",
                         i);
          }
        }
      }
    }
  }
}

void all_to_alls(Site& site) {
  const auto comm = site.communicator("exchange");
  const int n = site.size(), rank = site.rank();
  for (const Memory memory : kMemories) {
    for (const int64_t count : kCounts) {
      Stream stream = site.stream("exchange");
      Bytes send = filled(site, memory, n * count, DType::bf16, 6);
      Bytes recv(site, memory, size_t(n * count) * 2);
      const Part part{send.data(), recv.data(), count};
      comm->all_to_all(stream, {&part, 1}, DType::bf16, "experts");
      settle(stream, *comm);
      recv.download();
      for (int64_t i = 0; i < n * count; ++i) {
        const float want = rounded(value(int(i / count), rank * count + i % count, 6), DType::bf16);
        expect_equal(get(recv.host(), DType::bf16, i), want, "all_to_all", i);
      }
    }
  }
}

void sends_and_receives(Site& site) {
  const auto comm = site.communicator("pipeline");
  const int n = site.size(), rank = site.rank();
  if (n == 1) return;
  const std::array<int64_t, 4> counts{0, 3, 50'000, 300'001};  // the last ones do not fit a mailbox
  Stream out = site.stream("out"), in = site.stream("in");
  std::vector<Bytes> sent, received;
  for (const int64_t count : counts) {
    sent.push_back(filled(site, Memory::plain, count, DType::f32, int(count)));
    received.emplace_back(site, Memory::plain, size_t(count) * 4);
    const bool receives_first = site.on_cuda() && rank % 2 == 1;
    if (!receives_first) {
      comm->send(out, sent.back().data(), count, DType::f32, (rank + 1) % n, "activations");
    }
    comm->recv(in, received.back().data(), count, DType::f32, (rank + n - 1) % n, "activations");
    if (receives_first) {
      comm->send(out, sent.back().data(), count, DType::f32, (rank + 1) % n, "activations");
    }
  }
  settle(out, *comm);
  settle(in, *comm);
  for (size_t k = 0; k < counts.size(); ++k) {
    received[k].download();
    for (int64_t i = 0; i < counts[k]; ++i) {
      expect_equal(get(received[k].host(), DType::f32, i), value((rank + n - 1) % n, i, int(counts[k])),
                   "recv", i);
    }
  }
}

// One call with more parts than fit one rendezvous, some of them empty.
void many_parts(Site& site) {
  const auto comm = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  std::vector<Bytes> sends, recvs;
  std::vector<Part> parts;
  for (int p = 0; p < 70; ++p) {
    const int64_t count = p % 3 == 0 ? 0 : p;
    sends.push_back(filled(site, Memory::mixed, n * count, DType::bf16, p));
    recvs.emplace_back(site, Memory::mixed, size_t(count) * 4);
    parts.push_back({sends.back().data(), recvs.back().data(), count});
  }
  Stream stream = site.stream("reduce");
  comm->reduce_scatter(stream, parts, DType::bf16, DType::f32, false,
                       "a unit with a name that is far longer than the sixty-three "
                       "characters that fit into a record");
  comm->all_gather(stream, {}, DType::f32, "no parts");
  settle(stream, *comm);
  for (size_t p = 0; p < parts.size(); ++p) {
    recvs[p].download();
    for (int64_t i = 0; i < parts[p].count; ++i) {
      const float want = expected_sum(n, rank * parts[p].count + i, int(p), DType::bf16);
      expect_equal(get(recvs[p].host(), DType::f32, i), want, "many parts", i);
    }
  }
}

// Operations of one communicator keep their order on one stream and over two streams; nothing waits for the
// caller.
void keeps_order(Site& site) {
  const auto comm = site.communicator("gather");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 100;
  Stream a = site.stream("a"), b = site.stream("b");
  Bytes x = filled(site, Memory::shared, count, DType::f32, 7);
  Bytes y(site, Memory::shared, size_t(n * count) * 4), z(site, Memory::shared, size_t(count) * 4);
  Event gathered;
  for (int round = 0; round < 20; ++round) {
    const Part gather{x.data(), y.data(), count};
    comm->all_gather(a, {&gather, 1}, DType::f32, "x");
    gathered.record(a);
    b.ref().wait(gathered);
    const Part reduce{y.data(), z.data(), count};
    comm->reduce_scatter(b, {&reduce, 1}, DType::f32, DType::f32, false, "y");
    Event reduced;
    reduced.record(b);
    a.ref().wait(reduced);
  }
  settle(a, *comm);
  settle(b, *comm);
  z.download();
  for (int64_t i = 0; i < count; ++i) {  // everybody's slice `rank` is what rank `rank` sent, n times
    const std::vector<float> same(size_t(n), value(rank, i, 7));
    expect_equal(get(z.host(), DType::f32, i), tree(same, 0, same.size()), "order", i);
  }
}

void two_communicators_at_once(Site& site) {
  const auto first = site.communicator("gather"), second = site.communicator("reduce");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 5000;
  Stream a = site.stream("a"), b = site.stream("b");
  Bytes send = filled(site, Memory::mixed, n * count, DType::f32, 8);
  Bytes all(site, Memory::mixed, size_t(n * count) * 4), sum(site, Memory::mixed, size_t(count) * 4);
  const Part gather{send.data(), all.data(), count}, reduce{send.data(), sum.data(), count};
  for (int round = 0; round < 20; ++round) {  // on the CPU, ranks issue the two in different orders
    const bool gathers_first = site.on_cuda() ? round % 2 == 0 : rank % 2 == 0;
    if (gathers_first) first->all_gather(a, {&gather, 1}, DType::f32, "g");
    second->reduce_scatter(b, {&reduce, 1}, DType::f32, DType::f32, false, "r");
    if (!gathers_first) first->all_gather(a, {&gather, 1}, DType::f32, "g");
  }
  settle(a, *first);
  settle(b, *second);
  all.download();
  sum.download();
  for (int64_t i = 0; i < count; ++i) {
    expect_equal(get(all.host(), DType::f32, (n - 1) * count + i), value(n - 1, i, 8), "gather", i);
    expect_equal(get(sum.host(), DType::f32, i), expected_sum(n, rank * count + i, 8, DType::f32), "reduce",
                 i);
  }
}

// Large enough for streaming stores and for several chunks of staging, with a team of threads.
void large(Site& site) {
  if (site.size() > 4) return;
  const auto comm = site.communicator("large");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 1'200'011, step = 97;
  for (const Memory memory : {Memory::shared, Memory::plain}) {
    Stream stream = site.stream("large", 2);
    Bytes all = filled_periodic(site, memory, n * count, DType::bf16, 9, 2);
    Bytes sum(site, memory, size_t(count) * 4, 4);
    std::memset(sum.host(), 0, size_t(count) * 4);
    sum.upload();
    const Part scatter{all.data(), sum.data(), count};
    comm->reduce_scatter(stream, {&scatter, 1}, DType::bf16, DType::f32, true, "large");
    Bytes send = filled_periodic(site, memory, count, DType::f32, 9),
          recv(site, memory, size_t(n * count) * 4, 4);
    const Part gather{send.data(), recv.data(), count}, reduce{send.data(), send.data(), count};
    comm->all_gather(stream, {&gather, 1}, DType::f32, "large");
    comm->all_reduce(stream, {&reduce, 1}, DType::f32, "large");
    settle(stream, *comm);
    for (Bytes* bytes : {&sum, &send, &recv}) bytes->download();
    for (int64_t i = 0; i < count; i += step) {
      const float want = expected_sum(n, (rank * count + i) % kPeriod, 9, DType::bf16);
      expect_equal(get(sum.host(), DType::f32, i), want, "large reduce_scatter", i);
      expect_equal(get(send.host(), DType::f32, i), expected_sum(n, i % kPeriod, 9, DType::f32),
                   "large all_reduce", i);
    }
    for (int64_t i = 0; i < n * count; i += step) {
      expect_equal(get(recv.host(), DType::f32, i), value(int(i / count), i % count % kPeriod, 9),
                   "large all_gather", i);
    }
  }
}

void counts_traffic(Site& site) {
  const auto comm = site.communicator("traffic");
  const int n = site.size(), rank = site.rank();
  const int64_t count = 333;
  Stream stream = site.stream("traffic");
  Bytes a = filled(site, Memory::shared, n * count, DType::f32, 1),
        b(site, Memory::shared, size_t(n * count) * 4);
  const std::array<Part, 2> parts{Part{a.data(), b.data(), count}, Part{a.data(), b.data(), 0}};
  comm->all_gather(stream, parts, DType::bf16, "u");
  comm->broadcast(stream, parts, DType::f32, n - 1, "u");
  comm->reduce_scatter(stream, parts, DType::f32, DType::f32, false, "u");
  comm->all_reduce(stream, parts, DType::f32, "u");
  comm->all_to_all(stream, parts, DType::u8, "u");
  comm->barrier(stream, "u");
  settle(stream, *comm);
  const Traffic got = comm->traffic();
  const int64_t gathered = all_gather_cost(n, count, DType::bf16).bytes +
                           broadcast_cost(n, rank == n - 1, count, DType::f32).bytes;
  const int64_t reduced =
      reduce_scatter_cost(n, count, DType::f32).bytes + all_reduce_cost(n, rank, count, DType::f32).bytes;
  expect(got.calls == 6, "got {} calls, expected 6", got.calls);
  expect(got.gathered == gathered, "gathered {} bytes, expected {}", got.gathered, gathered);
  expect(got.reduced == reduced, "reduced {} bytes, expected {}", got.reduced, reduced);
  expect(got.exchanged == all_to_all_cost(n, count, DType::u8).bytes, "exchanged {} bytes", got.exchanged);
  expect(site.world().flight_records().find("reduce_scatter of unit u") != std::string::npos,
         "flight records:\n{}", site.world().flight_records());
}

void knows_the_ranks(Site& site) {
  const std::vector<std::string> all = site.world().exchange(std::string(size_t(site.rank()), 'x'));
  expect(int(all.size()) == site.size(), "exchange gave {} values", all.size());
  for (size_t r = 0; r < all.size(); ++r)
    expect(all[r].size() == r, "value {} has {} bytes", r, all[r].size());
  expect(site.world().local_rank() < site.world().local_size(), "local rank {} of {}",
         site.world().local_rank(), site.world().local_size());
  check_same(site.world(), "the config", "same");
  if (site.size() == 1) return;
  std::string message;
  try {
    check_same(site.world(), "the config", site.rank() == 1 ? "b" : "a");
  } catch (const Error& error) {
    message = error.what();
  }
  expect(message.find("the config: rank 0 has 'a', rank 1 has 'b'") != std::string::npos, "got: {}", message);
}

template <class Call>
void expect_usage_error(const Call& call, const char* what) {
  bool thrown = false;
  try {
    call();
  } catch (const Error& error) {
    thrown = error.kind() == ErrorKind::usage;
  }
  expect(thrown, "{}: expected a usage error", what);
}

// Wrong calls fail at once at the caller, and nothing was queued: the communicator still works.
void refuses_wrong_calls(Site& site) {
  const auto comm = site.communicator("wrong");
  const int n = site.size(), rank = site.rank();
  Stream stream = site.stream("wrong");
  Bytes a(site, Memory::shared, size_t(n) * 64), b(site, Memory::shared, size_t(n) * 64);
  const auto reduce = [&](const Part& part, DType dtype, DType out, bool accumulate) {
    comm->reduce_scatter(stream, {&part, 1}, dtype, out, accumulate, "u");
  };
  const auto gather = [&](const Part& part) { comm->all_gather(stream, {&part, 1}, DType::f32, "u"); };
  expect_usage_error(
      [&] {
        reduce({a.data(), b.data(), 4}, DType::i32, DType::i32, false);
      },
      "sum of integers");
  expect_usage_error([&] { reduce({a.data(), a.data() + 4, 4}, DType::f32, DType::f32, false); }, "overlap");
  expect_usage_error([&] { gather({a.data(), nullptr, 4}); }, "null");
  expect_usage_error([&] { gather({a.data(), b.data(), -1}); }, "negative");
  expect_usage_error([&] { gather({a.data() + 1, b.data(), 4}); }, "alignment");
  const Part part{a.data(), b.data(), 4};
  expect_usage_error([&] { comm->broadcast(stream, {&part, 1}, DType::f32, n, "u"); }, "root");
  expect_usage_error([&] { comm->send(stream, a.data(), 4, DType::f32, rank, "u"); }, "send to self");
  expect_usage_error([&] { comm->recv(stream, b.data(), 4, DType::f32, n, "u"); }, "recv from nobody");
  comm->barrier(stream, "u");
  settle(stream, *comm);
}

constexpr std::array kGroupCases{
    Case{"gathers", gathers},
    Case{"reduce_scatters", reduce_scatters},
    Case{"reduce_scatters_in_place", reduce_scatters_in_place},
    Case{"all_reduces", all_reduces},
    Case{"broadcasts", broadcasts},
    Case{"all_to_alls", all_to_alls},
    Case{"exchanges_unequal_slices", exchanges_unequal_slices},
    Case{"exchanges_many_parts", exchanges_many_parts},
    Case{"counts_unequal_traffic", counts_unequal_traffic},
    Case{"refuses_wrong_exchanges", refuses_wrong_exchanges},
    Case{"sends_and_receives", sends_and_receives},
    Case{"many_parts", many_parts},
    Case{"keeps_order", keeps_order},
    Case{"two_communicators_at_once", two_communicators_at_once},
    Case{"large", large},
    Case{"counts_traffic", counts_traffic},
    Case{"refuses_wrong_calls", refuses_wrong_calls},
};

// The whole contract within two groups that work side by side and whose ranks alternate.
void within_groups(Site& site) {
  if (site.size() < 3 || site.size() > 5) return;
  std::vector<int> ranks;
  for (int r = site.rank() % 2; r < site.size(); r += 2) ranks.push_back(r);
  Site half(site.world(), site.device(), ranks);
  for (const Case& test : kGroupCases) test.run(half);
}

constexpr std::array kWorldCases{
    Case{"knows_the_ranks", knows_the_ranks},
    Case{"within_groups", within_groups},
    Case{"every_partition_into_groups", every_partition_into_groups},
    Case{"groups_along_axes_at_once", groups_along_axes_at_once},
    Case{"refuses_wrong_groups", refuses_wrong_groups},
};

}  // namespace

std::span<const Case> cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> both(kWorldCases.begin(), kWorldCases.end());
    both.insert(both.end(), kGroupCases.begin(), kGroupCases.end());
    return both;
  }();
  return all;
}

}  // namespace zeno::comm::contract
