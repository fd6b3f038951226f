// That docs/manifest.md tells of the manifest what is true.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/fields.h"
#include "operator/api/manifest.h"
#include "operator/api/testing/corpus.h"
#include "operator/api/testing/manifest_errors.h"

namespace downpour::api {
namespace {

using ::testing::HasSubstr;

using testing::Minimal;
using testing::ReadText;

// Collects the path of every field that the parser accepts, and what the reference must say of it.
class FieldNames {
 public:
  struct Entry {
    std::string path;
    bool unsupported = false;
    std::vector<std::string> values;  // of an enumeration
  };

  template <class Value, class Rule>
  void Field(std::string_view name, Value& value, const Rule& rule,
             schema::Presence presence = schema::Presence::kOptional) {
    const std::string parent = path_;
    path_ = JoinPath(path_, name);
    entries.push_back({path_, presence == schema::Presence::kUnsupported, {}});
    Descend(value, rule);
    path_ = parent;
  }
  void Dropped(std::string_view name) { entries.push_back({JoinPath(path_, name), false, {}}); }

  std::vector<Entry> entries;

 private:
  template <class Value, class Rule>
  void Descend(Value&, const Rule&) {}
  template <class Value>
  void Descend(Value& value, const schema::Object&) {
    schema::Fields(*this, value);
  }
  template <class Value>
  void Descend(std::optional<Value>& value, const schema::Object&) {
    schema::Fields(*this, value.emplace());
  }
  template <class Value, class Choice>
  void Descend(Value&, const schema::Choice<Choice>& rule) {
    for (const auto& name : rule.names) entries.back().values.emplace_back(name.name);
  }
  template <class Value, class Item>
  void Descend(std::vector<Value>&, const schema::ListOf<Item>& rule) {
    path_ += "[]";
    Value item{};
    Descend(item, rule.item);
  }

  std::string path_;
};

TEST(ReferenceTest, HasARowForEveryFieldAndEveryValue) {
  const std::string reference = ReadText("docs/manifest.md");
  std::map<std::string, std::string> rows;
  std::istringstream lines(reference);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3);
    ASSERT_TRUE(rows.emplace(line.substr(3, end - 3), line).second) << "two rows: " << line;
  }
  FieldNames names;
  TrainingJob job;
  schema::Fields(names, job);
  EXPECT_GT(names.entries.size(), 80u);
  std::set<std::string> known;
  for (const auto& entry : names.entries) {
    known.insert(entry.path);
    ASSERT_TRUE(rows.contains(entry.path)) << "docs/manifest.md has no row for " << entry.path;
    const std::string& row = rows[entry.path];
    EXPECT_TRUE(!entry.unsupported || row.find("Not yet") != std::string::npos) << row;
    for (const std::string& value : entry.values) EXPECT_THAT(row, HasSubstr("`" + value + "`"));
  }
  for (const auto& [path, row] : rows) EXPECT_TRUE(known.contains(path)) << "no such field: " << row;
}

// The defaults that the reference states are those of a manifest that states none.
TEST(ReferenceTest, StatesTheDefaults) {
  const auto defaults = nlohmann::json::parse(ToJson(ParseManifest(Minimal()).job));
  std::istringstream lines(ReadText("docs/manifest.md"));
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `spec.") && !line.starts_with("| `metadata.")) continue;
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, '|');) {
      const std::size_t begin = std::min(cell.find_first_not_of(" `"), cell.size());
      cells.push_back(cell.substr(begin, cell.find_last_not_of(" `") + 1 - begin));
    }
    ASSERT_EQ(cells.size(), 5u) << line;
    std::string pointer = "/" + cells[1];
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    if (cells[2].empty() || cells[2].starts_with("required") || pointer.find("[]") != std::string::npos) continue;
    const nlohmann::json::json_pointer at(pointer);
    if (!defaults.contains(at)) continue;
    const auto& value = defaults[at];
    EXPECT_EQ(value.is_string() && !value.get<std::string>().empty() ? value.get<std::string>() : value.dump(),
              cells[2])
        << line;
    ++checked;
  }
  EXPECT_GE(checked, 30);
}

}  // namespace
}  // namespace downpour::api
