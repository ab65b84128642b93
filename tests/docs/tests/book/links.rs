//! Links lead somewhere. Nothing is fetched: of addresses outside only the form is looked at.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use dlock_book::page::{self, Link, Page};

/// Pages outside the book that its readers are sent to, or that send readers to it.
const NEIGHBOURS: [&str; 4] = [
    "client/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];

fn pages() -> BTreeMap<PathBuf, Page> {
    let neighbours = NEIGHBOURS.iter().map(|path| Page::read(Path::new(path)));
    let pages = page::all().into_iter().chain(neighbours);
    pages.map(|page| (page.path.clone(), page)).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut dead = Vec::new();
    for page in pages.values() {
        for link in &page.links {
            if let Err(why) = follow(&pages, page, link) {
                dead.push(format!(
                    "{}:{}: {}: {why}",
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
fn every_page_stands_in_the_summary() {
    let summary = Page::read(Path::new("docs/SUMMARY.md"));
    let listed: Vec<PathBuf> = summary
        .links
        .iter()
        .map(|link| Path::new("docs").join(&link.target))
        .collect();
    for page in page::all() {
        let is_chapter = page.path.starts_with("docs") && page.path != summary.path;
        assert!(
            !is_chapter || listed.contains(&page.path),
            "{} is in no chapter of docs/SUMMARY.md",
            page.path.display()
        );
    }
}

fn follow(pages: &BTreeMap<PathBuf, Page>, page: &Page, link: &Link) -> Result<(), String> {
    if link.target.starts_with("https://") {
        let is_plain = link.target.is_ascii() && !link.target.contains(' ');
        return if is_plain {
            Ok(())
        } else {
            Err("not an address".into())
        };
    }
    let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let target = if path.is_empty() {
        page.path.clone()
    } else {
        without_dots(&page.path.parent().unwrap_or(Path::new("")).join(path))
    };
    if !page::root().join(&target).exists() {
        return Err(format!("there is no {}", target.display()));
    }
    match pages.get(&target) {
        Some(there) if !anchor.is_empty() && !there.anchors.contains(anchor) => {
            Err(format!("{} has no heading of that name", target.display()))
        }
        _ => Ok(()),
    }
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}
