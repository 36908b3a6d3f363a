// What `zeno data` shows: the tokens of the run, nothing added and nothing lost, with the marks of the
// loader.
#include "zeno/data/preview/preview.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "tests/dataset/dataset_folder.h"
#include "tests/tokenizer/golden.h"
#include "zeno/base/error.h"
#include "zeno/base/rng.h"
#include "zeno/base/utf8.h"
#include "zeno/data/loader.h"
#include "zeno/data/preview/piece_text.h"
#include "zeno/data/preview/preview_counts.h"

namespace zeno::data {
namespace {

using nlohmann::json;
using test::DatasetFolder;

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += text;
  return out;
}

// Ends of about `count` pieces, chosen by chance.
std::vector<size_t> random_ends(size_t tokens, size_t count, uint64_t seed) {
  std::vector<size_t> ends{tokens};
  for (size_t i = 0; i < count; ++i) ends.push_back(1 + random_bits(seed, 7, i) % tokens);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

class PieceTexts : public testing::TestWithParam<const char*> {};

TEST_P(PieceTexts, JoinToTheTextAndSplitNoCharacter) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  uint64_t seed = 0;
  for (const json& golden : json::parse(read_file(golden_path(GetParam(), ".cases.json")))) {
    const auto ids = golden.at("ids").get<std::vector<int32_t>>();
    if (ids.empty()) continue;
    const std::string text = tokenizer.decode(ids);
    SCOPED_TRACE(testing::PrintToString(text));
    for (const size_t count : {0, 1, 3, 40}) {
      const std::vector<size_t> ends = random_ends(ids.size(), count, ++seed);
      const std::vector<std::string> pieces = piece_texts(tokenizer, ids, ends);
      ASSERT_EQ(pieces.size(), ends.size());
      EXPECT_EQ(joined(pieces), text);
      if (!is_valid_utf8(text)) continue;
      for (const std::string& piece : pieces) EXPECT_TRUE(is_valid_utf8(piece));
    }
  }
}

// Where a border falls on a character's, the piece in front is the text of the tokens in front.
TEST_P(PieceTexts, BordersLieWhereTheTokensEnd) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  for (const json& golden : json::parse(read_file(golden_path(GetParam(), ".cases.json")))) {
    const auto ids = golden.at("ids").get<std::vector<int32_t>>();
    const std::string text = tokenizer.decode(ids);
    for (size_t end = 1; end < std::min<size_t>(ids.size(), 30); ++end) {
      const std::string front = tokenizer.decode(std::span(ids).first(end));
      const bool whole = text.starts_with(front) && is_valid_utf8(front) && !front.ends_with("\ufffd");
      if (!whole) continue;
      EXPECT_EQ(piece_texts(tokenizer, ids, std::vector{end, ids.size()})[0], front);
      // The same when other borders come before.
      std::vector<size_t> ends(end);
      for (size_t i = 0; i < end; ++i) ends[i] = i + 1;
      ends.push_back(ids.size());
      std::vector<std::string> pieces = piece_texts(tokenizer, ids, ends);
      pieces.pop_back();
      EXPECT_EQ(joined(pieces), front);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PieceTexts, testing::ValuesIn(kGoldenLayouts),
                         [](const auto& layout) { return layout.param; });

TEST(PieceTextsOfRandomTokens, NeverThrowAndLoseNothing) {
  for (const char* layout : kGoldenLayouts) {
    const Tokenizer tokenizer = golden_tokenizer(layout);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < 60; ++i) {
        const auto id = int32_t(random_bits(seed, 1, i) % uint64_t(tokenizer.vocab_size()));
        try {
          tokenizer.decode(std::vector{id});
          ids.push_back(id);
        } catch (const Error&) {  // a hole in the vocabulary
        }
      }
      const std::vector<size_t> ends = random_ends(ids.size(), 12, seed);
      EXPECT_EQ(joined(piece_texts(tokenizer, ids, ends)), tokenizer.decode(ids)) << layout << " " << seed;
    }
  }
}

std::vector<PreviewSample> samples_of(const SampleList& list, const std::optional<Tokenizer>& tokenizer,
                                      int64_t most = 1'000'000) {
  std::vector<PreviewSample> out;
  preview_samples(list, tokenizer, most, [&](const PreviewSample& sample) { out.push_back(sample); });
  return out;
}

// "{user\nHi}\n{assistant\n[Hello}]\n": trained text in brackets, marks of ChatML as in marked_texts().
std::string marked(const PreviewSample& sample) {
  std::string out;
  for (const PreviewPiece& piece : sample.pieces) out += piece.trained ? "[" + piece.text + "]" : piece.text;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"<|im_start|>", "{"}, {"<|im_end|>", "}"}, {"<|endoftext|>", "$"}}) {
    for (size_t at; (at = out.find(from)) != std::string::npos;) out.replace(at, from.size(), to);
  }
  return out;
}

// Records of every shape, with lengths on both sides of the sequence length.
const char* const kRecords =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hellö!"}]}
{"messages": [{"role": "user", "content": "A long question that goes on and on"}, {"role": "assistant", "content": "An answer"}, {"role": "user", "content": "More"}, {"role": "assistant", "content": "a much longer answer, with many words in it"}]}
{"messages": [{"role": "system", "content": "ß"}, {"role": "assistant", "content": "日本語"}, {"role": "user", "content": "?"}]}
)";

// Of each sequence: the targets by position, as the loader hands them to the model.
std::vector<std::vector<int32_t>> target_rows(const TokenSource& source, const SequenceTable& table) {
  const Loader loader(source, table, {.micro_batch = 1, .shuffle = false});
  std::vector<std::vector<int32_t>> rows;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step)
    rows.push_back(loader.step(step)[0].targets);
  return rows;
}

// A mark for each token: is it a target of the loader? The first is nobody's, so its mark is the source's.
std::vector<bool> marks_of(const TokenSource& source, const Piece& piece, std::span<const int32_t> targets,
                           std::span<const int32_t> ids) {
  uint8_t first = 0;
  source.copy_learned(piece.begin, std::span(&first, 1));
  std::vector<bool> marks{first != 0};
  for (size_t t = 1; t < ids.size(); ++t) {
    marks.push_back(targets[t - 1] >= 0);
    EXPECT_TRUE(targets[t - 1] < 0 || targets[t - 1] == ids[t]);
  }
  return marks;
}

void expect_tokens_and_marks(const PreviewSample& sample, const Tokenizer& tokenizer,
                             std::span<const int32_t> ids, const std::vector<bool>& marks) {
  std::string text;
  for (const PreviewPiece& piece : sample.pieces) text += piece.text;
  EXPECT_EQ(text, tokenizer.decode(ids));
  std::vector<std::pair<bool, size_t>> runs;  // mark and tokens
  for (const bool mark : marks) {
    if (runs.empty() || runs.back().first != mark) runs.push_back({mark, 0});
    ++runs.back().second;
  }
  ASSERT_EQ(sample.pieces.size(), runs.size());
  size_t at = 0;
  for (size_t p = 0; p < runs.size(); at += runs[p++].second) {
    EXPECT_EQ(sample.pieces[p].trained, runs[p].first);
    const std::string alone = tokenizer.decode(ids.subspan(at, runs[p].second));
    if (is_valid_utf8(alone)) {
      EXPECT_EQ(sample.pieces[p].text, alone);
    }
  }
  EXPECT_EQ(sample.trained, std::ranges::count(marks, true));
}

void expect_what_the_loader_gives(const TokenSource& source, const Tokenizer& tokenizer,
                                  const PackOptions& options) {
  const SampleList list(source, options);
  // Unpacked, the loader has one sample in each row; of a stream it has a window.
  const bool windows = options.packing == Packing::wrapped;
  PackOptions by_row = options;
  if (!windows) by_row.packing = Packing::none;
  const SequenceTable table(source, by_row);
  const auto rows = target_rows(source, table);
  std::vector<Piece> pieces;
  list.for_each([&](const Piece& piece) { return pieces.push_back(piece), true; });
  const std::vector<PreviewSample> samples = samples_of(list, tokenizer);
  ASSERT_EQ(samples.size(), pieces.size());
  size_t row = 0, column = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    if (s > 0 && (!windows || column == size_t(options.seq_len))) ++row, column = 0;
    std::vector<int32_t> ids(size_t(pieces[s].length));
    source.copy(pieces[s].begin, ids);
    const auto targets = std::span(rows.at(row)).subspan(column, ids.size());
    expect_tokens_and_marks(samples[s], tokenizer, ids, marks_of(source, pieces[s], targets, ids));
    column += ids.size();
  }
}

TEST(Preview, IsWhatTheLoaderGives) {
  const DatasetFolder folder;
  const std::vector<std::vector<Path>> inputs{
      {folder.write("chat.jsonl", kRecords)},
      {folder.write("prompt.jsonl", R"({"prompt": "1 + 1 = ", "completion": "2, as everybody knows, I think"}
{"prompt": "so", "completion": "long"})")},
      {folder.write("text.jsonl", R"({"text": "some words"}
{"text": "and a few more of them, which makes it a record that has to be cut"})")},
      {folder.write("tokens.jsonl",
                    R"({"input_ids": [97, 195, 182, 98, 99], "labels": [-100, -100, 182, -100, 99]})")},
      {folder.write("more.jsonl", kRecords), folder.write("b.txt", "one\ntwo, three and four\n")}};
  const Tokenizer tokenizer = Tokenizer::open(folder.path() / "model");
  for (const auto& paths : inputs) {
    const TokenSource source = folder.open(folder.spec(paths));
    for (const Packing packing : {Packing::none, Packing::wrapped, Packing::best_fit}) {
      for (const TooLong too_long : {TooLong::truncate, TooLong::keep_end, TooLong::split, TooLong::drop}) {
        SCOPED_TRACE(fmt::format("{} {} {}", paths[0].string(), int(packing), int(too_long)));
        expect_what_the_loader_gives(source, tokenizer,
                                     {.seq_len = 60, .packing = packing, .too_long = too_long});
      }
    }
  }
}

TEST(Preview, SamplesComeInTheOrderOfTheFiles) {
  const DatasetFolder folder;
  const Tokenizer tokenizer = Tokenizer::open(folder.path() / "model");
  const TokenSource source = folder.open(folder.spec({folder.write("chat.jsonl", kRecords)}));
  const SampleList list(source, {.seq_len = 400});
  std::vector<std::string> texts;
  for (const PreviewSample& sample : samples_of(list, tokenizer)) {
    texts.push_back(marked(sample));
    EXPECT_EQ(sample.origin, fmt::format("{}:{}", (folder.path() / "chat.jsonl").string(), texts.size()));
  }
  EXPECT_EQ(texts, test::marked_texts(source));
  EXPECT_EQ(samples_of(list, tokenizer, 2).size(), 2u);
  EXPECT_TRUE(samples_of(list, tokenizer, 0).empty());
}

TEST(Preview, SaysWhatACutLeaves) {
  const DatasetFolder folder;
  const Tokenizer tokenizer = Tokenizer::open(folder.path() / "model");
  const TokenSource source = folder.open(folder.spec({folder.write("a.jsonl", R"({"text": "abcdefghij"})")}));
  const auto cut = [&](TooLong too_long, Packing packing = Packing::none) {
    std::string out;
    const SampleList list(source, {.seq_len = 4, .packing = packing, .too_long = too_long});
    for (const PreviewSample& s : samples_of(list, tokenizer)) {
      out += fmt::format("{}|{}|{}{} ", s.first_token, s.pieces.at(0).text, s.missing_behind(),
                         s.rest_is_trained ? "" : " lost");
    }
    return out;
  };
  EXPECT_EQ(cut(TooLong::truncate), "0|abcd|7 lost ");
  EXPECT_EQ(cut(TooLong::keep_end), "7|hij<|endoftext|>|0 lost ");
  EXPECT_EQ(cut(TooLong::split), "0|abcd|7 4|efgh|3 8|ij<|endoftext|>|0 ");
  EXPECT_EQ(cut(TooLong::truncate, Packing::wrapped), "0|abcd|7 4|efgh|3 8|ij<|endoftext|>|0 ");
}

TEST(Preview, WithoutATokenizerItShowsNumbers) {
  const TokenSource source =
      TokenSource::of({{.ids = {7, 300, 8}, .learned = {0, 1, 1}}, {.ids = {1, 2}, .learned = {1, 1}}});
  const SampleList list(source, {.seq_len = 8});
  const std::vector<PreviewPiece> expected{{"7 ", false}, {"300 8 ", true}};
  EXPECT_EQ(samples_of(list, std::nullopt).at(0).pieces, expected);
  // Ids that the tokenizer does not have.
  const DatasetFolder folder;
  EXPECT_EQ(samples_of(list, Tokenizer::open(folder.path() / "model")).at(0).pieces, expected);
}

TEST(PreviewCounts, AddUpByFile) {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec(
      {folder.write("a.jsonl",
                    "{\"text\": \"abcdefghij\"}\n{\"text\": \"abc\"}\nbroken\n{\"text\": \"ab\"}\n"),
       folder.write("b.jsonl", R"({"prompt": "ab", "completion": "c"})")});
  spec.skip_bad_lines = true;
  const TokenSource source = folder.open(spec);
  const PreviewCounts counts = count_samples(SampleList(source, {.seq_len = 8, .packing = Packing::none}));
  ASSERT_EQ(counts.files.size(), 2u);
  const FileCounts &a = counts.files[0], &b = counts.files[1];
  EXPECT_EQ(a.path, spec.paths[0].string());
  EXPECT_EQ(a.records, 4);
  EXPECT_EQ(a.left_out, 1);
  EXPECT_EQ(a.samples, 3);
  EXPECT_EQ(a.tokens, 8 + 4 + 3);
  EXPECT_EQ(a.trained, 8 + 4 + 3);
  EXPECT_EQ(a.cut, 1);
  EXPECT_EQ(a.cut_tokens, 3);
  EXPECT_EQ(a.longest, 11);
  EXPECT_EQ(b.tokens, 4);
  EXPECT_EQ(b.trained, 2);
  EXPECT_EQ(counts.total.samples, 4);
  EXPECT_EQ(counts.total.tokens, counts.packing.tokens);
  EXPECT_EQ(counts.total.trained, 17);
  EXPECT_EQ(counts.lengths.longest, 11);
  EXPECT_EQ(counts.lengths.longest_origin, spec.paths[0].string() + ":1");
  EXPECT_EQ(counts.lengths.median, 4);
  EXPECT_EQ(counts.lengths.histogram, (std::vector<int64_t>{0, 0, 3, 0, 1}));
  EXPECT_EQ(left_out_lines(counts).size(), 1u);
}

TEST(PreviewCounts, SayWhatIsLeftOut) {
  const DatasetFolder folder;
  const Path path = folder.write("a.jsonl", R"({"text": "abcdefghij"}
{"text": "abc"})");
  const TokenSource source = folder.open(folder.spec({path}));
  const PreviewCounts counts = count_samples(SampleList(source, {.seq_len = 8, .too_long = TooLong::drop}));
  EXPECT_EQ(left_out_lines(counts), std::vector<std::string>{"1 longer than 8 tokens"});
}

}  // namespace
}  // namespace zeno::data
