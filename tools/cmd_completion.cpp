#include "commands.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string names(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> out;
  for (const CommandInfo& command : commands) out.push_back(command.name);
  return joined(out);
}

/// Commands first, then a command's options; anything else is a file.
std::string bash(const std::vector<CommandInfo>& commands) {
  std::string text =
      "_tidemark() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} words=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    words='" +
      names(commands) +
      " --help --version'\n"
      "  else\n"
      "    case ${COMP_WORDS[1]} in\n";
  for (const CommandInfo& command : commands)
    text += "      " + command.name + ") words='" + joined(command.options) + "' ;;\n";
  return text +
         "    esac\n"
         "    case $word in\n"
         "      -*) ;;\n"
         "      *) words= ;;\n"
         "    esac\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  [ -n \"${COMPREPLY[*]}\" ] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "}\n"
         "complete -o filenames -F _tidemark tidemark\n";
}

std::string zsh(const std::vector<CommandInfo>& commands) {
  return "#compdef tidemark\nautoload -U +X bashcompinit && bashcompinit\n" + bash(commands);
}

std::string fish(const std::vector<CommandInfo>& commands) {
  std::string text = "complete -c tidemark -n __fish_use_subcommand -f -a '" + names(commands) + "'\n";
  for (const CommandInfo& command : commands)
    for (const std::string& option : command.options)
      text +=
          "complete -c tidemark -n '__fish_seen_subcommand_from " + command.name + "' -l " + option.substr(2) + "\n";
  return text;
}

}  // namespace

int completion_command(const CompletionOptions& options, const std::vector<CommandInfo>& commands) {
  if (options.shell == "bash")
    print(bash(commands));
  else if (options.shell == "zsh")
    print(zsh(commands));
  else if (options.shell == "fish")
    print(fish(commands));
  else
    throw InputError("unknown shell '" + options.shell + "'; expected one of: bash, zsh, fish");
  return exit_yes;
}

}  // namespace tidemark::cli
