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
//! who waits for it, in order. `$cursor` in a command is what a pattern has bound to it, `$cursor+1` one more.
//!
//! Commands with ` | ` between them are sent in one packet, so that nothing comes between: the array of their replies
//! follows. A line that ends with `|` or a comma goes on in the next one. `bob: closed` says that the server closes the connection instead of a reply. `info dlock_waiters: 0` is a
//! field of INFO. `eventually` before a step repeats it until it succeeds. A rule with a line
//! `each command: DEL door; UNLINK door` is played for each row, which stands where `{command}` does.
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
//! | `!BUSY`, `!ERR LIMIT requires` | an error that begins with these words |
//! | `[$cursor, 0, []]` | an array |
//! | `$fence+1` | one more than what is bound |
//! | `waits` | none yet: the server has blocked the client |
//! | `replaces bob` | none yet: the server has blocked it in the place of `bob`, who gets a reply |
//!
//! What the engine in memory cannot do stands in `wire/`, whose rules are played on real servers only:
//!
//! | step | |
//! |---|---|
//! | `config hz 1` | a line of the configuration file; after other steps, for the next start |
//! | `crash` | the server is killed, and started again on its data |
//! | `kill` | the server is killed |
//! | `replica`, `replica hz 1` | a replica starts, with a line of its configuration file; `replica>` is a command to it |
//! | `stop replica`, `resume replica` | its connections stay open meanwhile, and nothing is answered |
//! | `sync` | the replica gets all changes |
//! | `watch` | begins to listen for the next two |
//! | `stream DEL door; DLOCK.APPLY door <change>` | what the server has replicated since the last such step |
//! | `events dlock.acquired door` | the keyspace events since then |
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

use std::env;
use std::fs;
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};

use script::Rule;
use world::World;

/// Runs all rules as tests.
pub fn main<W: World>() -> ! {
    let mut arguments = Arguments::from_args();
    // As tests without this harness have it.
    let threads = env::var("RUST_TEST_THREADS").ok();
    let threads = threads.and_then(|threads| threads.parse().ok());
    arguments.test_threads = arguments.test_threads.or(threads);
    let rules = W::FOLDERS.iter().flat_map(|folder| rules(folder));
    let tests = rules.map(test::<W>).collect();
    libtest_mimic::run(&arguments, tests).exit()
}

fn test<W: World>((file, rule): (String, Rule)) -> Trial {
    let name = format!(
        "{file}::{}",
        rule.name.replace([' ', ','], "_").replace("__", "_")
    );
    Trial::test(name, move || {
        play::play::<W>(&rule).map_err(|error| Failed::from(format!("{file}.rules:{error}")))
    })
}

/// All rules of a folder, with the names of their files.
fn rules(folder: &str) -> Vec<(String, Rule)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
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
