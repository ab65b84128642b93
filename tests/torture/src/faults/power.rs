//! Power failures: what was not synced is lost.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::aof_file::AofFile;

const SOURCE: &str = include_str!("synced.c");

/// The power of a server that is started with its environment.
pub struct Power(TempDir);

impl Power {
    /// Compiles the preload library that notes what is on disk.
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("dlock-power-").expect("a temporary directory can be made");
        let source = directory.path().join("synced.c");
        fs::write(&source, SOURCE).expect("a temporary directory is writable");
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(directory.path().join("synced.so"))
            .args([source.as_os_str(), "-ldl".as_ref()])
            .status();
        let built = built.unwrap_or_else(|error| panic!("cannot run cc: {error}"));
        assert!(built.success(), "cc failed to compile synced.c");
        Self(directory)
    }

    /// The environment of a server with this power.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let library = self.0.path().join("synced.so");
        vec![("LD_PRELOAD".into(), library.into_os_string())]
    }

    /// Truncates the log of a server that was killed to what is on disk. Returns how many bytes that was, and how many
    /// are lost.
    pub fn fail(&self, log: &AofFile) -> (u64, u64) {
        let length = log.length();
        // A server may have truncated what it found.
        let synced = log.synced().min(length);
        log.truncate(synced);
        (synced, length - synced)
    }
}

impl Default for Power {
    fn default() -> Self {
        Self::new()
    }
}
