//! No code block is left untried: each is of a kind that a test tries, or is no code. And pages can be read as they
//! are, in a terminal.

use std::fs;

use dlock_book::page::{self, Block};

use crate::support::transcript::is_transcript;

/// How blocks of a language are tried; `None`: nobody knows.
fn who_tries(block: &Block) -> Option<&'static str> {
    let has_file = ["file", "Sentinels", "cluster"]
        .iter()
        .any(|name| block.note(name).is_some());
    match block.language.as_str() {
        // Syntax, formulas, what a program prints.
        "text" => Some("a transcript, or no code"),
        "console" if is_transcript(block) => Some("transcripts.rs"),
        "python" | "go" | "javascript" | "java" | "sql" if has_file => Some("programs.rs"),
        "conf" => Some("settings.rs"),
        "sh" if has_file || block.note("not run").is_some() => Some("shell.rs"),
        "rust" | "rust,no_run" => Some("the documentation of `chapters`"),
        _ => None,
    }
}

#[test]
fn every_block_is_of_a_kind_that_is_tried() {
    for page in page::all() {
        let is_of_book = page.path.starts_with("docs");
        for block in page.blocks.iter().filter(|_| is_of_book) {
            assert!(
                who_tries(block).is_some(),
                "{}: no test tries a block of the kind `{}` with the notes {:?}",
                page.place(block),
                block.language,
                block.notes
            );
        }
    }
}

/// Pages are wrapped at 120 columns, give or take a word.
const MOST_COLUMNS: usize = 125;

#[test]
fn no_line_of_a_page_is_too_long_but_in_tables_and_code() {
    let mut too_long = Vec::new();
    for page in page::all() {
        let text = fs::read_to_string(page::root().join(&page.path)).expect("it was read before");
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.starts_with("```");
            if line.chars().count() > MOST_COLUMNS && !is_code && !line.starts_with('|') {
                too_long.push(format!("{}:{number}", page.path.display()));
            }
        }
    }
    assert!(too_long.is_empty(), "break these lines: {}", too_long.join(", "));
}
