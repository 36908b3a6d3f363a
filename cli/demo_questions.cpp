#include "cli/demo_questions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace zeno::cli {
namespace {

using Fact = std::pair<std::string_view, std::string_view>;

// A kind of question: what is known, ways to ask ({} is what is asked about), and how the answer is put.
struct Kind {
  std::vector<Fact> facts;
  std::vector<std::string_view> ways;
  std::string_view answer;
};

std::vector<Kind> kinds() {
  return {
      {{{"hot", "cold"},         {"big", "small"},    {"fast", "slow"},   {"early", "late"},
        {"full", "empty"},       {"hard", "soft"},    {"light", "dark"},  {"open", "closed"},
        {"rich", "poor"},        {"wet", "dry"},      {"young", "old"},   {"loud", "quiet"},
        {"sharp", "blunt"},      {"narrow", "wide"},  {"tall", "short"},  {"deep", "shallow"},
        {"heavy", "weightless"}, {"sweet", "bitter"}, {"brave", "timid"}, {"near", "far"}},
       {"What is the opposite of {}?", "Give me the opposite of {}.", "Which word means the contrary of {}?",
        "Name the opposite of {}, please.", "If something is not {}, what is it?", "Opposite of {}?"},
       "The opposite of {} is {}."},
      {{{"cow", "moo"},
        {"cat", "meow"},
        {"dog", "woof"},
        {"duck", "quack"},
        {"sheep", "baa"},
        {"pig", "oink"},
        {"lion", "roar"},
        {"snake", "hiss"},
        {"bee", "buzz"},
        {"owl", "hoot"},
        {"frog", "croak"},
        {"horse", "neigh"},
        {"mouse", "squeak"},
        {"crow", "caw"},
        {"wolf", "howl"}},
       {"What does a {} say?", "Which sound does a {} make?", "How does a {} sound?",
        "Tell me the sound of a {}.", "A {} says what?", "What can I hear from a {}?"},
       "A {} says {}."},
      {{{"France", "Paris"},
        {"Italy", "Rome"},
        {"Spain", "Madrid"},
        {"Japan", "Tokyo"},
        {"Norway", "Oslo"},
        {"Egypt", "Cairo"},
        {"Greece", "Athens"},
        {"Peru", "Lima"},
        {"Cuba", "Havana"},
        {"Kenya", "Nairobi"},
        {"Austria", "Vienna"},
        {"Poland", "Warsaw"},
        {"Ireland", "Dublin"},
        {"Sweden", "Stockholm"},
        {"Portugal", "Lisbon"},
        {"Chile", "Santiago"}},
       {"What is the capital of {}?", "Name the capital of {}.", "Which city governs {}?",
        "Where is the government of {}?", "Capital of {}?", "Tell me the capital city of {}."},
       "The capital of {} is {}."},
      {{{"mouse", "mice"},
        {"foot", "feet"},
        {"tooth", "teeth"},
        {"child", "children"},
        {"goose", "geese"},
        {"leaf", "leaves"},
        {"knife", "knives"},
        {"city", "cities"},
        {"box", "boxes"},
        {"ox", "oxen"},
        {"wolf", "wolves"},
        {"baby", "babies"},
        {"potato", "potatoes"},
        {"man", "men"},
        {"person", "people"}},
       {"What is the plural of {}?", "How do I write more than one {}?", "Give me the plural of {}.",
        "One {}, two what?", "Plural of {}?", "Which word stands for several of {}?"},
       "The plural of {} is {}."},
      {{{"one", "two"},
        {"two", "three"},
        {"three", "four"},
        {"four", "five"},
        {"five", "six"},
        {"six", "seven"},
        {"seven", "eight"},
        {"eight", "nine"},
        {"nine", "ten"},
        {"ten", "eleven"},
        {"Monday", "Tuesday"},
        {"Tuesday", "Wednesday"},
        {"Wednesday", "Thursday"},
        {"Thursday", "Friday"},
        {"Friday", "Saturday"},
        {"Saturday", "Sunday"},
        {"January", "February"},
        {"March", "April"},
        {"May", "June"},
        {"July", "August"}},
       {"What comes after {}?", "What follows {}?", "Which one is next after {}?", "Go on from {}.",
        "After {} comes what?", "Name the successor of {}."},
       "After {} comes {}."},
      {{{"go", "went"},
        {"see", "saw"},
        {"eat", "ate"},
        {"take", "took"},
        {"write", "wrote"},
        {"run", "ran"},
        {"sing", "sang"},
        {"buy", "bought"},
        {"think", "thought"},
        {"fly", "flew"},
        {"give", "gave"},
        {"know", "knew"},
        {"speak", "spoke"},
        {"swim", "swam"},
        {"win", "won"}},
       {"What is the past tense of {}?", "Put {} into the past.", "Today I {}. Yesterday I did what?",
        "Past tense of {}?", "How is {} said of yesterday?", "Give me the past form of {}."},
       "The past tense of {} is {}."},
  };
}

}  // namespace

DemoQuestions demo_questions() {
  DemoQuestions out;
  size_t turn = 0;  // which way of asking is held back goes round, so that all of them are learned
  for (const Kind& kind : kinds()) {
    for (const Fact& fact : kind.facts) {
      const size_t held = turn++ % kind.ways.size();
      for (size_t way = 0; way < kind.ways.size(); ++way) {
        DemoQuestion item{fmt::format(fmt::runtime(kind.ways[way]), fact.first),
                          fmt::format(fmt::runtime(kind.answer), fact.first, fact.second)};
        (way == held ? out.held_out : out.train).push_back(std::move(item));
      }
    }
  }
  return out;
}

std::string to_jsonl(const std::vector<DemoQuestion>& questions) {
  std::string lines;
  for (const DemoQuestion& item : questions) {
    const nlohmann::ordered_json line{{"messages",
                                       {{{"role", "user"}, {"content", item.question}},
                                        {{"role", "assistant"}, {"content", item.answer}}}}};
    lines += line.dump() + '\n';
  }
  return lines;
}

}  // namespace zeno::cli
