//! The drivers, and how each is built. The error says why one cannot run here. A library that does not compile is no
//! reason to skip its driver: it fails.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use dlock_conformance::launch::Launch;
use dlock_testkit::client_libraries::{self, Library, last_line_of_error, ours, require};
use dlock_testkit::{Server, run, target};

/// In a runtime without sockets: the background of the client sends everything.
pub fn rust() -> Launch {
    Launch::of(env!("CARGO_BIN_EXE_dlock-conformance-driver"))
}

/// In a runtime with sockets, as applications have: each task sends its requests itself.
pub fn rust_tokio() -> Launch {
    rust().with("tokio")
}

/// On the newest redis-py.
pub fn python_asyncio() -> Result<Launch, String> {
    let packages = client_libraries::python()?;
    python(&ours("python").join("src"), &packages, "asyncio")
}

/// On the oldest redis-py.
pub fn python_sync() -> Result<Launch, String> {
    python_sync_with(&ours("python").join("src"))
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
        .with(ours("python").join("tests/driver.py"))
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
        let source = ours("go").join("conformance");
        last_line_of_error(run(Command::new("go").args(["mod", "download"]), &source))?;
        let driver = target().join("client-libraries/go-driver");
        let mut go = Command::new("go");
        run(go.args(["build", "-o"]).arg(&driver), &source).expect("the driver for Go compiles");
        Ok(driver)
    };
    DRIVER.get_or_init(build).clone().map(Launch::of)
}

pub fn node(client: &str) -> Result<Launch, String> {
    let folder = client_libraries::our_node()?;
    Ok(Launch::of("node")
        .with(folder.join("test/driver.mjs"))
        .with(client))
}

/// With a thread for each command, or with futures.
pub fn java(kind: &str) -> Result<Launch, String> {
    let classes = client_libraries::our_java()?;
    let launch = Launch::of("java").in_environment("CLASSPATH", &classes);
    // Many start at once: to load their classes would take all the time.
    let archive = java_archive(&classes)?;
    let mut shared = OsString::from("-XX:SharedArchiveFile=");
    shared.push(archive);
    let quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"];
    let launch = quick.into_iter().fold(launch.with(shared), Launch::with);
    Ok(launch.with("dlock.conformance.Driver").with(kind))
}

/// The classes that the driver loads when it starts.
fn java_archive(classes: &OsStr) -> Result<PathBuf, String> {
    static ARCHIVE: Library = OnceLock::new();
    let write = || {
        let archive = target().join("client-libraries/java-driver.jsa");
        let mut option = OsString::from("-XX:ArchiveClassesAtExit=");
        option.push(&archive);
        let mut java = Command::new("java");
        java.env("CLASSPATH", classes).arg(option);
        java.args(["-XX:+UseSerialGC", "dlock.conformance.Driver"]);
        // It ends with its input.
        let server = Server::start();
        let address = format!("redis://127.0.0.1:{}/", server.port());
        run(java.args(["blocking", &address]), Path::new("/")).map(|_| archive)
    };
    ARCHIVE.get_or_init(write).clone()
}
