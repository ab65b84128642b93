//! The drivers, and how each is built. The error says why one cannot run here. A library that does not compile is no
//! reason to skip its driver: it fails.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use dlock_conformance::launch::Launch;
use dlock_testkit::client_libraries::{self, Library, installed, last_line_of_error, require};
use dlock_testkit::{run, target};

/// The folder of a client library.
pub fn library(language: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the kit is in tests/").join("clients").join(language)
}

pub fn rust() -> Launch {
    Launch::of(env!("CARGO_BIN_EXE_dlock-conformance-driver"))
}

/// On the newest redis-py.
pub fn python_asyncio() -> Result<Launch, String> {
    let packages = client_libraries::python()?;
    python(&library("python").join("src"), &packages, "asyncio")
}

/// On the oldest redis-py.
pub fn python_sync() -> Result<Launch, String> {
    python_sync_with(&library("python").join("src"))
}

/// As [`python_sync`], with the library in this folder.
pub fn python_sync_with(source: &Path) -> Result<Launch, String> {
    python(source, &client_libraries::oldest_python()?, "sync")
}

fn python(source: &Path, packages: &Path, kind: &str) -> Result<Launch, String> {
    let path = std::env::join_paths([source, packages]).map_err(|error| error.to_string())?;
    let launch = Launch::of(interpreter()?).in_environment("PYTHONPATH", path);
    let launch = launch.in_environment("PYTHONDONTWRITEBYTECODE", "1");
    // Without what else is installed.
    Ok(launch
        .with("-S")
        .with(library("python").join("tests/driver.py"))
        .with(kind))
}

/// Python itself: what is in PATH may be a script, which takes longer to start.
fn interpreter() -> Result<PathBuf, String> {
    static INTERPRETER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || {
        let mut python = Command::new("python3");
        let printed = run(
            python.args(["-c", "import sys; print(sys.executable)"]),
            Path::new("/"),
        )?;
        Ok(PathBuf::from(printed.trim_end()))
    };
    INTERPRETER.get_or_init(find).clone()
}

pub fn go() -> Result<Launch, String> {
    static DRIVER: Library = OnceLock::new();
    let build = || {
        require("go")?;
        let source = library("go").join("conformance");
        last_line_of_error(run(Command::new("go").args(["mod", "download"]), &source))?;
        let driver = target().join("client-libraries/go-driver");
        let mut go = Command::new("go");
        run(go.args(["build", "-o"]).arg(&driver), &source).expect("the driver for Go compiles");
        Ok(driver)
    };
    DRIVER.get_or_init(build).clone().map(Launch::of)
}

pub fn node(client: &str) -> Result<Launch, String> {
    static LIBRARY: Library = OnceLock::new();
    let folder = LIBRARY.get_or_init(build_node_library).clone()?;
    Ok(Launch::of("node")
        .with(folder.join("test/driver.mjs"))
        .with(client))
}

/// A copy of the library, compiled, so that nothing is written into the source.
fn build_node_library() -> Result<PathBuf, String> {
    require("node").and(require("npm"))?;
    let source = library("node");
    let packages = ["package.json", "package-lock.json"];
    let mut hasher = DefaultHasher::new();
    for file in packages {
        let text = fs::read(source.join(file)).expect("the library has its packages");
        text.hash(&mut hasher);
    }
    let name = format!("node-{:016x}", hasher.finish());
    let installed = installed(&name, |directory| {
        for file in packages {
            fs::copy(source.join(file), directory.join(file)).map_err(|error| error.to_string())?;
        }
        let mut npm = Command::new("npm");
        let options = [
            "ci",
            "--ignore-scripts",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=0",
        ];
        last_line_of_error(run(npm.args(options), directory))
    })?;
    // Node.js searches for packages in the folders above, too.
    let copy = installed.join("library");
    if copy.exists() {
        fs::remove_dir_all(&copy).expect("the copy can be removed");
    }
    let parts = ["package.json", "tsconfig.json", "src", "test"];
    copy_files(&source, &parts.map(OsString::from), &copy);
    let compiler = installed.join("node_modules/.bin/tsc");
    run(&mut Command::new(compiler), &copy).expect("the library for Node.js compiles");
    Ok(copy)
}

/// Copies files and folders.
pub fn copy_files(from: &Path, names: &[OsString], to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for name in names {
        let (source, copy) = (from.join(name), to.join(name));
        if source.is_dir() {
            let entries = fs::read_dir(&source).expect("the folder is readable");
            let names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
            copy_files(&source, &names, &copy);
        } else {
            fs::copy(&source, &copy).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        }
    }
}
