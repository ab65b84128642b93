use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;

const PAGE: &str = include_str!("../../../docs/tool.md");

/// All long options but `--help`, as `--name`.
fn defined_options() -> BTreeSet<String> {
    let cli = Cli::command();
    let arguments = cli
        .get_subcommands()
        .chain([&cli])
        .flat_map(clap::Command::get_arguments);
    arguments
        .filter_map(|option| option.get_long())
        .filter(|&name| name != "help")
        .map(|name| format!("--{name}"))
        .collect()
}

/// Words of the page that look like options.
fn documented_options() -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    PAGE.split(|c| !is_part(c))
        .filter(|word| word.len() > 2 && word.starts_with("--") && !word.ends_with('-'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn tool_page_lists_every_command() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(PAGE.contains(&format!("`dlock {name}")), "{name}");
    }
}

#[test]
fn tool_page_lists_every_option_and_no_other() {
    let mut documented = documented_options();
    assert!(documented.remove("--help"), "the page refers to the full help");
    let defined = defined_options();
    let missing: Vec<_> = defined.difference(&documented).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let unknown: Vec<_> = documented.difference(&defined).collect();
    assert!(unknown.is_empty(), "not options: {unknown:?}");
}

#[test]
fn tool_page_lists_exit_codes_of_help() {
    let codes = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_digit());
        let is_code = |word: &&str| word.parse().is_ok_and(|code: u32| (64..=128).contains(&code));
        words.filter(is_code).map(str::to_owned).collect()
    };
    let (_, section) = PAGE
        .split_once("## Exit codes")
        .expect("the page has the section");
    assert_eq!(codes(section), codes(EXIT_CODES));
}
