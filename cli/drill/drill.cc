#include "cli/drill/drill.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/render/format.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr DrillKind kKinds[] = {DrillKind::kWorker, DrillKind::kPs, DrillKind::kCoordinator, DrillKind::kNode};
constexpr char kSucceeded[] = "Succeeded";

// What can be killed of this kind, in the order of the look.
std::vector<DrillAttack> Attacks(DrillKind kind, const std::optional<int>& index, const DrillLook& look) {
  std::vector<DrillAttack> attacks;
  std::map<std::string, DrillAttack> nodes;
  for (const DrillMember& member : look.members) {
    if (!member.alive || !IsOfKind(member, kind)) continue;
    if (kind == DrillKind::kNode) {
      DrillAttack& attack = nodes[member.node];
      attack.kind = kind;
      attack.victims.push_back(member);
    } else if (member.member && (!index.has_value() || member.index == *index)) {
      attacks.push_back({kind, {member}});
    }
  }
  attacks.reserve(attacks.size() + nodes.size());
  for (auto& [node, attack] : nodes) attacks.push_back(std::move(attack));
  return attacks;
}

std::optional<DrillAttack> Choose(const DrillOptions& options, const DrillLook& look, std::mt19937_64* random) {
  std::vector<std::vector<DrillAttack>> possible;
  for (const DrillKind kind : options.kinds) {
    std::vector<DrillAttack> attacks = Attacks(kind, options.index, look);
    if (!attacks.empty()) possible.push_back(std::move(attacks));
  }
  if (possible.empty()) return std::nullopt;
  const std::vector<DrillAttack>& attacks = possible[(*random)() % possible.size()];
  return attacks[(*random)() % attacks.size()];
}

bool IsBack(const DrillMember& victim, const DrillKill& kill, const DrillLook& look) {
  return std::any_of(look.members.begin(), look.members.end(), [&](const DrillMember& member) {
    if (member.role != victim.role || member.index != victim.index || !member.member) return false;
    return member.id != victim.id || (kill.let_go.has_value() && member.heard > *kill.let_go);
  });
}

void TakeRollback(const DrillProgress& progress, DrillState* state, std::vector<std::string>* lines) {
  const std::uint64_t lost =
      progress.lost.value_or(state->updates > progress.restored ? state->updates - progress.restored : 0);
  lines->push_back(absl::StrCat("rolled back to update ", progress.restored, ": ", lost, " updates lost"));
  if (state->kills.empty()) return;
  DrillKill& kill = state->kills.back();
  ++kill.rollbacks;
  kill.lost += lost;
  kill.trained.reset();  // what rose before is gone
}

void TakeProgress(const DrillLook& look, DrillState* state, std::vector<std::string>* lines) {
  const DrillProgress& progress = *look.progress;
  const bool rolled_back = state->generation.has_value() && progress.generation != *state->generation;
  if (rolled_back) TakeRollback(progress, state, lines);
  if (rolled_back || !state->generation.has_value()) {
    state->generation = progress.generation;
    state->updates = std::max(progress.updates, progress.restored);
    if (!state->kills.empty()) state->kills.back().baseline = state->updates;
  }
  DrillKill* const kill = state->kills.empty() ? nullptr : &state->kills.back();
  if (kill != nullptr && kill->word_before != progress.word) {
    // Some of what the first word tells may have been applied before the kill.
    if (!kill->baseline.has_value()) kill->baseline = std::max(progress.updates, state->updates);
    if (!kill->trained.has_value() && progress.updates > *kill->baseline) {
      kill->trained = look.now - kill->time;
      lines->push_back(
          absl::StrCat("updates rise again, ", FormatDuration(*kill->trained), " after it, to ", progress.updates));
    }
  }
  if (progress.updates > state->updates) {
    state->updates = progress.updates;
    state->last_rise = look.now;
  }
  state->word = progress.word;
}

}  // namespace

bool IsOfKind(const DrillMember& member, DrillKind kind) {
  switch (kind) {
    case DrillKind::kWorker:
      return member.role == api::Role::kWorker;
    case DrillKind::kPs:
      return member.role == api::Role::kParameterServer;
    case DrillKind::kCoordinator:
      return member.role == api::Role::kCoordinator;
    case DrillKind::kNode:
      return !member.node.empty();
  }
  return false;
}

std::string DrillKindName(DrillKind kind) {
  switch (kind) {
    case DrillKind::kWorker:
      return "worker";
    case DrillKind::kPs:
      return "ps";
    case DrillKind::kCoordinator:
      return "coordinator";
    case DrillKind::kNode:
      break;
  }
  return "node";
}

absl::StatusOr<std::vector<DrillKind>> ParseDrillKinds(const std::string& text) {
  std::vector<DrillKind> kinds;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const auto* const kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                          [&](DrillKind candidate) { return DrillKindName(candidate) == word; });
    if (kind == std::end(kKinds)) {
      return absl::InvalidArgumentError(absl::StrCat("--kill: found \"", word,
                                                     "\", expected worker, ps, coordinator or node, or several of them "
                                                     "with commas between"));
    }
    if (std::find(kinds.begin(), kinds.end(), *kind) == kinds.end()) kinds.push_back(*kind);
  }
  return kinds;
}

std::string DrillMember::name() const { return absl::StrCat(std::string(api::ToString(role)), "-", index); }

std::string DrillAttack::what() const {
  const std::string names = absl::StrJoin(
      victims, " and ", [](std::string* out, const DrillMember& member) { absl::StrAppend(out, member.name()); });
  return kind == DrillKind::kNode ? absl::StrCat(names, " on node ", victims.front().node) : names;
}

std::string DrillKill::missing() const {
  if (!replaced.has_value())
    return absl::StrCat(attack.what(), let_go.has_value() ? " did not come back" : " was not replaced");
  return absl::StrCat("no update was applied after ", attack.what());
}

std::vector<std::string> TakeLook(const DrillLook& look, DrillState* state) {
  std::vector<std::string> lines;
  DrillKill* const kill = state->kills.empty() ? nullptr : &state->kills.back();
  if (!look.outcome.empty()) {
    if (kill != nullptr && look.outcome == kSucceeded) kill->job_succeeded = true;
    return lines;
  }
  if (kill != nullptr && !kill->recovered()) {
    kill->stood_still = std::max(kill->stood_still, look.now - std::max(kill->time, state->last_rise));
    const std::vector<DrillMember>& victims = kill->attack.victims;
    if (!kill->replaced.has_value() && std::all_of(victims.begin(), victims.end(), [&](const DrillMember& victim) {
          return IsBack(victim, *kill, look);
        })) {
      kill->replaced = look.now - kill->time;
      lines.push_back(absl::StrCat(kill->attack.what(), victims.size() == 1 ? " is a member" : " are members",
                                   " again, ", FormatDuration(*kill->replaced), " after it"));
    }
  }
  // While a coordinator gathers what there is, it does not know yet how much was applied.
  if (look.training && look.progress.has_value()) TakeProgress(look, state, &lines);
  return lines;
}

void NoteKill(const DrillAttack& attack, double time, DrillState* state) {
  DrillKill kill;
  kill.attack = attack;
  kill.time = time;
  kill.word_before = state->word;
  state->kills.push_back(std::move(kill));
}

DrillDecision DecideDrill(const DrillOptions& options, const DrillState& state, const DrillLook& look,
                          std::mt19937_64* random) {
  if (!look.outcome.empty()) return {DrillStep::kEnd, {}, absl::StrCat("the job is over: ", look.outcome)};
  if (!state.kills.empty()) {
    const DrillKill& last = state.kills.back();
    if (options.pause && !last.let_go.has_value()) {
      if (look.now >= last.time + options.stop_for) return {DrillStep::kLetGoOn, {}, ""};
      return {};
    }
    if (!last.recovered()) {
      if (look.now <= last.let_go.value_or(last.time) + options.patience) return {};
      return {DrillStep::kEnd, {}, absl::StrCat(last.missing(), " within ", FormatDuration(options.patience))};
    }
    if (look.now < last.time + options.every && look.now < state.start + options.duration) return {};
  }
  if (look.now >= state.start + options.duration) {
    return {DrillStep::kEnd,
            {},
            state.kills.empty() ? "nothing that could be killed was a member of a job that trains" : ""};
  }
  if (!look.training) return {};
  std::optional<DrillAttack> attack = Choose(options, look, random);
  if (!attack.has_value()) return {};
  return {DrillStep::kKill, *std::move(attack), ""};
}

}  // namespace downpour::cli
