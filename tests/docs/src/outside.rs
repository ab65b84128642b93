//! Links that leave `docs/`, in the book: it has no pages for what they lead to. They become words, with the path
//! in the project.

use std::fmt::Write as _;
use std::path::{Component, Path};

use crate::page::Page;

/// The text of a chapter without links that leave the book. `path` is the chapter's, relative to `docs/`.
pub fn without_outside_links(path: &Path, text: &str) -> String {
    let page = Page::parse(path, text);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut mended = String::with_capacity(text.len());
    let mut copied = 0;
    for link in page.links {
        let Some(outside) = outside_path(folder, &link.target) else {
            continue;
        };
        let label = label_of(&text[link.range.clone()]);
        mended.push_str(&text[copied..link.range.start]);
        mended.push_str(label);
        if !outside.ends_with(label) {
            // Writing into a string cannot fail.
            let _ = write!(mended, " (`{outside}`)");
        }
        copied = link.range.end;
    }
    mended.push_str(&text[copied..]);
    mended
}

/// The words of a link: what stands in the brackets.
fn label_of(link: &str) -> &str {
    let end = link.rfind("](").unwrap_or(link.len());
    link[..end].trim_start_matches('[')
}

/// Where a link leads in the project, if that is outside `docs/`.
fn outside_path(folder: &Path, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or(target);
    if target.is_empty() || target.contains("://") {
        return None;
    }
    let mut depth = 0;
    let path = folder.join(target);
    for component in path.components() {
        depth += if component == Component::ParentDir { -1 } else { 1 };
        if depth < 0 {
            let (_, outside) = target.rsplit_once("../")?;
            return Some(outside.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(path: &str, text: &str) -> String {
        without_outside_links(Path::new(path), text)
    }

    #[test]
    fn a_link_that_leaves_the_book_becomes_words_and_a_path() {
        assert_eq!(
            mended("a.md", "see [the page](../client/README.md#x)."),
            "see the page (`client/README.md`)."
        );
        assert_eq!(mended("a.md", "[redis.conf](../redis.conf)"), "redis.conf");
        assert_eq!(mended("bench/a.md", "[x](../../Makefile)"), "x (`Makefile`)");
    }

    #[test]
    fn a_link_within_the_book_or_to_the_world_stays() {
        for text in [
            "[b](b.md#c)",
            "[b](#c)",
            "[b](../b.md)",
            "[b](https://example.com/../x)",
            "`[a](../b)`",
        ] {
            assert_eq!(mended("bench/a.md", text), text);
        }
    }
}
