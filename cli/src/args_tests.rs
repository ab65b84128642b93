use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;

/// The page that shows the tool to readers.
const PAGE: &str = include_str!("../../docs/tool.md");

/// All options, `--like-this`, but those that only clap knows of.
fn options() -> BTreeSet<String> {
    let cli = Cli::command();
    let all = cli
        .get_subcommands()
        .chain([&cli])
        .flat_map(clap::Command::get_arguments);
    all.filter_map(|option| option.get_long())
        .filter(|&name| name != "help")
        .map(|name| format!("--{name}"))
        .collect()
}

/// The words of the page that look like options, and are no options of cargo or the like.
fn told() -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    PAGE.split(|c| !is_part(c))
        .filter(|word| word.len() > 2 && word.starts_with("--") && !word.ends_with('-'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_page_of_the_tool_has_all_of_its_commands() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(PAGE.contains(&format!("`dlock {name}")), "{name}");
    }
}

#[test]
fn the_page_of_the_tool_has_its_options_and_no_others() {
    let mut told = told();
    assert!(told.remove("--help"), "it says where all is told");
    let (options, silent) = (options(), |options: &BTreeSet<String>| {
        options.difference(&told).cloned().collect::<Vec<_>>()
    });
    assert_eq!(silent(&options), Vec::<String>::new(), "not on the page");
    let unknown: Vec<_> = told.difference(&options).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no options");
}

#[test]
fn the_page_of_the_tool_has_the_exit_codes_of_the_help() {
    let codes = |text: &str, is_code: fn(&str) -> bool| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_digit());
        words.filter(|word| is_code(word)).map(str::to_owned).collect()
    };
    let is_code = |word: &str| word.parse().is_ok_and(|code: u32| (64..=128).contains(&code));
    let (_, section) = PAGE.split_once("## Exit codes").expect("the page has them");
    assert_eq!(codes(section, is_code), codes(EXIT_CODES, is_code));
}
