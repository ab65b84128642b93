//! Every code block is of a kind that some test checks, and the book is not too long.

use std::fs;
use std::path::Path;

use crate::support::page::{self, Block, Page};
use crate::support::transcript::is_transcript;

/// Whether some test covers a block of this language with these notes.
fn is_covered(block: &Block) -> bool {
    let has_file = ["file", "from"].iter().any(|name| block.note(name).is_some());
    match block.language.as_str() {
        // Transcripts, or no code: syntax, formulas, program output.
        "text" => true,
        // transcripts.rs
        "console" => is_transcript(block),
        // programs.rs
        "python" | "go" | "javascript" | "java" | "sql" => has_file,
        // config_blocks.rs
        "conf" => true,
        // shell_blocks.rs
        "sh" => has_file || block.note("not run").is_some(),
        // The doc tests of src/lib.rs.
        "rust" | "rust,no_run" => true,
        _ => false,
    }
}

#[test]
fn every_code_block_is_covered_by_a_test() {
    for page in page::all() {
        let is_of_book = page.path.starts_with("docs");
        for block in page.blocks.iter().filter(|_| is_of_book) {
            assert!(
                is_covered(block),
                "{}: no test covers a `{}` block with the notes {:?}",
                page.place(block),
                block.language,
                block.notes
            );
        }
    }
}

/// What CONTRIBUTING.md allows.
const MAX_USER_WORDS: usize = 25_000;
const MAX_INTERNAL_WORDS: usize = 12_000;

/// The words of the pages that a part of docs/SUMMARY.md lists, without its first page, which leads to them.
fn words(part_of_summary: &str) -> usize {
    let summary = Page::parse(Path::new("docs/SUMMARY.md"), part_of_summary);
    let targets = summary.links.iter().map(|link| link.target.as_str());
    let pages = targets.filter(|target| *target != "README.md");
    let texts = pages.map(|page| fs::read_to_string(page::root().join("docs").join(page)));
    texts
        .map(|text| written_words(&text.expect("the page can be read")))
        .sum()
}

/// All but those of tables that `make bench` fills in.
fn written_words(text: &str) -> usize {
    let mut is_filled_in = false;
    let mut words = 0;
    for line in text.lines() {
        is_filled_in |= ["<!-- figures", "<!-- environment"]
            .iter()
            .any(|mark| line.starts_with(mark));
        is_filled_in &= line != "<!-- end -->";
        words += if is_filled_in {
            0
        } else {
            line.split_whitespace().count()
        };
    }
    words
}

#[test]
fn book_is_no_longer_than_contributing_allows() {
    let summary = fs::read_to_string(page::root().join("docs/SUMMARY.md")).expect("there is one");
    let (for_users, internals) = summary.split_once("\n# Internals\n").expect("it has this part");
    for (part, max) in [(for_users, MAX_USER_WORDS), (internals, MAX_INTERNAL_WORDS)] {
        let words = words(part);
        assert!(
            words <= max,
            "{words} words, {max} allowed: cut what other pages say, too"
        );
        assert!(words > max / 2, "{words} words: the pages were not found");
    }
}
