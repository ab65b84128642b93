//! docs/tool.md describes what `--help` lists.

use std::collections::BTreeSet;

use crate::support::tool;

const PAGE: &str = include_str!("../../../docs/tool.md");

fn commands() -> Vec<String> {
    let help = tool(&["--help"]).out;
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let names = list.lines().map_while(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Words that look like options.
fn options(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    text.split(move |c| !is_part(c))
        .filter(|word| word.len() > 2 && word.starts_with("--") && !word.ends_with('-'))
        .map(str::to_owned)
}

#[test]
fn tool_page_lists_every_command() {
    let commands = commands();
    assert!(commands.len() >= 9, "{commands:?}");
    for command in commands {
        assert!(PAGE.contains(&format!("`dlock {command}")), "{command}");
    }
}

#[test]
fn tool_page_lists_every_option_and_no_other() {
    let help = commands()
        .into_iter()
        .map(|command| tool(&[&command, "--help"]).out);
    let help: String = help.collect();
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
    let defined: BTreeSet<String> = lines.filter_map(|line| options(line).next()).collect();
    assert!(defined.len() > 30 && defined.contains("--help"), "{defined:?}");
    let documented: BTreeSet<String> = options(PAGE).collect();
    assert_eq!(documented, defined);
}

#[test]
fn tool_page_lists_exit_codes_of_help() {
    let codes = |text: &str| -> BTreeSet<String> {
        let (_, section) = text.split_once("Exit codes").expect("a section");
        let words = section.split(|c: char| !c.is_ascii_digit());
        let is_code = |word: &&str| word.parse().is_ok_and(|code: u32| (64..=128).contains(&code));
        words.filter(is_code).map(str::to_owned).collect()
    };
    let help = tool(&["--help"]).out;
    let (help, _) = help.split_once("Environment:").expect("a section");
    assert_eq!(codes(PAGE), codes(help));
}
