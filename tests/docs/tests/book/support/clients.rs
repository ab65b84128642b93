//! The libraries that the programs on the pages use, below cargo's target folder. They are installed once; where
//! that is not possible, the programs are skipped, with a line that says why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{is_there, run, target};

/// The versions that the pages were written for.
const PYTHON_PACKAGES: [&str; 2] = ["redis==8.1.0", "psycopg[binary]==3.3.9"];
const GO_MODULES: [&str; 2] = ["github.com/redis/go-redis/v9@v9.23.0", "golang.org/x/sys@v0.48.0"];
const NODE_PACKAGE: &str = "ioredis@6.0.0";
const JEDIS_VERSION: &str = "8.0.2";

/// Where a library is, or why it is not there. Tried once, however many tests ask.
type Library = OnceLock<Result<PathBuf, String>>;

/// Installs `name` into a folder of its own by `install`, unless it is there. The error says what is missing.
fn installed(name: &str, install: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let folder = target().join("book").join(name);
    if folder.exists() {
        return Ok(folder);
    }
    // Made beside it and renamed: what is there is whole.
    let unfinished = folder.with_file_name(format!("{name}-unfinished-{}", std::process::id()));
    fs::create_dir_all(&unfinished).map_err(|error| format!("{}: {error}", unfinished.display()))?;
    let outcome = install(&unfinished).and_then(|()| {
        let renamed = fs::rename(&unfinished, &folder);
        // Another test may have been faster.
        renamed.or_else(|error| {
            if folder.exists() {
                Ok(())
            } else {
                Err(error.to_string())
            }
        })
    });
    // Nothing is left of it when it was renamed.
    let _ = fs::remove_dir_all(&unfinished);
    outcome.map(|()| folder)
}

fn need(program: &str) -> Result<(), String> {
    if is_there(program) {
        Ok(())
    } else {
        Err(format!("there is no {program}"))
    }
}

/// The last lines of an installer say what went wrong.
fn done(outcome: Result<String, String>) -> Result<(), String> {
    outcome.map(|_| ()).map_err(|error| {
        let last = error.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it failed").to_owned()
    })
}

/// Where Python finds redis-py, and a client of PostgreSQL.
pub fn python() -> Result<PathBuf, String> {
    static PYTHON: Library = OnceLock::new();
    let install = || {
        need("python3")?;
        installed("python-redis-8.1.0", |folder| {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--retries", "1", "--target"]);
            done(run(pip.arg(folder).args(PYTHON_PACKAGES), folder))
        })
    };
    PYTHON.get_or_init(install).clone()
}

/// A module of Go that has go-redis.
pub fn go() -> Result<PathBuf, String> {
    static GO: Library = OnceLock::new();
    let install = || {
        need("go")?;
        installed("go-redis-9.23.0", |folder| {
            done(run(Command::new("go").args(["mod", "init", "example"]), folder))?;
            done(run(Command::new("go").arg("get").args(GO_MODULES), folder))
        })
    };
    GO.get_or_init(install).clone()
}

/// A folder of Node.js that has ioredis.
pub fn node() -> Result<PathBuf, String> {
    static NODE: Library = OnceLock::new();
    let install = || {
        need("node").and(need("npm"))?;
        installed("ioredis-6.0.0", |folder| {
            let install = [
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--fetch-retries=0",
                "--prefix",
                ".",
            ];
            done(run(Command::new("npm").args(install).arg(NODE_PACKAGE), folder))
        })
    };
    NODE.get_or_init(install).clone()
}

/// A folder with Jedis and what it needs.
pub fn java() -> Result<PathBuf, String> {
    static JAVA: Library = OnceLock::new();
    let install = || {
        need("java").and(need("mvn"))?;
        installed("jedis-8.0.2", |folder| {
            let project = format!(
                "<project><modelVersion>4.0.0</modelVersion><groupId>book</groupId><artifactId>book</artifactId>\
                 <version>1</version><dependencies><dependency><groupId>redis.clients</groupId><artifactId>jedis\
                 </artifactId><version>{JEDIS_VERSION}</version></dependency></dependencies></project>"
            );
            fs::write(folder.join("pom.xml"), project).map_err(|error| error.to_string())?;
            let copy = [
                "-q",
                "-B",
                "dependency:copy-dependencies",
                "-DoutputDirectory=lib",
            ];
            done(run(Command::new("mvn").args(copy), folder))
        })
    };
    JAVA.get_or_init(install).clone()
}
