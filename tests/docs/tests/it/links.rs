//! Every link resolves. External links are only checked for syntax; nothing is fetched.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::support::page::{self, Link, Page};

/// Pages outside the book that link to it, or that it links to.
const NEIGHBOURS: [&str; 12] = [
    "bench/README.md",
    "clients/go/README.md",
    "clients/java/README.md",
    "clients/node/README.md",
    "clients/python/README.md",
    "client/README.md",
    "quorum/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "spec/README.md",
    "tests/README.md",
];

fn pages() -> BTreeMap<PathBuf, Page> {
    let neighbours = NEIGHBOURS.iter().map(|path| Page::read(Path::new(path)));
    let pages = page::all().into_iter().chain(neighbours);
    pages.map(|page| (page.path.clone(), page)).collect()
}

#[test]
fn links_of_all_pages_resolve() {
    let pages = pages();
    let mut dead = Vec::new();
    for page in pages.values() {
        for link in &page.links {
            if let Err(reason) = check(&pages, page, link) {
                dead.push(format!(
                    "{}:{}: {}: {reason}",
                    page.path.display(),
                    link.line,
                    link.target
                ));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn summary_lists_every_page() {
    let summary = Page::read(Path::new("docs/SUMMARY.md"));
    let listed = summary.links.iter();
    let listed: Vec<PathBuf> = listed.map(|link| Path::new("docs").join(&link.target)).collect();
    for page in page::all() {
        let is_chapter = page.path.starts_with("docs") && page.path != summary.path;
        assert!(
            !is_chapter || listed.contains(&page.path),
            "docs/SUMMARY.md does not list {}",
            page.path.display()
        );
    }
}

fn check(pages: &BTreeMap<PathBuf, Page>, page: &Page, link: &Link) -> Result<(), String> {
    if link.target.starts_with("https://") {
        let is_plain = link.target.is_ascii() && !link.target.contains(' ');
        return if is_plain {
            Ok(())
        } else {
            Err("not a valid URL".into())
        };
    }
    let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let target = if path.is_empty() {
        page.path.clone()
    } else {
        normalize(&page.path.parent().unwrap_or(Path::new("")).join(path))
    };
    if !page::root().join(&target).exists() {
        return Err(format!("{} does not exist", target.display()));
    }
    match pages.get(&target) {
        Some(other) if !anchor.is_empty() && !other.anchors.contains(anchor) => {
            Err(format!("{} has no such heading", target.display()))
        }
        _ => Ok(()),
    }
}

fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            normal.pop();
        } else {
            normal.push(component);
        }
    }
    normal
}
