//! The invariants of `spec/` quote the sentences of `docs/guarantees.md`, and each has a bug.

use std::fs;
use std::path::Path;

/// The text of a file of the repository.
fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Without emphasis, the targets of links, and line ends.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    let text = text.replace(['[', '*'], "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn invariants_quote_guarantees_and_have_bugs() {
    let guarantees = plain(&read("docs/guarantees.md"));
    let mut invariants = 0;
    for page in ["lock", "failover", "sync", "guard", "inbox", "quorum"] {
        let text = read(&format!("spec/{page}.qnt"));
        let (_, must_be_true) = text.split_once("// ---- What must be true").expect("the heading");
        let mut comment = String::new();
        for line in must_be_true.lines().map(str::trim) {
            if let Some(more) = line.strip_prefix("///") {
                comment += more;
            } else if let Some(rest) = line.strip_prefix("val ")
                && !comment.is_empty()
            {
                let name = rest.split([' ', ':']).next().expect("a name");
                let quote = comment
                    .trim()
                    .strip_prefix('"')
                    .and_then(|text| text.split('"').next());
                let is_quote = quote.is_some_and(|quote| guarantees.contains(&plain(quote)));
                let follows_quote = comment.trim().starts_with("The same sentence");
                assert!(
                    is_quote || follows_quote,
                    "{page}: {name} quotes no guarantee: {comment}"
                );
                let bug = format!("module {page}{}{}Bug ", name[..1].to_uppercase(), &name[1..]);
                assert!(read(&format!("spec/bugs/{page}.qnt")).contains(&bug), "no {bug}");
                invariants += 1;
                comment.clear();
            }
        }
    }
    assert_eq!(invariants, 34);
}
