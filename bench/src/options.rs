//! The command line.

use std::fmt::Write;
use std::path::PathBuf;

use crate::Result;
use crate::works::Work;

const USAGE: &str = "\
dlock-bench [--quick] [--check] [--only WORK]... [--servers DIR] [--out DIR]

  --quick       a first look in less than two minutes: fewer rounds, fewer cases
  --check       exit code 1 when a target is missed
  --only WORK   only this one; may be given several times
  --servers DIR the servers that `tests/matrix/fetch-servers DIR` has put there, for the work `servers`
  --out DIR     where results.json, results.csv and the plots go, default target/bench

environment
  DLOCK_SERVER   the server program, default redis-server
  DLOCK_MODULE   the module, default target/release/libdlock.so
  DLOCK_ETCD     the etcd program, default etcd (Debian: etcd-server); without it, it takes no part

works";

#[derive(Default)]
pub struct Options {
    pub quick: bool,
    pub check: bool,
    /// None = not measured.
    pub servers: Option<PathBuf>,
    /// None = below the target folder.
    pub out: Option<PathBuf>,
    /// Names of works; empty = all.
    only: Vec<String>,
}

/// The help, with the works that there are.
pub fn usage(works: &[Work]) -> String {
    works.iter().fold(USAGE.into(), |mut text, work| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {:<14} {}", work.name, work.about);
        text
    })
}

impl Options {
    /// `None`: help was asked for.
    pub fn parse(args: impl IntoIterator<Item = String>, works: &[Work]) -> Result<Option<Self>> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--only" => {
                    let name = args.next().ok_or("--only needs the name of a work")?;
                    if works.iter().all(|work| work.name != name) {
                        return Err(format!("no work is called {name}\n{}", usage(works)).into());
                    }
                    options.only.push(name);
                }
                "--servers" => {
                    options.servers = Some(args.next().ok_or("--servers needs a folder")?.into());
                }
                "--out" => options.out = Some(args.next().ok_or("--out needs a folder")?.into()),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {arg}\n{}", usage(works)).into()),
            }
        }
        Ok(Some(options))
    }

    pub fn wants(&self, work: &Work) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == work.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKS: [Work; 2] = [
        Work {
            name: "one",
            about: "the first",
            run: |_, _| Ok(()),
        },
        Work {
            name: "two",
            about: "the second",
            run: |_, _| Ok(()),
        },
    ];

    fn wanted(args: &[&str]) -> std::result::Result<Vec<&'static str>, String> {
        let args = args.iter().map(|arg| (*arg).to_owned());
        let options = Options::parse(args, &WORKS).map_err(|error| error.to_string())?;
        let options = options.ok_or("help")?;
        let works = WORKS.iter().filter(|work| options.wants(work));
        Ok(works.map(|work| work.name).collect())
    }

    #[test]
    fn all_works_run_but_where_only_some_are_named() {
        assert_eq!(wanted(&["--quick"]), Ok(vec!["one", "two"]));
        assert_eq!(wanted(&["--only", "two"]), Ok(vec!["two"]));
        assert_eq!(
            wanted(&["--only", "two", "--only", "one"]),
            Ok(vec!["one", "two"])
        );
    }

    #[test]
    fn a_work_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let error = wanted(&["--only", "three"]).err();
        assert!(
            error.is_some_and(|text| text.contains("no work is called three") && text.contains("the second"))
        );
        assert!(wanted(&["--only"]).is_err() && wanted(&["--out"]).is_err() && wanted(&["--fast"]).is_err());
        assert_eq!(wanted(&["--help"]), Err("help".into()));
    }
}
