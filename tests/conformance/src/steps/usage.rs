//! What drivers use.

use crate::outcome::{Outcome, within};
use crate::scenario::Fields;
use crate::usage::Usage;
use crate::world::World;

/// `usage`: counts tasks, threads and sockets of a driver. `as` names the counts; `is_back_to` waits until there are no
/// more than those of that name, and `more_tasks`, `more_threads` and `more_sockets`.
pub fn usage(world: &mut World, fields: &mut Fields) -> Outcome {
    let driver = fields.take_text("usage")?;
    if let Some(name) = fields.take("as") {
        let usage = Usage::of(world.driver(&driver)?)?;
        let name = name.as_str().ok_or("`as` is a name")?;
        world.usages.insert(name.to_owned(), usage);
        return Ok(());
    }
    let name = fields.take_text("is_back_to")?;
    let before = *world.usages.get(&name).ok_or("`is_back_to` names no usage")?;
    let mut number = |name| fields.take_number(name).map(Option::unwrap_or_default);
    let more = Usage {
        tasks: number("more_tasks")?,
        threads: number("more_threads")?,
        sockets: number("more_sockets")?,
    };
    let limit = fields.take_limit()?;
    let driver = world.driver(&driver)?;
    within(limit, || before.check(&Usage::of(driver)?, &more))
}
