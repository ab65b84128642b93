//! Errors in place of the server's replies.

use dlock_testkit::Rejection;

use crate::outcome::{Outcome, within};
use crate::pattern::difference;
use crate::scenario::Fields;
use crate::world::World;

/// `answer`: the next requests of a command, for a `key` or any, get an error with this word. They do not reach the server.
pub fn answer(world: &mut World, fields: &mut Fields) -> Outcome {
    let word = fields.take_text("answer")?;
    let rejection = Rejection {
        command: fields.take_text("to")?,
        key: match fields.take("key") {
            None => String::new(),
            Some(key) => key.as_str().ok_or("`key` is a text")?.to_owned(),
        },
        error: error(&word),
        times: fields.take_number("times")?.unwrap_or(1) as usize,
    };
    let name = fields.take_driver()?;
    world.driver(&name)?.proxy.reject(rejection);
    Ok(())
}

/// The error as servers say it: some clients read more than its word.
fn error(word: &str) -> String {
    match word {
        "MOVED" | "ASK" => format!("{word} 7 127.0.0.1:1"),
        _ => format!("{word} says the kit"),
    }
}

/// `wait_for_answers`: until all of them were given.
pub fn wait_for_answers(world: &mut World, fields: &mut Fields) -> Outcome {
    let name = fields.take_text("wait_for_answers")?;
    let limit = fields.take_limit()?;
    let proxy = &world.driver(&name)?.proxy;
    within(limit, || match proxy.rejections() {
        (_, 0) => Ok(()),
        (given, left) => Err(format!(
            "{given} requests came, {left} more are to be answered so"
        )),
    })
}

/// `answered`: how many were given: `count`. None is given any more.
pub fn answered(world: &mut World, fields: &mut Fields) -> Outcome {
    let name = fields.take_text("answered")?;
    let count = fields.take("count").ok_or("`count` says how many")?;
    let proxy = &world.driver(&name)?.proxy;
    let (given, _) = proxy.rejections();
    proxy.reject(Rejection::default());
    difference(&count, &given.into(), &|_| None).map_or(Ok(()), Err)
}
