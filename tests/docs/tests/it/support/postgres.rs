//! A private PostgreSQL server, if PostgreSQL is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dlock_testkit::{Signal, signal, wait_for};
use tempfile::TempDir;

use super::{is_installed, run};

/// A server that listens only on a Unix socket in its directory.
pub struct Postgres {
    process: Child,
    directory: TempDir,
}

impl Postgres {
    /// Starts a server with an empty database `shop`. The error says what is missing.
    pub fn start() -> Result<Self, String> {
        let programs = programs().ok_or("PostgreSQL is not installed")?;
        let directory = TempDir::with_prefix("dlock-pg-").map_err(|error| error.to_string())?;
        let user = other_user()?;
        if let Some(user) = &user {
            run(
                Command::new("chown").arg(user).arg(directory.path()),
                directory.path(),
            )?;
        }
        let program = |name: &str| as_user(user.as_deref(), &programs.join(name));
        let create = [
            "-D",
            "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ];
        run(program("initdb").args(create), directory.path())?;
        let process = program("postgres")
            .args(["-D", "data", "-h", "", "-c", "fsync=off", "-k"])
            .arg(directory.path())
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let server = Self { process, directory };
        wait_for("PostgreSQL", || {
            server.psql(&["-d", "postgres", "-c", "SELECT 1"]).is_ok()
        });
        server.psql(&["-d", "postgres", "-c", "CREATE DATABASE shop"])?;
        Ok(server)
    }

    /// Runs SQL from a file.
    pub fn load(&self, file: &Path) -> Result<String, String> {
        self.psql(&[
            "-d",
            "shop",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            &file.display().to_string(),
        ])
    }

    fn psql(&self, arguments: &[&str]) -> Result<String, String> {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-U", "postgres", "-h"])
            .arg(self.directory.path());
        run(psql.args(arguments), Path::new("/"))
    }

    /// Points the libpq variables of a program at this server.
    pub fn set_environment(&self, program: &mut Command) {
        program
            .env("PGHOST", self.directory.path())
            .env("PGUSER", "postgres");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // QUIT: at once, its own processes too.
        signal(self.process.id(), Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// The directory of the server programs: Debian keeps them out of PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter();
    let versions = versions.flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = debian.chain(std::env::split_paths(&path)).collect();
    let has_both =
        |directory: &&PathBuf| directory.join("initdb").exists() && directory.join("postgres").exists();
    let found = directories.iter().find(has_both)?;
    is_installed("psql").then(|| found.clone())
}

/// The user to run as: PostgreSQL refuses to run as root.
fn other_user() -> Result<Option<String>, String> {
    let id = run(Command::new("id").arg("-u"), Path::new("/"))?;
    if id.trim() != "0" {
        return Ok(None);
    }
    if !is_installed("setpriv") || run(Command::new("id").arg("postgres"), Path::new("/")).is_err() {
        return Err("PostgreSQL does not run as root, and setpriv or the user postgres is missing".into());
    }
    Ok(Some("postgres".into()))
}

fn as_user(user: Option<&str>, program: &Path) -> Command {
    let Some(user) = user else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .arg(program);
    command
}
