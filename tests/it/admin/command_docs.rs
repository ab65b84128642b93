//! `docs/commands.md` and `docs/internal-commands.md` say the same as COMMAND DOCS, CONFIG GET and INFO.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Server, start};
use redis::Value;

type Map = BTreeMap<String, Value>;

const REFERENCE: &str = include_str!("../../../docs/commands.md");
const INTERNALS: &str = include_str!("../../../docs/internal-commands.md");

#[test]
fn reference_matches_command_docs() {
    let (_server, mut client) = start();
    let commands: Vec<String> = client.ask("COMMAND LIST FILTERBY MODULE dlock");
    let described = [REFERENCE, INTERNALS].map(|page| page.matches("\nSyntax:\n").count());
    assert_eq!(commands.len(), described.iter().sum::<usize>());
    for command in commands {
        let docs = docs_of(&mut client, &command);
        let section = section_of(&command.to_uppercase());
        assert_eq!(code_block(section), syntax(&command, &docs), "{command}");
        for (label, field) in [
            ("Summary", "summary"),
            ("Complexity", "complexity"),
            ("Since", "since"),
        ] {
            assert_eq!(line(section, label), text(&docs[field]), "{label} of {command}");
        }
    }
}

#[test]
fn reference_lists_settings_with_defaults() {
    let server = Server::start();
    let settings: BTreeMap<String, String> = server.client().ask("CONFIG GET dlock.*");
    assert!(!settings.is_empty());
    for (name, default) in settings {
        let row = REFERENCE
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        assert!(row.contains(&default), "{name} {default}: {row}");
    }
}

#[test]
fn reference_lists_info_fields() {
    let server = Server::start();
    let info: String = server.client().ask("INFO dlock");
    let fields = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name);
    for field in fields {
        let field = field.strip_prefix("dlock_").expect("the module's prefix");
        assert!(REFERENCE.contains(&format!("`{field}`")), "{field}");
    }
}

fn docs_of(client: &mut Client, command: &str) -> Map {
    let mut docs: BTreeMap<String, Map> = client.ask(&format!("COMMAND DOCS {command}"));
    docs.remove(command).expect("the server describes its commands")
}

/// From the command's heading to the next one.
fn section_of(command: &str) -> &'static str {
    let heading = format!("\n## {command}\n");
    let section = [REFERENCE, INTERNALS]
        .into_iter()
        .find_map(|page| Some(page.split_once(&heading)?.1));
    let section = section.unwrap_or_else(|| panic!("no section {command}"));
    section.split("\n#").next().unwrap_or(section)
}

fn code_block(section: &str) -> &str {
    let block = section.split("```text\n").nth(1).expect("a code block");
    block.split("\n```").next().expect("its end")
}

fn line<'a>(section: &'a str, label: &str) -> &'a str {
    let prefix = format!("{label}: ");
    let line = section.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("no line {label}"))
}

/// The syntax line, from the arguments in COMMAND DOCS.
fn syntax(command: &str, docs: &Map) -> String {
    let arguments: Vec<Map> = docs.get("arguments").map(from).unwrap_or_default();
    let arguments = arguments.iter().map(argument);
    let words: Vec<String> = std::iter::once(command.to_uppercase()).chain(arguments).collect();
    words.join(" ")
}

fn argument(docs: &Map) -> String {
    let token = docs.get("token").map(text);
    let inner = match text(&docs["type"]).as_str() {
        kind @ ("oneof" | "block") => {
            let arguments: Vec<String> = from::<Vec<Map>>(&docs["arguments"])
                .iter()
                .map(argument)
                .collect();
            Some(arguments.join(if kind == "oneof" { " | " } else { " " }))
        }
        "pure-token" => None,
        _ => Some(text(&docs["name"])),
    };
    let words: Vec<String> = token.into_iter().chain(inner).collect();
    let shown = words.join(" ");
    let flags: Vec<String> = docs.get("flags").map(from).unwrap_or_default();
    let has = |flag: &str| flags.iter().any(|own| own == flag);
    match (has("optional"), has("multiple")) {
        (true, true) => format!("[{shown} ...]"),
        (true, false) => format!("[{shown}]"),
        (false, true) => format!("{shown} [{shown} ...]"),
        (false, false) => shown,
    }
}

fn text(value: &Value) -> String {
    from(value)
}

fn from<T: redis::FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value_ref(value).expect("a value of that kind")
}
