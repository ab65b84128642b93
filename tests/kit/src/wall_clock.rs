//! A wall clock that jumps while a process runs.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

const SOURCE: &str = include_str!("wall_clock.c");

/// The wall clock of processes that are started with its environment.
pub struct WallClock {
    offset: File,
    directory: TempDir,
}

impl WallClock {
    /// A correct clock. Compiles the preload library that shifts it.
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("dlock-clock-").expect("a temporary directory can be made");
        let source = directory.path().join("wall_clock.c");
        std::fs::write(&source, SOURCE).expect("a temporary directory is writable");
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(directory.path().join("wall_clock.so"))
            .arg(&source)
            .status();
        let built = built.unwrap_or_else(|error| panic!("cannot run cc: {error}"));
        assert!(built.success(), "cc failed to compile wall_clock.c");
        let offset =
            File::create(directory.path().join("offset")).expect("a temporary directory is writable");
        let clock = Self { offset, directory };
        clock.set(0);
        clock
    }

    /// The environment of a process with this clock.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let path = |name: &str| self.directory.path().join(name).into_os_string();
        vec![
            ("LD_PRELOAD".into(), path("wall_clock.so")),
            ("TEST_WALL_CLOCK".into(), path("offset")),
        ]
    }

    /// Sets the offset from the real time, in seconds.
    pub fn set(&self, seconds: i64) {
        self.offset
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("a temporary file is writable");
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}
