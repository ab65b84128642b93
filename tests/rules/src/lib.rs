//! The rules of the commands as transcripts: what clients send, and what the server must reply.
//!
//! Each rule is played twice: on the module's engine in memory, whose clock is set ahead, and over the wire on a real
//! server. A file in `rules/` reads like the screen of redis-cli:
//!
//! ```text
//! given a lock that alice holds
//!     > DLOCK.ACQUIRE a alice 60000
//!     [$alice, 1, ~60000, 0]
//!
//! rule the next waiter is granted what is released
//!     bob> DLOCK.ACQUIRE a bob 60000 BLOCK 0
//!     waits
//!     > DLOCK.RELEASE a alice
//!     0
//!     bob: [$bob > $alice, 1, ~60000, 0..]
//! ```
//!
//! `given` begins a rule that is named after it: its steps come first in each rule up to the next `given`. `bob>` is a
//! command on a connection of that name, `bob:` the reply to the command for which it waits, `bob leaves` closes its
//! connection, `pass 300 ms` lets time pass. `holders door: alice, bob` and `queue door: nobody` say who holds a lock and
//! who waits for it, in order. `$cursor` in a command is what a pattern has bound to it.
//!
//! | pattern | reply |
//! |---|---|
//! | `nil` | null |
//! | `60000`, `granted` | this number, or this text |
//! | `~60000` | a time that runs: this number, or up to ten seconds less |
//! | `300..` | this number or more |
//! | `_` | anything |
//! | `$fence` | binds a number to the name, or is equal to the one that is bound |
//! | `$new > $fence` | binds a number that is larger than the one that is bound to the other name; so with `<` |
//! | `!BUSY` | an error with this code |
//! | `[$cursor, 0, []]` | an array |
//! | `waits` | none yet: the server has blocked the client |
//! | `replaces bob` | none yet: the server has blocked it in the place of `bob`, who gets a reply |
//!
//! ```text
//! script   a file of rules
//! pattern  what a reply must be
//! play     plays a rule on a server
//! world    the two servers
//! ```

#![allow(missing_docs, reason = "only tests use this crate")]

mod pattern;
mod play;
mod script;
mod world;

pub use world::{InMemory, OverTheWire};

use std::fs;
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};

use script::Rule;
use world::World;

/// Runs all rules as tests.
pub fn main<W: World>() -> ! {
    let arguments = Arguments::from_args();
    let tests = rules().into_iter().map(test::<W>).collect();
    libtest_mimic::run(&arguments, tests).exit()
}

fn test<W: World>((file, rule): (String, Rule)) -> Trial {
    let name = format!(
        "{file}::{}",
        rule.name.replace([' ', ','], "_").replace("__", "_")
    );
    Trial::test(name, move || {
        play::play(&W::start(), &rule).map_err(|error| Failed::from(format!("{file}.rules:{error}")))
    })
}

/// All rules, with the names of their files.
fn rules() -> Vec<(String, Rule)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of rules")
        .map(|entry| entry.expect("a file of rules").path())
        .collect();
    files.sort();
    let rules_of = |path: &Path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a file of rules");
        let rules = script::parse(&text).unwrap_or_else(|error| panic!("{name}.rules:{error}"));
        rules.into_iter().map(move |rule| (name.clone(), rule))
    };
    files.iter().flat_map(|path| rules_of(path)).collect()
}
