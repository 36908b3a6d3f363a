#include "group_contract.h"

#include <map>

#include "contract_support.h"
#include "zeno/base/error.h"
#include "zeno/comm/mesh.h"

namespace zeno::comm::contract {
namespace {

using Labels = std::vector<int>;  // of each rank: the group it is in

// All partitions: a rank joins a group that an earlier rank is in, or begins the next one.
void add_partitions(int ranks, Labels& labels, int groups, std::vector<Labels>& all) {
  if (int(labels.size()) == ranks) return all.push_back(labels);
  for (int group = 0; group <= groups; ++group) {
    labels.push_back(group);
    add_partitions(ranks, labels, std::max(groups, group + 1), all);
    labels.pop_back();
  }
}

std::vector<Labels> partitions_of(int ranks, size_t most) {
  std::vector<Labels> all, some;
  Labels labels;
  add_partitions(ranks, labels, 0, all);
  const size_t step = all.size() / most + 1;
  for (size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

std::vector<int> group_of(const Labels& labels, int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < int(labels.size()); ++r) {
    if (labels[size_t(r)] == labels[size_t(rank)]) ranks.push_back(r);
  }
  return ranks;
}

float sum_over(const std::vector<int>& ranks, int64_t index, int salt) {
  std::vector<float> values;
  for (const int rank : ranks) values.push_back(value(rank, index, salt));
  return tree(values, 0, values.size());
}

// A gather and both sums, with values by rank of the world.
void use(Site& site, const std::vector<int>& ranks, Communicator& comm, Stream& stream, int salt) {
  const int n = int(ranks.size());
  const int64_t count = 33;
  expect(comm.size() == n && ranks[size_t(comm.rank())] == site.rank(), "rank {} of {} in a group of {}",
         comm.rank(), comm.size(), n);
  Bytes send = filled(site, Memory::mixed, n * count, DType::f32, salt);
  Bytes all(site, Memory::mixed, size_t(n * count) * 4), part_sum(site, Memory::mixed, size_t(count) * 4);
  Bytes sum(site, Memory::mixed, size_t(count) * 4);
  const Part gather{send.data(), all.data(), count}, scatter{send.data(), part_sum.data(), count};
  const Part reduce{send.data(), sum.data(), count};
  comm.all_gather(stream, {&gather, 1}, DType::f32, "blocks.0");
  comm.reduce_scatter(stream, {&scatter, 1}, DType::f32, DType::f32, false, "blocks.1");
  comm.all_reduce(stream, {&reduce, 1}, DType::f32, "norm");
  settle(stream, comm);
  for (Bytes* bytes : {&all, &part_sum, &sum}) bytes->download();
  for (int64_t i = 0; i < n * count; ++i) {
    expect_equal(get(all.host(), DType::f32, i), value(ranks[size_t(i / count)], i % count, salt), "gather",
                 i);
  }
  for (int64_t i = 0; i < count; ++i) {
    expect_equal(get(part_sum.host(), DType::f32, i), sum_over(ranks, comm.rank() * count + i, salt),
                 "scatter", i);
    expect_equal(get(sum.host(), DType::f32, i), sum_over(ranks, i, salt), "sum", i);
  }
}

// To the next rank of the group, which all receive from the one before.
void pass_on(Site& site, const std::vector<int>& ranks, Communicator& comm) {
  const int n = int(ranks.size()), next = (comm.rank() + 1) % n, before = (comm.rank() + n - 1) % n;
  if (n == 1) return;
  Stream stream = site.stream("pass on");
  Bytes send = filled(site, Memory::mixed, 5, DType::f32, 3), recv(site, Memory::mixed, 20);
  const auto sends = [&] { comm.send(stream, send.data(), 5, DType::f32, next, "edge"); };
  if (comm.rank() > 0) sends();
  comm.recv(stream, recv.data(), 5, DType::f32, before, "edge");
  if (comm.rank() == 0) sends();
  settle(stream, comm);
}

}  // namespace

void every_partition_into_groups(Site& site) {
  const size_t most = site.on_cuda() || site.size() > 5 ? 24 : 52;
  for (const Labels& labels : partitions_of(site.size(), most)) {
    const std::vector<int> ranks = group_of(labels, site.rank());
    const auto comm = site.world().communicator("part", site.device(), ranks);
    Stream stream = site.stream("part");
    use(site, ranks, *comm, stream, 1);
  }
}

void groups_along_axes_at_once(Site& site) {
  const std::map<int, Mesh::Sizes> meshes{
      {2, {1, 1, 2, 1, 1, 1}}, {4, {1, 2, 2, 1, 1, 1}}, {6, {1, 3, 2, 1, 1, 1}}, {8, {2, 2, 2, 1, 1, 1}}};
  const auto found = meshes.find(site.size());
  if (found == meshes.end()) return;
  const Mesh mesh(found->second);
  struct Member {
    std::vector<int> ranks;
    std::unique_ptr<Communicator> comm;
    Stream stream;
  };
  std::vector<Member> members;
  for (const Axes axes : {Axes{Axis::inner}, Axes{Axis::outer}, Axes{Axis::pipe}, kDataAxes}) {
    std::vector<int> ranks = mesh.group(site.rank(), axes);
    auto comm = site.world().communicator(describe(axes), site.device(), ranks);
    members.push_back({std::move(ranks), std::move(comm), site.stream("axis")});
  }
  for (int round = 0; round < 10; ++round) {
    for (Member& member : members) use(site, member.ranks, *member.comm, member.stream, round);
  }
  for (Member& member : members) pass_on(site, member.ranks, *member.comm);
}

void refuses_wrong_groups(Site& site) {
  const int n = site.size();
  const auto refused = [&](const std::vector<int>& ranks, std::string_view words) {
    std::string message;
    try {
      site.world().communicator("wrong", site.device(), ranks);
    } catch (const Error& error) {
      message = error.what();
    }
    expect(message.find(words) != std::string::npos, "a wrong group: got '{}'", message);
  };
  refused({}, "expected ascending ranks");
  refused({n}, "expected ascending ranks");
  refused({site.rank(), site.rank()}, "expected ascending ranks");
  if (n < 2) return;
  // Rank 0 takes all for its group, the others each themselves.
  std::vector<int> ranks{site.rank()};
  for (int r = 1; r < n && site.rank() == 0; ++r) ranks.push_back(r);
  refused(ranks, "the ranks disagree on the groups of communicator 'wrong'");
}

}  // namespace zeno::comm::contract
