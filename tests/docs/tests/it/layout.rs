//! The source is layered as docs/architecture.md says: files import each other in no circle, folders none from above.

use std::collections::BTreeSet;
use std::fs;

use crate::support::imports::{Imports, imports};
use crate::support::page;

/// The crates of the workspace: `lib.rs` or `main.rs` of the libraries and programs.
fn roots() -> Vec<String> {
    let manifest = fs::read_to_string(page::root().join("Cargo.toml")).expect("the manifest is there");
    let members = manifest
        .split_once("members = [")
        .expect("it lists the members")
        .1;
    let members = members.split_once(']').expect("the list ends").0;
    let mut roots = Vec::new();
    for member in members.split('"').skip(1).step_by(2) {
        let folder = format!("{member}/src").replace("./", "");
        roots.extend(["lib.rs", "main.rs"].map(|file| format!("{folder}/{file}")));
        let programs = fs::read_dir(page::root().join(&folder).join("bin"));
        for program in programs.into_iter().flatten().flatten() {
            let program = format!("{folder}/bin/{}", program.file_name().display());
            roots.extend([format!("{program}/main.rs"), program]);
        }
    }
    roots.retain(|root| page::root().join(root).is_file());
    roots
}

fn imports_of(root: &str) -> Imports {
    imports(root, &|file| fs::read_to_string(page::root().join(file)).ok())
}

fn leads_to(imports: &Imports, from: &str, to: &str) -> bool {
    let mut reached = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = imports.range((file.to_owned(), String::new())..);
        let next = next.take_while(|((from, _), _)| from == file);
        open.extend(
            next.map(|((_, to), _)| to.as_str())
                .filter(|to| reached.insert(to)),
        );
    }
    reached.contains(to)
}

fn list(imports: &Imports, is_listed: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let listed = imports.iter().filter(|((from, to), _)| is_listed(from, to));
    let lines = listed.map(|((from, to), line)| format!("{from}:{line} imports {to}"));
    lines.collect()
}

/// The imports that are part of a circle.
fn circular(imports: &Imports) -> Vec<String> {
    list(imports, |from, to| leads_to(imports, to, from))
}

/// The imports, by files in `source`, from a folder or file that is above in this list. Files that are not listed are
/// above all.
fn upward(imports: &Imports, source: &str, listed: &[&str]) -> Vec<String> {
    let depth = |file: &str| {
        let path = file
            .strip_prefix(source)
            .unwrap_or_else(|| panic!("{file} is not in {source}"));
        let (name, is_folder) = path
            .split_once('/')
            .map_or((path, false), |(folder, _)| (folder, true));
        let position = listed.iter().position(|known| *known == name);
        assert!(
            position.is_some() || !is_folder,
            "docs/architecture.md does not list {source}{name}/"
        );
        position.map_or(0, |position| 1 + position)
    };
    list(imports, |from, to| depth(from) > depth(to))
}

/// The folders and files in `source` that docs/architecture.md lists, in order.
fn listed_in(source: &str) -> Vec<String> {
    let page = fs::read_to_string(page::root().join("docs/architecture.md")).expect("the page is there");
    let paths = page.lines().filter_map(|line| line.strip_prefix(source));
    let names = paths.filter_map(|path| path.split_whitespace().next());
    names.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn architecture_names_files_that_exist() {
    let page = fs::read_to_string(page::root().join("docs/architecture.md")).expect("the page is there");
    let code = page.split('`').skip(1).step_by(2);
    let files: Vec<&str> = code
        .filter(|code| code.ends_with(".rs") && code.contains('/'))
        .collect();
    assert!(files.len() > 40, "found only {files:?}");
    let is_missing = |file: &&&str| !page::root().join(file).exists();
    let missing: Vec<_> = files.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn files_import_each_other_in_no_circle() {
    let roots = roots();
    assert!(roots.len() > 8, "found only {roots:?}");
    let imports: Imports = roots.iter().flat_map(|root| imports_of(root)).collect();
    let circles = circular(&imports);
    assert!(circles.is_empty(), "circles of imports: {circles:#?}");
}

#[test]
fn folders_import_only_from_those_below() {
    for (source, least) in [("src/", 3), ("core/src/", 15)] {
        let listed = listed_in(source);
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        assert!(
            listed.len() >= least,
            "the page lists only {listed:?} in {source}"
        );
        let imports = imports_of(&format!("{source}lib.rs"));
        assert!(imports.len() > 100, "found only {imports:?}");
        let upward = upward(&imports, source, &listed);
        assert!(upward.is_empty(), "imports from above: {upward:#?}");
    }
}

/// The imports of a crate of these files.
fn parsed(files: &[(&str, &str)]) -> Imports {
    imports("src/lib.rs", &|name| {
        let file = files.iter().find(|(other, _)| *other == name);
        file.map(|(_, text)| (*text).to_owned())
    })
}

#[test]
fn circle_of_two_files_is_found() {
    let root = ("src/lib.rs", "mod a; mod b; mod c; pub use a::A;");
    let tests = "#[cfg(test)]\nmod tests { use crate::c::C; }";
    let text = format!("// crate::c\n/// [C](crate::c::C)\npub struct A(\n    super::b::B);\n{tests}");
    let a = ("src/a.rs", text.as_str());
    let c = ("src/c.rs", "use crate::{A, b::{self as other}};");
    let b = ("src/b.rs", "use std::fmt;\nuse crate::A;");
    let circle = ["src/a.rs:4 imports src/b.rs", "src/b.rs:2 imports src/a.rs"];
    assert_eq!(circular(&parsed(&[root, a, b, c])), circle);
    let b = ("src/b.rs", "pub(in crate::a) struct B;");
    assert!(circular(&parsed(&[root, a, b, c])).is_empty());
}

#[test]
fn circle_of_parent_and_child_is_found() {
    let circles = |parent| {
        circular(&parsed(&[
            ("src/lib.rs", parent),
            ("src/a.rs", "use super::Shared;"),
        ]))
    };
    for parent in [
        "use a::A; mod a;",
        "pub use a::A; mod a; struct B(A);",
        "fn f() { a::f() } mod a;",
    ] {
        let circle = ["src/a.rs:1 imports src/lib.rs", "src/lib.rs:1 imports src/a.rs"];
        assert_eq!(circles(parent), circle, "{parent}");
    }
    for parent in ["pub use a::A; mod a;", "mod a; mod b { use super::Shared; }"] {
        assert!(circles(parent).is_empty(), "{parent}");
    }
}

#[test]
fn upward_import_is_found() {
    let files = [
        ("src/lib.rs", "mod low; mod high; use low::A;"),
        ("src/low/mod.rs", "mod b; fn f() {\n    b::f(crate::high::C)\n}"),
        ("src/low/b.rs", "use super::A;"),
        ("src/high/mod.rs", "use crate::low::A;"),
    ];
    let found = |listed: &[&str]| upward(&parsed(&files), "src/", listed);
    assert_eq!(
        found(&["high", "low"]),
        ["src/low/mod.rs:2 imports src/high/mod.rs"]
    );
    // Two folders that import each other have no order.
    assert_eq!(
        found(&["low", "high"]),
        ["src/high/mod.rs:1 imports src/low/mod.rs"]
    );
}
