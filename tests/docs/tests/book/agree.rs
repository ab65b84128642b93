//! What stands in several places is the same in all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use dlock_book::page;
use dlock_testkit::{Server, module_path};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{own_program, run};

/// The files that readers copy from: pages, and configurations.
fn files_to_copy_from() -> Vec<PathBuf> {
    let root = page::root();
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "client/README.md", "redis.conf"]
        .iter()
        .map(|file| root.join(file))
        .collect();
    let mut folders = vec![root.join("docs"), root.join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|kind| kind == "md" || kind == "conf")
            {
                files.push(path);
            }
        }
    }
    files
}

/// The paths below `/usr` in a text that lead to modules.
fn module_folders(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |char: char| !(char.is_alphanumeric() || "/-_".contains(char));
    text.match_indices("/usr/").filter_map(move |(at, _)| {
        let path = text[at..].split(is_end).next()?;
        let end = path.find("/redis/modules")? + "/redis/modules".len();
        Some(&path[..end])
    })
}

#[test]
fn the_module_lies_everywhere_where_make_install_puts_it() {
    let Some(tool) = own_program("dlock") else {
        println!("skipped: there is no program `dlock` (cargo build -p dlock-cli)");
        return;
    };
    let root = TempDir::with_prefix("dlock-book-").expect("a temporary folder can be made");
    let mut install = Command::new(page::root().join("deploy/install"));
    install.args([tool.as_os_str(), module_path().as_os_str()]);
    install.env("DESTDIR", root.path()).env_remove("PREFIX");
    run(install.env_remove("MODULEDIR"), root.path()).expect("the script runs");
    let mut found = 0;
    for file in files_to_copy_from() {
        let text = fs::read_to_string(&file).expect("text");
        for folder in module_folders(&text) {
            let installed = root.path().join(&folder[1..]).join("libdlock.so");
            assert!(
                installed.exists(),
                "{} names {folder}, and `make install` puts the module elsewhere",
                file.display()
            );
            found += 1;
        }
    }
    assert!(found > 5, "the files name the folder of the module: {found}");
}

/// The packages that cargo knows: those of this workspace, and all that they need here. Of other platforms' packages
/// cargo may have none.
fn packages() -> Vec<Value> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    metadata.args([
        "--filter-platform",
        &format!("{}-unknown-linux-gnu", env::consts::ARCH),
    ]);
    let told = run(&mut metadata, &page::root()).expect("cargo tells");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    told["packages"].as_array().expect("a list").clone()
}

/// `1.90` or `1.90.0` as numbers that can be compared.
fn version(text: &str) -> Vec<u32> {
    let numbers = text.split('.').map(|number| number.parse().expect("a number"));
    numbers.take(2).collect()
}

/// The versions in a text such as `Rust 1.90 or later`, and in one with a link: `[Rust](...) 1.90`.
fn rust_versions(text: &str) -> impl Iterator<Item = Vec<u32>> {
    text.match_indices("Rust").filter_map(|(at, word)| {
        let mut rest = &text[at + word.len()..];
        if let Some(link) = rest.strip_prefix("](") {
            rest = &link[link.find(')')? + 1..];
        }
        let is_end = |char: char| !(char.is_ascii_digit() || char == '.');
        let number = rest
            .strip_prefix(' ')?
            .split(is_end)
            .next()?
            .trim_end_matches('.');
        (number.split('.').count() > 1).then(|| version(number))
    })
}

#[test]
fn one_version_of_rust_is_asked_for_and_it_is_enough_for_all_that_is_built() {
    let mut own = BTreeSet::new();
    let mut needed = BTreeMap::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name").to_owned();
        match package["rust_version"].as_str().map(version) {
            Some(asked) if package["source"].is_null() => _ = own.insert(asked),
            Some(asked) => _ = needed.insert(name, asked),
            None => assert!(package["source"].is_string(), "{name} has no rust-version"),
        }
    }
    let asked = own.first().expect("this workspace has packages").clone();
    assert_eq!(own.len(), 1, "the packages of this workspace differ: {own:?}");
    for (name, needs) in needed {
        assert!(needs <= asked, "{name} needs {needs:?}");
    }
    let mut found = 0;
    let script = page::root().join("deploy/install-deps");
    for file in files_to_copy_from().into_iter().chain([script]) {
        let text = fs::read_to_string(&file).expect("text");
        for said in rust_versions(&text) {
            assert_eq!(said, asked, "{}", file.display());
            found += 1;
        }
    }
    assert!(found >= 5, "pages say which Rust is needed: {found}");
}

#[test]
fn the_servers_that_are_tested_are_those_of_the_matrix() {
    let mut matrix = Command::new(page::root().join("tests/matrix/fetch-servers"));
    let ids = run(matrix.arg("--list"), &page::root()).expect("the script lists them");
    let pages = ["README.md", "docs/operations.md"];
    let [readme, operations] =
        pages.map(|page| fs::read_to_string(page::root().join(page)).expect("the page is there"));
    let (_, sentence) = readme
        .split_once("It is tested with ")
        .expect("the README says it");
    let (sentence, _) = sentence.split_once("(`make test-matrix`)").expect("and by what");
    for id in ids.lines() {
        let (name, version) = id.split_once('-').expect("a name and a version");
        let mentions = sentence.to_lowercase().contains(name) && sentence.contains(version);
        assert!(mentions, "README.md does not say that {id} is tested");
        let is_row = |line: &str| {
            let cell = |number| line.split('|').nth(number).unwrap_or("").trim().to_lowercase();
            cell(1).starts_with(name) && cell(2).split(", ").any(|tested| tested.starts_with(version))
        };
        assert!(
            operations.lines().any(is_row),
            "docs/operations.md has no row of {id}"
        );
    }
    assert!(ids.lines().count() > 1, "the matrix has servers");
}

/// The names in a text that begin with `dlock_`, with the label `error` where one has it.
fn metrics(text: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let is_of_name = |char: char| char.is_alphanumeric() || char == '_';
    text.match_indices("`dlock_").map(move |(at, _)| {
        let name: String = text[at + 1..]
            .chars()
            .take_while(|&char| is_of_name(char))
            .collect();
        let behind = &text[at + 1 + name.len()..];
        let label = behind
            .strip_prefix("{error=\"")
            .and_then(|rest| rest.split('"').next());
        (name, label.map(str::to_owned))
    })
}

#[test]
fn what_operations_has_alarms_for_is_in_info_or_in_the_form_of_prometheus() {
    let Some(tool) = own_program("dlock") else {
        println!("skipped: there is no program `dlock` (cargo build -p dlock-cli)");
        return;
    };
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let mut stats = Command::new(tool);
    stats.args(["-u", &url, "stats", "--prometheus"]);
    let told = run(&mut stats, Path::new("/")).expect("the tool tells");
    let fields = server.client().info_section("dlock");
    let page = fs::read_to_string(page::root().join("docs/operations.md")).expect("the page is there");
    let mut found = 0;
    for (name, label) in metrics(&page) {
        let has_label = |line: &str| match &label {
            Some(label) => line.contains(&format!("error=\"{label}\"")),
            None => true,
        };
        let is_told = told
            .lines()
            .any(|line| line.starts_with(&format!("{name}{{")) && has_label(line));
        assert!(
            is_told || fields.contains_key(&name),
            "neither INFO nor `dlock stats --prometheus` has {name} {label:?}"
        );
        found += 1;
    }
    assert!(found > 15, "the page names fields: {found}");
}
