// Tokenizers and chat templates: what turns samples into tokens.
#include "tests/faults/hostile_input.h"

namespace zeno::test {
namespace {

using nlohmann::json;

std::string data_of(const HostileFolder& folder, const std::string& model, const std::string& more) {
  folder.write("good.jsonl", R"({"text": "some words of a text"})"
                             "\n"
                             R"({"text": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})"
                             "\n");
  return "data --seq-len 64 --model " + folder / model + " --data " + folder / "good.jsonl" + more;
}

struct Spoilt {
  std::string what;
  std::set<int> exits;
  std::function<void(json&)> change;  // of a good tokenizer.json
};

HostileInput input_of(const Spoilt& spoilt) {
  return {"tokenizer.json: " + spoilt.what, spoilt.exits, "tokenizer",
          [change = spoilt.change](const HostileFolder& folder) {
            folder.copy("model", "bad");
            json tokenizer = json::parse(folder.read("model/tokenizer.json"));
            change(tokenizer);
            folder.write("bad/tokenizer.json", tokenizer.dump());
            return data_of(folder, "bad", "");
          }};
}

HostileInput input_of(const std::string& what, const std::function<std::string()>& contents) {
  return {"tokenizer.json: " + what, {3}, "tokenizer", [contents](const HostileFolder& folder) {
            folder.copy("model", "bad");
            folder.write("bad/tokenizer.json", contents());
            return data_of(folder, "bad", "");
          }};
}

// tokenizer.json as a text in which one value is replaced: what is nested deeply no JSON library can print.
HostileInput with_value(const std::string& what, const std::function<void(json&)>& mark,
                        const std::function<std::string()>& value) {
  return {"tokenizer.json: " + what, {3}, "tokenizer", [=](const HostileFolder& folder) {
            folder.copy("model", "bad");
            json tokenizer = json::parse(folder.read("model/tokenizer.json"));
            mark(tokenizer);
            std::string text = tokenizer.dump();
            folder.write("bad/tokenizer.json", text.replace(text.find("\"@@\""), 4, value()));
            return data_of(folder, "bad", "");
          }};
}

// Another file of the folder, beside a good tokenizer.json.
HostileInput beside_tokenizer(const std::string& file, const std::string& what,
                              const std::function<std::string()>& contents) {
  return {file + ": " + what, {3}, file, [=](const HostileFolder& folder) {
            folder.copy("model", "bad");
            folder.write("bad/" + file, contents());
            return data_of(folder, "bad", "");
          }};
}

json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}
json replace_regex(const std::string& pattern, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", to}};
}
json split_at(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}
json token(int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}
json unigram(const json& vocab) { return {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}; }
json word_piece(const json& vocab) {
  return {{"type", "WordPiece"},
          {"unk_token", "[UNK]"},
          {"continuing_subword_prefix", "##"},
          {"max_input_chars_per_word", 1'000'000'000},
          {"vocab", vocab}};
}

std::vector<Spoilt> growing_tokenizers() {
  return {
      {"40 normalizers that double",
       {3},
       [](json& t) {
         json all = json::array();
         for (int i = 0; i < 40; ++i) all.push_back(replace("a", "aa"));
         t["normalizer"] = {{"type", "Sequence"}, {"normalizers", all}};
       }},
      {"a replacement of 10 MB",
       {3},
       [](json& t) { t["normalizer"] = replace("a", repeated("b", 10'000'000)); }},
      {"a replacement of nothing", {0, 3}, [](json& t) { t["normalizer"] = replace_regex("", "xx"); }},
      {"prepended 10 MB",
       {3},
       [](json& t) {
         t["normalizer"] = {{"type", "Prepend"}, {"prepend", repeated("b", 10'000'000)}};
       }},
      {"100,000 normalizers",
       {0, 3},
       [](json& t) {
         t["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(100'000, {{"type", "NFKC"}})}};
       }},
      {"a post-processor of a million pieces",
       {3},
       [](json& t) {
         json pieces = json::array();
         for (int i = 0; i < 1'000'000; ++i) pieces.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
         t["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", pieces},
                                {"pair", json::array()},
                                {"special_tokens", json::object()}};
       }},
      {"a special token of a million ids",
       {3},
       [](json& t) {
         const json piece = {{"SpecialToken", {{"id", "[X]"}, {"type_id", 0}}}};
         const json special = {{"id", "[X]"}, {"ids", json(1'000'000, 7)}, {"tokens", json(1'000'000, "a")}};
         t["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", json(1000, piece)},
                                {"pair", json::array()},
                                {"special_tokens", {{"[X]", special}}}};
       }},
  };
}

std::vector<Spoilt> slow_tokenizers() {
  return {
      {"a pattern that never ends", {0, 3}, [](json& t) { t["pre_tokenizer"] = split_at("(a+)+b"); }},
      {"a pattern that recurses", {0, 3}, [](json& t) { t["pre_tokenizer"] = split_at("(a|(?1)a)+$"); }},
      {"a pattern of a megabyte",
       {0, 3},
       [](json& t) { t["pre_tokenizer"] = split_at(repeated("a?", 500'000)); }},
      {"a pattern of a billion repeats",
       {3},
       [](json& t) { t["pre_tokenizer"] = split_at("(((a{1000}){1000}){1000})"); }},
      {"a pattern that is none", {3}, [](json& t) { t["pre_tokenizer"] = split_at("(a"); }},
      {"a pattern that matches nothing", {0, 3}, [](json& t) { t["pre_tokenizer"] = split_at(""); }},
      {"deep pre-tokenizers",
       {3},
       [](json& t) {
         json inner = {{"type", "Whitespace"}};
         for (int i = 0; i < 1000; ++i) inner = json{{"type", "Sequence"}, {"pretokenizers", {inner}}};
         t["pre_tokenizer"] = inner;
       }},
      {"a unigram token of 800 KB",
       {0, 3},
       [](json& t) {
         t["model"] = unigram({{"<unk>", 0.0}, {"a", -1.0}, {repeated("a", 800'000), -2.0}});
         t["added_tokens"] = json::array();
       }},
      {"100,000 unigram tokens of one letter",
       {0, 3},
       [](json& t) {
         json vocab = {{"<unk>", 0.0}};
         for (int i = 1; i < 3000; ++i) vocab.push_back({repeated("a", size_t(i)), -1.0});
         t["model"] = unigram(vocab);
         t["added_tokens"] = json::array();
       }},
      {"unigram scores that are no numbers",
       {3},
       [](json& t) {
         t["model"] = unigram({{"<unk>", "0"}});
       }},
      {"unigram without tokens", {3}, [](json& t) { t["model"] = unigram(json::array()); }},
      {"words of any length",
       {0, 3},
       [](json& t) {
         t["model"] = word_piece({{"[UNK]", 0}, {"a", 1}, {"##a", 2}});
         t["added_tokens"] = json::array();
       }},
      {"a charsmap of garbage",
       {3},
       [](json& t) {
         t["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", repeated("/", 4000)}};
       }},
      {"a charsmap of 10 MB",
       {3},
       [](json& t) {
         t["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", repeated("A", 10'000'000)}};
       }},
  };
}

std::vector<Spoilt> odd_tokenizers() {
  std::vector<Spoilt> spoilt{
      {"an id of 2^40", {3}, [](json& t) { t["model"]["vocab"]["zz"] = int64_t(1) << 40; }},
      {"a negative id", {3}, [](json& t) { t["model"]["vocab"]["zz"] = -1; }},
      {"ids of one number", {0, 3}, [](json& t) { t["model"]["vocab"]["zz"] = 5; }},
      {"no vocabulary", {3}, [](json& t) { t["model"].erase("vocab"); }},
      {"an unknown model", {3}, [](json& t) { t["model"]["type"] = repeated("X", 100'000); }},
      {"merges of unknown words", {3}, [](json& t) { t["model"]["merges"] = {"q z"}; }},
      {"a merge of a megabyte", {3}, [](json& t) { t["model"]["merges"] = {repeated("q", 1 << 20) + " z"}; }},
      {"a merge of a megabyte without a space",
       {3},
       [](json& t) { t["model"]["merges"] = {repeated("q", 1 << 20)}; }},
      {"a text of a megabyte as an id",
       {3},
       [](json& t) { t["model"]["vocab"]["zz"] = repeated("q", 1 << 20); }},
      {"a token of a megabyte without an id",
       {3},
       [](json& t) { t["model"]["vocab"][repeated("q", 1 << 20)] = -1; }},
      {"two tokens of 4 KB and one id",
       {3},
       [](json& t) { t["added_tokens"].push_back(token(5, repeated("a", 4000))); }},
      {"a pattern of a megabyte that is none",
       {3},
       [](json& t) { t["pre_tokenizer"] = split_at("(" + repeated("a", 1 << 20)); }},
      {"a special token of a megabyte that is not there",
       {3},
       [](json& t) {
         const json piece = {{"SpecialToken", {{"id", repeated("x", 1 << 20)}, {"type_id", 0}}}};
         t["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {piece}},
                                {"pair", json::array()},
                                {"special_tokens", {{"[X]", 1}}}};
       }},
      {"merges of one word", {3}, [](json& t) { t["model"]["merges"] = {"q"}; }},
      {"a million merges of unknown words",
       {3},
       [](json& t) { t["model"]["merges"] = json(1'000'000, "q z"); }},
      {"a word of 10 MB", {3}, [](json& t) { t["model"]["vocab"][repeated("w", 10'000'000)] = 290; }},
      {"an added token of 10 MB",
       {3},
       [](json& t) { t["added_tokens"].push_back(token(290, repeated("a", 10'000'000))); }},
      {"an empty added token", {0, 3}, [](json& t) { t["added_tokens"].push_back(token(290, "")); }},
      {"100,000 added tokens",
       {0, 3},
       [](json& t) {
         for (int i = 0; i < 100'000; ++i)
           t["added_tokens"].push_back(token(300 + i, "<" + std::to_string(i) + ">"));
       }},
      {"3,000 added tokens of one letter",
       {0, 3},
       [](json& t) {
         for (int i = 0; i < 3000; ++i)
           t["added_tokens"].push_back(token(300 + i, repeated("a", size_t(i + 1))));
       }},
  };
  for (const char* part :
       {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"}) {
    for (const std::string& value : hostile_values())
      spoilt.push_back({std::string(part) + " = " + value, {0, 3}, [part, value](json& t) {
                          t[part] = json::parse(value);
                        }});
  }
  return spoilt;
}

struct Template {
  const char* what;
  std::set<int> exits;
  std::string text;
};

std::vector<Template> templates() {
  return {
      {"empty", {0, 3}, ""},
      {"an output without end",
       {3},
       "{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxx{% endfor %}{% endfor %}"},
      {"work without end",
       {3},
       "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a * b %}{% endfor %}{% endfor %}"},
      {"a range of a billion", {3}, "{% for a in range(1000000000) %}x{% endfor %}"},
      {"a text that doubles",
       {3},
       "{% set ns = namespace(t='x') %}{% for a in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ "
       "ns.t }}"},
      {"a list that doubles",
       {3},
       "{% set ns = namespace(t=[1]) %}{% for a in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ "
       "ns.t|length }}"},
      {"a text times a billion", {3}, "{{ 'x' * 1000000000 }}"},
      {"a list times a billion", {3}, "{{ ([1] * 1000000000)|length }}"},
      {"a macro that calls itself", {3}, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"a loop that calls itself", {3}, "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
      {"deep brackets",
       {3},
       repeated("{{ (", 1) + repeated("(", 100'000) + "1" + repeated(")", 100'000) + ") }}"},
      {"deep ifs", {3}, repeated("{% if 1 %}", 100'000) + repeated("{% endif %}", 100'000)},
      {"deep lists", {3}, "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}"},
      {"a chain of filters", {0, 3}, "{{ 'a'" + repeated("|trim", 100'000) + " }}"},
      {"a chain of attributes", {0, 3}, "{{ messages" + repeated(".a", 100'000) + " }}"},
      {"a chain of sums", {0, 3}, "{{ 1" + repeated(" + 1", 100'000) + " }}"},
      {"a chain of nots", {0, 3}, "{{ " + repeated("not ", 100'000) + "1 }}"},
      {"a chain of elifs", {0, 3}, "{% if 0 %}" + repeated("{% elif 0 %}x", 100'000) + "{% endif %}"},
      {"a width of a billion", {3}, "{{ '%1000000000d' % 1 }}"},
      {"a centre of a billion", {3}, "{{ 'a'|center(1000000000) }}"},
      {"an indent of a billion", {3}, "{{ 'a\nb'|indent(1000000000) }}"},
      {"a power of powers", {3}, "{{ 9 ** 9 ** 9 ** 9 }}"},
      {"a division by zero", {3}, "{{ 1 // 0 }}"},
      {"the smallest number by -1", {3}, "{{ (-9223372036854775807 - 1) // -1 }}"},
      {"JSON within JSON",
       {0, 3},
       "{% set ns = namespace(t='x') %}{% for a in range(40) %}{% set ns.t = ns.t|tojson %}{% endfor %}{{ "
       "ns.t }}"},
      {"a list of itself", {0, 3}, "{% set a = [1] %}{% set b = a.append(a) %}{{ a }}"},
      {"an import", {3}, "{% import '/etc/passwd' as p %}{{ p }}"},
      {"an include", {3}, "{% include '/etc/passwd' %}"},
      {"Python's insides", {0, 3}, "{{ ''.__class__.__mro__ }}"},
      {"an end without a beginning", {3}, "{% endif %}"},
      {"a comment without end", {3}, "{# " + repeated("x", 1'000'000)},
      {"a text without end", {3}, "{{ 'x"},
      {"bytes that are not UTF-8", {0, 3}, "\xff\xfe{{ messages }}"},
      {"a name of a megabyte", {0, 3}, "{{ " + repeated("n", 1 << 20) + ".x }}"},
      {"an error of a megabyte", {3}, "{{ raise_exception('x' * 10000000) }}"},
      {"an error of escapes", {3}, "{{ raise_exception('\n\x1b[2J') }}"},
  };
}

HostileInput input_of(const Template& each) {
  return {std::string("template: ") + each.what, each.exits, "",
          [text = each.text](const HostileFolder& folder) {
            folder.write("bad.jinja", text);
            folder.write(
                "chat.jsonl",
                R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})"
                "\n");
            return "data --seq-len 64 --loss-on all --model " + folder / "model" + " --data " +
                   folder / "chat.jsonl" + " --chat-template " + folder / "bad.jinja";
          }};
}

}  // namespace

HostileInputs hostile_tokenizers() {
  const auto deep = [] { return nested("[", "", "]", 100'000); };
  HostileInputs inputs{
      input_of("empty", [] { return std::string(); }),
      input_of("garbage", [] { return std::string("garbage"); }),
      input_of("an array", [] { return std::string("[]"); }),
      input_of("null", [] { return std::string("null"); }),
      input_of("deep arrays", [] { return nested("[", "", "]", 100'000); }),
      input_of("deep objects", [] { return nested("{\"model\":", "1", "}", 100'000); }),
      input_of("a million keys",
               [] {
                 std::string text = "{\"version\": \"1.0\"";
                 for (int i = 0; i < 1'000'000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
                 return text + "}";
               }),
      with_value(
          "an id that is nested", [](json& t) { t["model"]["vocab"]["zz"] = "@@"; }, deep),
      with_value(
          "a key of nobody that is nested", [](json& t) { t["more"] = "@@"; },
          [] { return nested("{\"a\":", "1", "}", 100'000); }),
      with_value(
          "a nested merge", [](json& t) { t["model"]["merges"] = {"@@"}; }, deep),
      with_value(
          "30 MB of empty texts", [](json& t) { t["more"] = "@@"; },
          [] { return "[\"\"" + repeated(",\"\"", 10'000'000) + "]"; }),
      {"tokenizer.json: 2 GB",
       {3},
       "tokenizer",
       [](const HostileFolder& folder) {
         folder.copy("model", "bad");
         folder.write_sparse("bad/tokenizer.json", "{", uint64_t(2) << 30);
         return data_of(folder, "bad", "");
       }},
      input_of("a text of 50 MB", [] { return "{\"version\": \"" + repeated("v", 50'000'000) + "\"}"; }),
  };
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
    inputs.push_back(beside_tokenizer(file, "garbage", [] { return std::string("garbage"); }));
    inputs.push_back(beside_tokenizer(file, "deep arrays", [=] { return "{\"a\":" + deep() + "}"; }));
    inputs.push_back(beside_tokenizer(file, "30 MB of empty texts",
                                      [] { return "{\"a\":[\"\"" + repeated(",\"\"", 10'000'000) + "]}"; }));
  }
  for (const auto& group : {growing_tokenizers(), slow_tokenizers(), odd_tokenizers()}) {
    for (const Spoilt& spoilt : group) inputs.push_back(input_of(spoilt));
  }
  return inputs;
}

HostileInputs hostile_templates() {
  HostileInputs inputs;
  for (const Template& each : templates()) inputs.push_back(input_of(each));
  return inputs;
}

}  // namespace zeno::test
