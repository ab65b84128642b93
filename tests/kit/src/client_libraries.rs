//! Client libraries of other languages, installed once below cargo's target directory. A program whose library cannot
//! be installed is skipped.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::programs::{is_installed, run, target};

/// The versions that the pages are written for.
const PYTHON_PACKAGES: [&str; 2] = ["redis==8.1.0", "psycopg[binary]==3.3.9"];

/// The directory of a library, or why it cannot be installed. Installed once per test run.
pub type Library = OnceLock<Result<PathBuf, String>>;

/// Installs `name` into its own directory, unless it is already there. The error says what is missing.
pub fn installed(name: &str, install: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let directory = target().join("client-libraries").join(name);
    if directory.exists() {
        return Ok(directory);
    }
    // Renamed when complete, so that an existing directory is never half installed.
    let unfinished = directory.with_file_name(format!("{name}-unfinished-{}", std::process::id()));
    fs::create_dir_all(&unfinished).map_err(|error| format!("{}: {error}", unfinished.display()))?;
    let outcome = install(&unfinished).and_then(|()| {
        let renamed = fs::rename(&unfinished, &directory);
        // Another process may have been faster.
        renamed.or_else(|error| {
            if directory.exists() {
                Ok(())
            } else {
                Err(error.to_string())
            }
        })
    });
    // Gone already if the rename succeeded.
    let _ = fs::remove_dir_all(&unfinished);
    outcome.map(|()| directory)
}

/// Fails if a program is not in PATH.
pub fn require(program: &str) -> Result<(), String> {
    if is_installed(program) {
        Ok(())
    } else {
        Err(format!("{program} is not installed"))
    }
}

/// Keeps only the last line of an installer's error.
pub fn last_line_of_error(outcome: Result<String, String>) -> Result<(), String> {
    outcome.map(|_| ()).map_err(|error| {
        let last = error.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("the installer failed").to_owned()
    })
}

/// The PYTHONPATH of redis-py and psycopg.
pub fn python() -> Result<PathBuf, String> {
    static PYTHON: Library = OnceLock::new();
    let install = || python_packages("python-redis-8.1.0", &PYTHON_PACKAGES);
    PYTHON.get_or_init(install).clone()
}

/// The PYTHONPATH of the oldest redis-py that the library for Python supports.
pub fn oldest_python() -> Result<PathBuf, String> {
    static PYTHON: Library = OnceLock::new();
    let install = || python_packages("python-redis-5.0.0", &["redis==5.0.0"]);
    PYTHON.get_or_init(install).clone()
}

fn python_packages(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    require("python3")?;
    installed(name, |directory| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--retries", "1", "--target"]);
        last_line_of_error(run(pip.arg(directory).args(packages), directory))
    })
}

/// The folder of one of our client libraries.
pub fn ours(language: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the kit is in tests/").join("clients").join(language)
}

/// Our library for Node.js, compiled, with its tests.
pub fn our_node() -> Result<PathBuf, String> {
    static LIBRARY: Library = OnceLock::new();
    LIBRARY.get_or_init(build_our_node).clone()
}

/// A copy of the library, compiled, so that nothing is written into the source.
fn build_our_node() -> Result<PathBuf, String> {
    require("node").and(require("npm"))?;
    let source = ours("node");
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

/// The class path of our library for Java, compiled, with its driver.
pub fn our_java() -> Result<OsString, String> {
    static LIBRARY: OnceLock<Result<OsString, String>> = OnceLock::new();
    LIBRARY.get_or_init(build_our_java).clone()
}

/// Compiled with the compiler alone: Maven only brings what it needs.
fn build_our_java() -> Result<OsString, String> {
    for program in ["java", "javac", "jar", "mvn"] {
        require(program)?;
    }
    let source = ours("java");
    let project = fs::read(source.join("pom.xml")).expect("the library has a pom.xml");
    let mut hasher = DefaultHasher::new();
    project.hash(&mut hasher);
    let name = format!("java-{:016x}", hasher.finish());
    let installed = installed(&name, |directory| {
        fs::write(directory.join("pom.xml"), &project).map_err(|error| error.to_string())?;
        let copy = [
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DoutputDirectory=lib",
        ];
        last_line_of_error(run(Command::new("mvn").args(copy), directory))
    })?;
    let classes = installed.join(format!("classes-{}", std::process::id()));
    let archive = installed.join(format!("library-{}.jar", std::process::id()));
    let sources = ["src/main/java", "src/test/java/dlock/conformance"].map(|folder| source.join(folder));
    let files: Vec<PathBuf> = sources.iter().flat_map(|folder| files_below(folder)).collect();
    let mut compiler = Command::new("javac");
    compiler.args(["--release", "17", "-cp", "lib/*", "-d"]);
    run(compiler.arg(&classes).args(files), &installed).expect("the library for Java compiles");
    let mut jar = Command::new("jar");
    jar.arg("cf").arg(&archive).arg("-C").arg(&classes).arg(".");
    run(&mut jar, &installed).expect("the library for Java is packed");
    fs::remove_dir_all(&classes).expect("the classes can be removed");
    let library = installed.join("library.jar");
    fs::rename(archive, &library).expect("the library can be renamed");
    let mut path = vec![library];
    path.extend(files_below(&installed.join("lib")));
    path.sort();
    std::env::join_paths(path).map_err(|error| error.to_string())
}

/// The files in a folder, and in the folders in it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.flatten().map(|entry| entry.path());
    let files = paths.flat_map(|path| {
        if path.is_dir() {
            files_below(&path)
        } else {
            vec![path]
        }
    });
    files.collect()
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
